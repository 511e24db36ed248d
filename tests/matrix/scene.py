"""One cell with its app, its checker and its database, and the promises that hold of it."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matrix.acts import (
    ATTEMPTS,
    ATTEMPTS_IN_BATCHES,
    COSTS,
    COSTS_OF_PULL,
    LOCAL_RETRIES,
    Act,
    Item,
    dead_in,
)
from matrix.cells import DATABASE_MARKS, PULL, REDIS_MARKS, TRANSACTION, Cell
from matrix.handlers import EFFECTS, META, Work
from sqlalchemy import Engine, NullPool, create_engine, event, select
from sqlalchemy.ext.asyncio import create_async_engine

from qframe import (
    Backoff,
    Batch,
    DatabaseChecker,
    Message,
    NotSupported,
    QFrame,
    RedisChecker,
    Reject,
    Topic,
    TransactionalChecker,
)
from qframe.stores.records import ChosenDead

GROUP = "g"
SIZE = 5
SOON = Backoff(first=0.005, cap=0.005)
# Where a message is settled first, what `on_dead` hears of a handler that raised.
RAISED_ONCE = {Act.REJECTED: Reject, Act.EXITS: SystemExit, Act.IN_PLACE: NotSupported,
               Act.LATER: NotSupported}  # fmt: skip


def number_of(message: Message) -> str:
    """What a message is about, so that it is recognised when it is published again."""
    return str(message.body["n"])


class Scene:
    """An app whose one consumer is a cell's.

    Args:
        cell: the cell.
        app: the app.
        checker: the consumer's, if it has one.
        engine: the database of effects that are written in a transaction.
        slots: how many the topic has.
        options: more options of the consumer.
    """

    def __init__(
        self, cell: Cell, app: QFrame, checker: Any, engine: Engine, slots: int,
        **options: Any,
    ) -> None:  # fmt: skip
        self.cell = cell
        self.app = app
        self.topic = Topic("t", kind=cell.kind, slots=slots)
        self.at: Callable[[str], None] = lambda step: None
        self.work = Work(cell, lambda step: self.at(step))
        self.events: Counter[str] = Counter()
        self.mourned: dict[int, type[BaseException]] = {}
        self._engine = engine
        self._guard = threading.Lock()
        app.events.listen(self._listen)
        self.options: dict[str, Any] = {
            "max_attempts": ATTEMPTS_IN_BATCHES if cell.is_batch else ATTEMPTS,
            "on_dead": self._mourn, **options,
        }  # fmt: skip
        if cell.is_batch:
            self.options["batch"] = Batch(SIZE, "5ms")
        if cell.is_once:
            self.options["at_most_once"] = True
        elif self.options["max_attempts"] > 1:
            self.options.setdefault("backoff", SOON)
        if checker is not None:
            self.options["idempotent_checker"] = checker

    def consume(self) -> None:
        """Registers the cell's handler."""
        self.app.consumer(self.topic, GROUP, **self.options)(self.work.handler())

    def publish(self, items: list[Item]) -> None:
        """Publishes a plan."""
        self.app.publish_many(self.topic, [item.outgoing() for item in items])

    def dead(self) -> dict[int, str | None]:
        """All dead letters by their numbers, with their errors."""
        found = self.app.store.dead(self.topic, GROUP, ChosenDead(limit=1000))
        return {json.loads(each.body)["n"]: each.error for each in found}

    def totals(self) -> dict[str, int]:
        """How many messages the group has in each state."""
        stats = self.app.store.stats(self.topic, GROUP)
        names = ("todo", "doing", "waiting", "dead", "settled")
        return {name: sum(getattr(each, name) for each in stats) for name in names}

    def effects(self) -> Counter[int]:
        """How often each message had its effect."""
        if self.cell.policy != TRANSACTION:
            return Counter(self.work.ended)
        with self._engine.connect() as connection:
            return Counter(connection.scalars(select(EFFECTS.c.number)))

    def ended(self) -> list[int]:
        """The numbers of messages in the order in which they had their effects."""
        if self.cell.policy != TRANSACTION:
            return self.work.ended
        with self._engine.connect() as connection:
            return list(connection.scalars(select(EFFECTS.c.number).order_by(EFFECTS.c.row)))

    # The promises.

    def check_ends(self, items: list[Item]) -> None:
        """Each message is settled once or dead, as its act says; nothing is left in hand."""
        dead = dead_in(self.cell, items)
        assert {number: error for number, error in self.dead().items() if number not in dead} == {}
        assert sorted(self.dead()) == dead
        assert self.totals() == {
            "todo": 0, "doing": 0, "waiting": 0, "dead": len(dead),
            "settled": len(items) - len(dead),
        }  # fmt: skip
        assert self.app.store.verify(self.topic) == []

    def check_order(self, items: list[Item]) -> None:
        """No key is handled twice at once, and its messages are handled in their order."""
        assert self.work.overlaps == []
        keys = {item.number: item.key for item in items}
        if self.cell.kind == "stream":  # what has left its line comes back by its time
            begun = list(dict.fromkeys(call.number for call in self.work.calls))
            handled = self.work.by_key(begun, keys)
        else:
            last = list(reversed(dict.fromkeys(reversed(self.ended()))))
            handled = self.work.by_key(last, keys)
        assert all(numbers == sorted(numbers) for numbers in handled.values()), handled

    def check_effects(self, items: list[Item]) -> None:
        """What was settled had its effect once; what is dead had none."""
        dead = set(dead_in(self.cell, items))
        failing = (Act.FINE,) if self.cell.is_once else tuple(Act)
        assert self.effects() == {
            item.number: 1 for item in items if item.number not in dead and item.act in failing
        }

    def check_costs(self, items: list[Item]) -> None:
        """Each message is handed out and handled as often as its act says, and mourned once."""
        numbers = [item.number for item in items]
        calls = {number: self.work.calls_of(number) for number in numbers}
        if self.cell.is_once:
            assert [len(each) for each in calls.values()] == [1] * len(items)
            raised = {item.number: RAISED_ONCE.get(item.act, ValueError) for item in items
                      if item.act is not Act.FINE}  # fmt: skip
            assert self.mourned == raised
            assert self.events["delivery.failed"] == len(raised)
            assert self.events["delivery.retried"] == self.events["delivery.dead"] == 0
            return
        assert sorted(self.mourned) == dead_in(self.cell, items)
        if self.cell.is_batch:
            return
        acts = Counter(item.act for item in items)
        assert self.events["delivery.leaked"] == acts[Act.FORGOTTEN]
        found = {number: (each[-1].attempt, len(each)) for number, each in calls.items()}
        is_pulled = self.cell.executor == PULL
        costs = COSTS_OF_PULL if is_pulled else COSTS
        assert found == {item.number: costs[item.act] for item in items}
        most = max(call.local_retries for call in self.work.calls)
        assert most == (0 if is_pulled else LOCAL_RETRIES)

    def check_again(self, items: list[Item], run: Callable[[], object]) -> None:
        """Published again, a checker has only what is dead handled: no claim was left behind."""
        if not self.cell.is_marked:
            return
        self.work.is_mild = True
        duplicates, calls = self.events["delivery.duplicate"], len(self.work.calls)
        self.publish(items)
        run()
        dead = dead_in(self.cell, items)
        assert sorted(call.number for call in self.work.calls[calls:]) == dead
        assert self.events["delivery.duplicate"] - duplicates == len(items) - len(dead)
        assert self.effects() == dict.fromkeys(range(len(items)), 1)

    def _listen(self, name: str, facts: dict[str, Any]) -> None:
        with self._guard:  # several threads tell
            self.events[name] += facts.get("count", 1)
        if name == "delivery.claimed":
            self.at("begin")
        if name == "effect.committing":
            self.at("end")

    def _mourn(self, message: Message, error: BaseException) -> None:
        with self._guard:
            assert message.body["n"] not in self.mourned
            self.mourned[message.body["n"]] = type(error)


@contextmanager
def scene_of(
    cell: Cell, store: str, request: pytest.FixtureRequest, folder: Path, *,
    slots: int = 2, **options: Any,
) -> Iterator[Scene]:  # fmt: skip
    """A scene on a store, with a database and a Redis of its own for effects and marks."""
    path = folder / "effects.db"
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 60})

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: object) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    META.create_all(engine)
    checker: Any = None
    if cell.policy == REDIS_MARKS:
        checker = RedisChecker(request.getfixturevalue("redis_server").url, key=number_of)
    elif cell.policy == DATABASE_MARKS:
        checker = DatabaseChecker(engine, key=number_of)
    elif cell.policy == TRANSACTION:
        of = create_async_engine(f"sqlite+aiosqlite:///{path}") if cell.is_async else engine
        checker = TransactionalChecker(of, key=number_of)
    with QFrame(store, namespace=f"n{uuid.uuid4().hex}", grace=5) as app:
        yield Scene(cell, app, checker, engine, slots, **options)
    if cell.policy == REDIS_MARKS:
        checker.close()
    engine.dispose()
