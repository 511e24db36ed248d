"""Databases: engines, transactions, statements compiled once. Nothing of queues.

Schema and statements are SQLAlchemy's, and so are the pools of connections. A `Statement` is
compiled once for the database's dialect and then run with plain tuples on the driver's own cursor,
which costs a fraction of SQLAlchemy's execution and keeps one text for all databases. A `Backend`
tells one database from another.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import ArgumentError
from sqlalchemy.sql.expression import ClauseElement

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.drivers.dialects import dialect_named, dialect_of
from qframe.drivers.schemes import EXAMPLES
from qframe.drivers.sql_backend import Backend, FileWatch, Listener
from qframe.errors import BadUrl, QFrameError
from qframe.forks import Forks
from qframe.redaction import check_user_info, shown_url

CONFLICTS: Final = 12
LONGEST_PAUSE_S: Final = 0.25
# A lock is waited for at the server for up to 30 s. With the 10 s that a new connection may take,
# the loops of a worker are still seen to move.
SILENT_S: Final = 32.0
_FIRST_PAUSE_S: Final = 0.004
_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s"}

Row = tuple[Any, ...]
Result = TypeVar("Result")


class Statement:
    """A Core statement, and the order in which its parameters are given.

    Its texts are kept with it, since they are the same for all stores of a process.

    Args:
        core: the statement; constants in it are written into its text.
        names: its parameters' names, in the order in which the compiled statement wants them;
            this is checked when it is compiled, so that tuples cannot be given in another order.
    """

    __slots__ = ("_texts", "core", "names")

    def __init__(self, core: ClauseElement, names: str) -> None:
        self.core: ClauseElement = core
        self.names: list[str] = names.split()
        self._texts: dict[str, str] = {}

    def text(self, dialect: Dialect) -> str:
        """Its text in a dialect, compiled the first time."""
        text = self._texts.get(dialect.name)
        if text is None:
            text = self._texts[dialect.name] = self._compiled(dialect)
        return text

    def _compiled(self, dialect: Dialect) -> str:
        compiled = self.core.compile(dialect=dialect)
        order: list[str] = getattr(compiled, "positiontup", None) or []
        known = set(self.names)
        if [name for name in order if name in known] != self.names:
            raise AssertionError(f"parameters are {order}, not {self.names}: {compiled}")
        mark = _PLACEHOLDERS[dialect.paramstyle]
        written = [
            mark if name in known else _literal(compiled.params[name], dialect) for name in order
        ]
        first, *rest = str(compiled).split(mark)
        return first + "".join(it + after for it, after in zip(written, rest, strict=True))


class Transaction:
    """A running transaction; all that is done with it is done, or nothing is."""

    __slots__ = ("_cursor", "_database", "notifications")

    def __init__(self, database: Database, cursor: Any) -> None:
        self._database = database
        self._cursor = cursor
        self.notifications: dict[str, None] = {}

    def rows(self, statement: Statement, parameters: Row = ()) -> list[Row]:
        """Returns the rows of a query."""
        self._cursor.execute(self._database.text_of(statement), parameters)
        return list(self._cursor.fetchall())

    def row(self, statement: Statement, parameters: Row = ()) -> Row | None:
        """Returns the first row of a query, or None."""
        self._cursor.execute(self._database.text_of(statement), parameters)
        found = self._cursor.fetchall()
        return found[0] if found else None

    @property
    def shown(self) -> str:
        """The database's URL without its password."""
        return self._database.shown

    @property
    def takes_arrays(self) -> bool:
        """Whether there is `rows_of_arrays`."""
        return self._database.backend.takes_arrays

    def rows_of_arrays(self, statement: Statement, parameters: Row) -> list[Row]:
        """Returns the rows of a query whose parameters are arrays."""
        text = self._database.text_of(statement)
        return self._database.backend.rows_of_arrays(self._cursor, text, parameters)

    @property
    def has_partial_indexes(self) -> bool:
        """Whether an index may have a condition."""
        return self._database.has_partial_indexes

    def has_table(self, name: str) -> bool:
        """Whether there is a table of that name."""
        return self._database.backend.has_table(self._cursor, name)

    def has_index(self, table: str, name: str) -> bool:
        """Whether a table has an index of that name."""
        return self._database.backend.has_index(self._cursor, table, name)

    def take_time(self) -> None:
        """Lets the server be silent for any time: for what reads or changes whole tables."""
        self._database.backend.limit_silence(self._cursor, None)

    def lock_schema(self) -> None:
        """Waits until nobody else changes the tables, and keeps others from it."""
        self.take_time()
        self._database.backend.lock_schema(self._cursor)

    def unlock_schema(self) -> None:
        """Lets others change the tables again."""
        self._database.backend.unlock_schema(self._cursor)

    def run(self, statement: Statement, parameters: Row = ()) -> int:
        """Runs a change once; returns how many rows it touched."""
        self._cursor.execute(self._database.text_of(statement), parameters)
        return int(self._cursor.rowcount)

    def run_many(self, statement: Statement, parameters: Sequence[Row]) -> int:
        """Runs a change for each tuple; returns how many rows were touched."""
        if not parameters:
            return 0
        text = self._database.text_of(statement)
        if len(parameters) == 1:
            self._cursor.execute(text, parameters[0])
            return int(self._cursor.rowcount)
        return self._database.backend.run_many(self._cursor, text, parameters)

    def now_ms(self) -> int:
        """The time by the database's own clock, at this moment and not when it began."""
        clock = self._database.clock
        return self._database.backend.now_ms(self._cursor) if clock is None else clock.now_ms()

    def notify(self, notification: str) -> None:
        """Sends a notification to all listeners, once this is committed; equal ones go once."""
        self.notifications[notification] = None


class Database:
    """The way to a database, and the transactions on it.

    Args:
        url: `sqlite:///path`, `postgresql+psycopg://user@host/name`,
            `mysql+pymysql://user@host/name`; for the options after `?` see the module of each.
        clock: None for the server's own, as it must be where more than one machine is at work;
            SQLite has none of its own.
        on_notified: called with the notifications of each transaction that this process commits.

    Raises:
        BadUrl: if the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        on_notified: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self.backend: Backend = _backend(url)
        self._is_closed = False
        self.shown: str = self.backend.shown
        self.clock: Clock | None = (
            clock if clock is not None or self.backend.has_clock else SYSTEM_CLOCK
        )
        self._on_notified = on_notified
        Forks.add(self._begin_anew, before=self._before_fork, locks=self._locks_over_fork)

    @property
    def has_partial_indexes(self) -> bool:
        """Whether an index may have a condition."""
        return dialect_of(self.backend.dialect).has_partial_indexes

    def text_of(self, statement: Statement) -> str:
        """A statement's text for this database."""
        return statement.text(self.backend.dialect)

    def write(self, act: Callable[[Transaction], Result]) -> Result:
        """Runs a transaction that writes, and sees what others have committed at each statement.

        It is run again where it was undone because of another transaction (a deadlock), or where
        the connection was lost before the commit; so `act` must change nothing but the database.

        Raises:
            StoreUnavailable: if the database cannot be used; nothing was changed.
            AnswerLost: if it is unknown whether it was committed.
            StoreFull: if there is no room; nothing was changed.
        """
        with self.backend.writing():
            return self._repeated(lambda stage: self._transact(act, stage, writes=True))

    def read(self, act: Callable[[Transaction], Result]) -> Result:
        """Runs a transaction that reads one state of the database, and waits for nobody.

        Raises:
            StoreUnavailable: if the database cannot be used.
        """
        return self._repeated(lambda stage: self._transact(act, stage, writes=False))

    def read_autocommit(self, act: Callable[[Transaction], Result]) -> Result:
        """Runs statements that read, each for itself, which saves the round trips of `read`.

        Raises:
            StoreUnavailable: if the database cannot be used.
        """
        return self._repeated(lambda stage: self._transact(act, stage, writes=None))

    def watch(self) -> FileWatch | None:
        """The watch that tells of commits to a file; None where there is a server.

        Raises:
            StoreUnavailable: if the file cannot be opened.
        """
        return self.backend.watch()

    def listener(self) -> Listener:
        """Opens a connection that receives the notifications of all processes, where there are any.

        Raises:
            StoreUnavailable: if the database cannot be reached.
        """
        return self.backend.listener()

    def close(self) -> None:
        """Closes all connections; those in use, and those that are opened late, after their use."""
        self._is_closed = True
        self.renew()

    def renew(self) -> None:
        """Closes all connections that nobody uses now; more are opened when they are needed."""
        self.backend.pool.dispose()
        self.backend.pool = self.backend.pool.recreate()

    def _locks_over_fork(self) -> Iterable[Any]:
        """The lock of a file's writers."""
        return self.backend.locks_over_fork()

    def _before_fork(self) -> None:
        """Closes what the child could not even forget."""
        if not self.backend.outlives_fork:
            self.renew()

    def _begin_anew(self) -> None:
        """Has connections of its own in the child of a fork."""
        Forks.keep(self.backend.pool)
        self.backend.begin_anew()

    def _repeated(self, once: Callable[[_Stage], Result]) -> Result:
        """Does something again that was undone, with growing pauses."""
        backend = self.backend
        conflicts = losses = 0
        while True:
            stage = _Stage()
            try:
                return once(stage)
            except backend.failures as error:
                if not stage.committing and conflicts < CONFLICTS and backend.is_conflict(error):
                    longest_s = min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**conflicts)
                    time.sleep(random.uniform(0, longest_s))  # noqa: S311 - no secret is made
                    conflicts += 1
                    continue
                if backend.is_gone(error):
                    # The others were opened to the same server, so they are likely broken too.
                    self.renew()
                    if stage.connected and not stage.committing and not losses:
                        losses += 1
                        continue
                raise backend.translated(error, unknown=stage.committing) from error

    def _transact(
        self, act: Callable[[Transaction], Result], stage: _Stage, *, writes: bool | None
    ) -> Result:
        backend = self.backend
        pool = backend.pool
        connection = pool.connect()
        stage.connected = True
        try:
            cursor = connection.cursor()
            transaction = Transaction(self, cursor)
            backend.limit_silence(cursor, SILENT_S)
            if writes is not None:
                backend.begin(cursor, writes=writes)
            result = act(transaction)
            if writes is not None:
                notifications = list(transaction.notifications)
                if notifications:
                    backend.notify(cursor, notifications)
                stage.committing = writes
                cursor.execute("COMMIT")
            cursor.close()
        except BaseException as error:
            if not isinstance(error, (*backend.failures, QFrameError)):
                backend.give_up(connection)
            elif backend.undo(connection):
                stage.committing = False
            raise
        finally:
            if (self._is_closed or pool is not backend.pool) and connection.is_valid:
                connection.invalidate()  # nobody would close it: its pool is given up
            connection.close()
        if transaction.notifications and self._on_notified is not None:
            self._on_notified(list(transaction.notifications))
        return result


class _Stage:
    """How far a transaction has come."""

    __slots__ = ("committing", "connected")

    def __init__(self) -> None:
        self.connected = self.committing = False


def _literal(value: object, dialect: Dialect) -> str:
    """A constant of ours, as SQL; never anything from outside."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return dialect_of(dialect).bytes_literal.format(value.hex())
    if isinstance(value, int):
        return str(int(value))
    raise AssertionError(f"a parameter without a name: {value!r}")


def url_of(url: str) -> URL:
    """The URL of a database, in its parts.

    Raises:
        BadUrl: if it is none, or of another kind of database.
    """
    remedy = f"use {EXAMPLES}"
    if not url.startswith("sqlite"):  # in the name of a file an @ is a letter
        check_user_info(url)
    try:
        parsed: URL = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise BadUrl("store", shown_url(url), "it is not a URL", remedy) from None
    if parsed.drivername == "postgres":  # as many hosts of databases write it, and libpq takes it
        parsed = parsed.set(drivername="postgresql")
    name = parsed.drivername.partition("+")[0]
    if dialect_named(name) is None:
        raise BadUrl("store", shown_url(url),
                     f"qframe does not support the database {name}", remedy)  # fmt: skip
    return parsed


def _backend(url: str) -> Backend:
    parsed = url_of(url)
    dialect = dialect_named(parsed.drivername.partition("+")[0])
    assert dialect is not None  # noqa: S101 - url_of has seen to that
    return dialect.backend(parsed)
