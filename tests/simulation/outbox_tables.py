"""The database of an outbox: its rows, its lines' locks, and transactions that take time.

A transaction sees what is committed when it asks, and its own changes; what it changes is there at
its commit. Who publishes with a key has its line until the transaction ends. The statements are
those of `qframe.outbox.rows`, over a dict; what publishes and what relays is qframe's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from qframe.errors import AnswerLost, StoreUnavailable
from qframe.outbox.rows import LINES, SLOTS, OutboxRow, Paused
from simulation.scheduler import Process
from simulation.store import Connection
from simulation.threads import SimulatedLock

IDENTITY: Final = 81


class DatabaseAway(Exception):
    """Raised when the database cannot be reached, or its reply is lost."""


class OutboxDatabase:
    """What is committed, and who has a line.

    Args:
        process: whose clock it has.
        on_committed: called with each row that is there from now on.
        on_deleted: called with each row that is there no more.

    Attributes:
        bound: the mark of the store that it belongs to; None if it belongs to none.
        on_bound: called with each mark that it gets.
    """

    def __init__(
        self, process: Process, *, on_committed: Callable[[OutboxRow], None],
        on_deleted: Callable[[OutboxRow], None],
    ) -> None:  # fmt: skip
        self.process = process
        self.rows: dict[int, OutboxRow] = {}
        self.lines: dict[int, SimulatedLock] = defaultdict(SimulatedLock)
        self.on_committed = on_committed
        self.on_deleted = on_deleted
        self.bound: int | None = None
        self.on_bound: Callable[[int], None] = lambda _: None
        self._numbers = 0
        self.failovers = 0
        self._then: tuple[dict[int, OutboxRow], int] = {}, 0

    def copy(self) -> None:
        """From now on it is ahead of the server that it fails over to."""
        self._then = dict(self.rows), self._numbers

    def fail_over(self) -> None:
        """It has forgotten what was committed since the copy; numbers come again."""
        self.rows, self._numbers = self._then
        self.failovers += 1

    def check_open(self, failovers: int) -> None:
        """Refuses to commit a transaction that began before the last failover."""
        if failovers != self.failovers:
            raise DatabaseAway("it has failed over")

    def bind(self, mark: int) -> None:
        """From now on it belongs to the store that has a mark."""
        self.bound = mark
        self.on_bound(mark)

    def number(self) -> int:
        """The next number, which no other row has, whether this one is committed or not."""
        self._numbers += 1
        return self._numbers


class Dialect:
    """As much of a dialect as is asked for: of one with many writers, and no notifications."""

    name = "mysql"
    loaded_dbapi = SimpleNamespace(Error=DatabaseAway)

    def __init__(self, paramstyle: str = "") -> None:
        self.paramstyle = paramstyle

    def detect_autocommit_setting(self, _: object) -> bool:
        return False


class Engine:
    """A process's way to the database.

    Args:
        database: the database.
        connection: over which its calls go: how long they take, and what becomes of them.
    """

    dialect = Dialect()
    url = SimpleNamespace(database=None, render_as_string=lambda **_: "simulated://outbox")

    def __init__(self, database: OutboxDatabase, connection: Connection) -> None:
        self.database = database
        self._connection = connection

    def execution_options(self, **_: object) -> Engine:
        return self

    def ask(self, name: str, operation: Callable[[], Any]) -> Any:
        """Has something done over there.

        Raises:
            DatabaseAway: if that was not heard of, whether it was done or not.
        """
        try:
            return self._connection._call(name, operation)
        except (StoreUnavailable, AnswerLost) as error:
            raise DatabaseAway(str(error)) from error

    @contextmanager
    def begin(self) -> Iterator[RelayTransaction]:
        transaction = RelayTransaction(self)
        yield transaction
        transaction.commit()

    connect = begin


class RelayTransaction:
    """A transaction of those that relay."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.database = engine.database
        self.gone: dict[int, str] = {}
        self._failovers = engine.database.failovers
        self.unmarked: dict[int, str] = {}
        self.marked: set[int] = set()
        self.first_mark: int | None = None
        self.mark: int | None = None

    def commit(self) -> None:
        is_bound = self.first_mark is not None or self.mark is not None
        if self.gone or self.unmarked or self.marked or is_bound:
            self.engine.ask("outbox commit", self._apply)

    def _apply(self) -> None:
        self.database.check_open(self._failovers)
        rows, now_ms = self.database.rows, self.database.process.now_ms()
        for number, name in sorted(self.gone.items()):
            if number in rows and rows[number].id == name:
                self.database.on_deleted(rows.pop(number))
        for number, name in sorted(self.unmarked.items()):
            if number in rows and rows[number].id == name:
                rows[number] = rows[number]._replace(sent_at=None)
        for number in sorted(self.marked & rows.keys()):
            if rows[number].sent_at is None:
                rows[number] = rows[number]._replace(sent_at=now_ms)
        if self.first_mark is not None and self.database.bound is None:
            self.database.bind(self.first_mark)
        if self.mark is not None:
            self.database.bind(self.mark)


class RowStatements:
    """`OutboxStatements` over such a database."""

    channel = "outbox"
    notify = None

    def __init__(self) -> None:
        self.lock_line = Statement("lock line", ("the_line",))
        self.add_line = Statement("add line", ("line",))
        given = ("line", "topic", "id", "key", "headers", "body", "options")
        self.add = Statement("add", given)

    def written(self, row: dict[str, Any]) -> dict[str, Any]:
        return row

    def read(
        self, connection: RelayTransaction, slots: Collection[int], paused: Paused, limit: int
    ) -> list[OutboxRow]:
        def read() -> list[OutboxRow]:
            now_ms = connection.database.process.now_ms()
            found = [
                row._replace(now=now_ms, sent_at=None) if connection.unmarked.get(number) == row.id
                else row._replace(now=now_ms)
                for number, row in sorted(connection.database.rows.items())
                if row.line % SLOTS in slots and connection.gone.get(number) != row.id
                and not _is_paused(row, paused)
            ]  # fmt: skip
            return found[:limit]

        return connection.engine.ask("outbox read", read)  # type: ignore[no-any-return]

    def mark(self, connection: RelayTransaction, numbers: Iterable[int]) -> None:
        connection.marked.update(numbers)
        connection.engine.ask("outbox mark", _nothing)

    def unmark(self, connection: RelayTransaction, ids: Mapping[int, str]) -> None:
        connection.unmarked.update(ids)

    def delete(self, connection: RelayTransaction, ids: Mapping[int, str]) -> int:
        connection.gone.update(ids)
        if connection.gone:
            connection.engine.ask("outbox delete", _nothing)
        return len(connection.gone)

    def asked_again(self, connection: RelayTransaction) -> int:
        return 0

    def is_empty(self, connection: RelayTransaction) -> bool:
        return not connection.database.rows

    def identity(self, connection: RelayTransaction) -> int:
        return int(connection.engine.ask("outbox identity", lambda: IDENTITY))

    def bound(self, connection: RelayTransaction) -> int | None:
        def read() -> int | None:
            return connection.database.bound

        return connection.engine.ask("outbox bound", read)  # type: ignore[no-any-return]

    def bind_first(self, connection: RelayTransaction, mark: int) -> None:
        connection.first_mark = mark
        connection.engine.ask("outbox bind first", _nothing)

    def bind(self, connection: RelayTransaction, mark: int) -> None:
        connection.mark = mark
        connection.engine.ask("outbox bind", _nothing)


class Statement:
    """A statement of those that publish: its name, and its parameters in order."""

    params: Final[dict[str, Any]] = {}

    def __init__(self, name: str, parameters: tuple[str, ...]) -> None:
        self.name = name
        self.positiontup = list(parameters)

    def compile(self, dialect: object) -> Statement:
        return self

    def __str__(self) -> str:
        return self.name


class UserConnection:
    """A driver's connection, as a user has it who publishes in a transaction.

    Args:
        engine: the way to the database.
    """

    rowcount = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._database = engine.database
        self._held: list[SimulatedLock] = []
        self._added: list[OutboxRow] = []
        self._failovers = engine.database.failovers

    def cursor(self) -> UserConnection:
        return self

    def close(self) -> None:
        """Has nothing to close: it is its own cursor."""

    def execute(self, text: str, values: tuple[Any, ...]) -> None:
        if text == "lock line":
            [line] = values
            assert line < LINES
            lock = self._database.lines[line]
            self._engine.ask("lock line", lambda: None)
            lock.acquire()
            self._held.append(lock)
        elif text == "add":
            self._engine.ask("add", lambda: self._add(values))

    def _add(self, values: tuple[Any, ...]) -> None:
        now_ms = self._database.process.now_ms()
        self._added.append(OutboxRow._make((self._database.number(), *values, now_ms, None, 0)))

    def commit(self) -> None:
        """Ends the transaction, and has what was added there."""

        def apply() -> None:
            self._database.check_open(self._failovers)
            for row in self._added:
                self._database.rows[row.number] = row
                self._database.on_committed(row)
            self._free()

        self._engine.ask("user's commit", apply)

    def rollback(self) -> None:
        """Ends the transaction, or loses it."""
        self._free()

    def _free(self) -> None:
        self._added = []
        for lock in self._held:
            lock.release()
        self._held = []


def _is_paused(row: OutboxRow, paused: Paused) -> bool:
    lines = paused.get(row.topic, ())
    return lines is None or row.line in lines


def _nothing() -> None:
    """A statement whose effect comes with the commit."""
