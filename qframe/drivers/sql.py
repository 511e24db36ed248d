"""Databases: engines, transactions, statements compiled once. Nothing of queues.

Schema and statements are SQLAlchemy's; the engine's pool keeps the connections. A `Statement` is
compiled once for the database's dialect and then run with plain tuples on the driver's own cursor,
which costs a fraction of SQLAlchemy's execution and keeps one text for all databases.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.sql.expression import ClauseElement

from qframe.errors import AnswerLost, BadUrl, StoreFull, StoreUnavailable

BUSY_TIMEOUT_MS: Final = 30_000
# Queues are written all over their tables: with SQLite's own 2 MB of cache, and a checkpoint every
# 4 MB, publishing to many keys is a third slower.
CACHE_KIB: Final = 32_768
CHECKPOINT_PAGES: Final = 4000
SYNCHRONOUS: Final = ("full", "normal")

Row = tuple[Any, ...]


class Statement:
    """A Core statement, and the order in which its parameters are given.

    Args:
        core: the statement; constants in it are written into its text.
        names: its parameters' names, in the order in which the compiled statement wants them;
            this is checked when it is compiled, so that tuples cannot be given in another order.
    """

    __slots__ = ("core", "names")

    def __init__(self, core: ClauseElement, names: str) -> None:
        self.core = core
        self.names = names.split()

    def compiled(self, engine: Engine) -> str:
        """Its text for an engine."""
        compiled = self.core.compile(dialect=engine.dialect)
        order: list[str] = getattr(compiled, "positiontup", None) or []
        known = set(self.names)
        constants = [None if name in known else _literal(compiled.params[name]) for name in order]
        if [name for name in order if name in known] != self.names:
            raise AssertionError(f"parameters are {order}, not {self.names}: {compiled}")
        first, *rest = str(compiled).split("?")
        pairs = zip(constants, rest, strict=True)
        return first + "".join(("?" if it is None else it) + after for it, after in pairs)


class Transaction:
    """A running transaction; all that is done with it is done, or nothing is."""

    __slots__ = ("_cursor", "_database")

    def __init__(self, database: Database, cursor: Any) -> None:
        self._database = database
        self._cursor = cursor

    def rows(self, statement: Statement, parameters: Row = ()) -> list[Row]:
        """What a query answers."""
        self._cursor.execute(self._database.text_of(statement), parameters)
        found: list[Row] = self._cursor.fetchall()
        return found

    def row(self, statement: Statement, parameters: Row = ()) -> Row | None:
        """The first row that a query answers, or None."""
        self._cursor.execute(self._database.text_of(statement), parameters)
        found: Row | None = self._cursor.fetchone()
        return found

    def has_table(self, name: str) -> bool:
        """Whether there is a table of that name."""
        self._cursor.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name=?", (name,))
        return self._cursor.fetchone() is not None

    def run(self, statement: Statement, parameters: Row = ()) -> int:
        """Runs a change once; answers how many rows it touched."""
        self._cursor.execute(self._database.text_of(statement), parameters)
        return int(self._cursor.rowcount)

    def run_many(self, statement: Statement, parameters: Sequence[Row]) -> int:
        """Runs a change for each tuple; answers how many rows were touched."""
        if not parameters:
            return 0
        self._cursor.executemany(self._database.text_of(statement), parameters)
        return int(self._cursor.rowcount)


class Database:
    """An engine, and the transactions on it.

    Args:
        url: `sqlite:///path`; options after `?`: `synchronous`, `full` (a commit is on the disk
            when it returns) or `normal` (the last commits may be lost when power fails).

    Raises:
        BadUrl: if the URL cannot be used.
    """

    # Writers of one file queue here, in this process: SQLite's own waiting is a sleep.
    _writers: ClassVar[dict[str, threading.Lock]] = {}
    _writers_guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, url: str) -> None:
        self.url, options = _checked(url)
        self.shown = self.url.render_as_string(hide_password=True)
        path = str(Path(str(self.url.database)).resolve())
        with self._writers_guard:
            self._writing = self._writers.setdefault(path, threading.Lock())
        self.engine = create_engine(self.url, paramstyle="qmark", pool_size=8, max_overflow=64)
        self._texts: dict[int, str] = {}
        self._statements: list[Statement] = []

        @event.listens_for(self.engine, "connect")
        def on_connect(connection: sqlite3.Connection, _: object) -> None:
            # The driver must not begin transactions by itself: BEGIN IMMEDIATE has to.
            connection.isolation_level = None
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute(f"PRAGMA synchronous={options.get('synchronous', 'full')}")
            cursor.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            cursor.close()

    def text_of(self, statement: Statement) -> str:
        """A statement's text, compiled the first time."""
        text = self._texts.get(id(statement))
        if text is None:
            text = statement.compiled(self.engine)
            self._statements.append(statement)  # keeps its id its own
            self._texts[id(statement)] = text
        return text

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that writes; others that write wait for it.

        Raises:
            StoreUnavailable: if the database cannot be used; nothing was changed.
            AnswerLost: if it is unknown whether it was committed.
            StoreFull: if there is no room; nothing was changed.
        """
        with self._writing, self._transaction("BEGIN IMMEDIATE") as transaction:
            yield transaction

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that reads one state of the database, and waits for nobody.

        Raises:
            StoreUnavailable: if the database cannot be used.
        """
        with self._transaction("BEGIN") as transaction:
            yield transaction

    def watch(self) -> tuple[Callable[[], int], Callable[[], None]]:
        """A number that changes when anything is committed, and what frees its connection.

        Raises:
            StoreUnavailable: if the database cannot be reached.
        """
        connection = self.engine.raw_connection()
        cursor = connection.cursor()
        guard = threading.Lock()
        open_ = [True]

        def version() -> int:
            with guard:
                if not open_[0]:
                    return 0
                cursor.execute("PRAGMA data_version")
                row: Row = cursor.fetchone()  # type: ignore[assignment] # a pragma answers always
                return int(row[0])

        def release() -> None:
            with guard:
                if open_[0]:
                    open_[0] = False
                    cursor.close()
                    connection.close()

        return version, release

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Transaction]:
        committing = False
        try:
            connection = self.engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute(begin)
                try:
                    yield Transaction(self, cursor)
                    committing = True
                    cursor.execute("COMMIT")
                except BaseException:
                    if connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
                        cursor.execute("ROLLBACK")
                        committing = False
                    raise
                finally:
                    cursor.close()
            finally:
                connection.close()
        except (sqlite3.Error, DBAPIError) as error:
            raise self._translated(error, committing) from error

    def _translated(self, error: Exception, committing: bool) -> Exception:
        """What a driver's error means here."""
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        text = str(cause)
        if "is full" in text:
            return StoreFull(self.shown, text)
        if isinstance(cause, sqlite3.DatabaseError) and "not a database" in text:
            return BadUrl("store", self.shown, "the file is not a database", "name another file")
        if "unable to open" in text:
            return BadUrl(
                "store", self.shown, "the file cannot be opened",
                "create its directory, and see that it may be written",
            )  # fmt: skip
        if isinstance(cause, sqlite3.OperationalError):
            return (AnswerLost if committing else StoreUnavailable)(self.shown, text)
        return error


def _literal(value: object) -> str:
    """A constant of ours, as SQL; never anything from outside."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, int):
        return str(int(value))
    raise AssertionError(f"a parameter without a name: {value!r}")


def _checked(url: str) -> tuple[URL, dict[str, str]]:
    """The URL as the engine takes it, and our own options."""
    remedy = "use sqlite:///file.db, or sqlite:////full/path/to/file.db"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise BadUrl("store", url, "it is not a URL", remedy) from error
    shown = parsed.render_as_string(hide_password=True)
    if parsed.host:
        raise BadUrl("store", shown, f"{parsed.host!r} stands where no host can be", remedy)
    if not parsed.database or parsed.database == ":memory:":
        raise BadUrl("store", shown, "it names no file", remedy)
    folder = Path(parsed.database).resolve().parent
    if not folder.is_dir():
        raise BadUrl("store", shown, f"there is no directory {folder}", "create it")
    options = {name: str(value).lower() for name, value in parsed.query.items()}
    for name, value in options.items():
        if name != "synchronous" or value not in SYNCHRONOUS:
            raise BadUrl(
                "store", shown, f"{name}={value} is not an option of it",
                "use ?synchronous=full or ?synchronous=normal",
            )  # fmt: skip
    return parsed.set(query={}), options
