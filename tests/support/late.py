"""Calls in whose midst time passes, an answer is lost, or another one acts.

No thread and no real time is needed: `Late` stands before whatever is called, and what is to happen
before a call is made, or once it is done and its answer is on the way, is told to it beforehand.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from qframe.drivers.dialects import dialect_of
from qframe.drivers.sql import Statement
from qframe.stores.base import Store
from qframe.stores.redis.store import RedisStore
from qframe.stores.sql.store import SqlStore

Act = Callable[[], object]


class Late:
    """Stands before an object, and lets acts happen around the calls of its methods.

    Each act happens once, at the next call of its method; several follow one another, call by call.
    An act that raises is a request (`before`) or an answer (`after`) that is lost.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._acts: dict[tuple[str, str], deque[Act]] = defaultdict(deque)

    def before(self, method: str, *acts: Act) -> Late:
        """What happens before the next calls of a method: one act before each."""
        self._acts["before", method].extend(acts)
        return self

    def after(self, method: str, *acts: Act) -> Late:
        """What happens once the next calls of a method are done, before they return."""
        self._acts["after", method].extend(acts)
        return self

    @property
    def waits(self) -> bool:
        """Whether something has not happened yet."""
        return any(self._acts.values())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        before, after = self._acts.get(("before", name)), self._acts.get(("after", name))
        if not before and not after:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            if before:
                before.popleft()()
            answer = found(*arguments, **options)
            if after:
                after.popleft()()
            return answer

        return call


def loses(error: BaseException) -> Act:
    """An act that loses a request or an answer."""

    def lose() -> None:
        raise error

    return lose


def in_the_midst(
    store: SqlStore, act: Act, is_it: Callable[[Statement], bool] | None = None
) -> list[Statement]:
    """Has an act happen once, when the store is about to lock rows, or run what else is meant.

    What it has read by then it has read before the act. Returns a list that has the statement once
    the act has happened.
    """
    database = store._database
    text_of = database.text_of
    met: list[Statement] = []

    def met_on_the_way(statement: Statement) -> str:
        if not met and (is_it or locks)(statement):
            met.append(statement)
            act()
        return text_of(statement)

    database.text_of = met_on_the_way  # type: ignore[method-assign]
    return met


def locks(statement: Statement, table: str = "") -> bool:
    """Whether a statement waits for those who change the rows that it reads, of a table or any."""
    is_lock = getattr(statement.core, "_for_update_arg", None) is not None
    text = str(statement.core)
    return table in text and (is_lock or (bool(table) and not text.startswith("SELECT")))


def meanwhile(store: Store, act: Act, *, at: str = "") -> None:
    """Has an act happen between what the next operation reads first and what it does with it.

    On a server of SQL that is when it locks rows (or touches the table `at`, if it is given), on
    Redis before a script.

    In memory and where there is one writer nobody comes between: there it happens at once, before
    the operation.
    """
    acts = [act]

    def once() -> None:
        if acts:
            acts.pop()()

    if isinstance(store, RedisStore):
        store._redis = Late(store._redis).before("run", once).before("one", once)  # type: ignore
    elif isinstance(store, SqlStore) and not _has_one_writer(store):
        in_the_midst(store, act, lambda statement: locks(statement, at))
    else:
        act()


def _has_one_writer(store: SqlStore) -> bool:
    return dialect_of(store._database.backend.dialect).has_one_writer
