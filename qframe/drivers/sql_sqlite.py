"""SQLite: a file, one writer at a time, and no clock of its own."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, Integer, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from qframe.drivers.dialect import Codes, Dialect, MarkLock, Tables, Types
from qframe.drivers.file_changes import FileChanges
from qframe.drivers.sql_backend import PREFIX, Backend, FileWatch, shown_of, yes_or_no
from qframe.errors import BadUrl, SchemaMismatch, StoreFull, StoreUnavailable
from qframe.forks import Forks
from qframe.open_files import lack_of_files

BUSY_TIMEOUT_MS: Final = 30_000
# Queues are written all over their tables: with SQLite's own 2 MB of cache, and a checkpoint every
# 4 MB, publishing to many keys is a third slower.
CACHE_KIB: Final = 32_768
CHECKPOINT_PAGES: Final = 4000
_AGAIN_MS: Final = 20
_FILES_AT_MOST: Final = 3  # of a connection: the database, its -wal and its -shm
_FILE: Final = "qframe.file"
SYNCHRONOUS: Final = ("full", "normal")
# There is no server that might be away.
_REMEDIES: Final[Mapping[str, Mapping[str, str]]] = {
    "is locked": {
        "what": "is held by another transaction",
        "remedy": "end that before you publish, or keep messages in a file of their own",
    },
    "readonly database": {
        "what": "refuses writes",
        "remedy": "let this user write the file, those beside it (-wal, -shm), and its directory",
    },
    "disk I/O error": {
        "what": "cannot be read or written", "remedy": "see what the system tells of its disk",
    },
}  # fmt: skip


class Sqlite(Backend):
    """A file.

    Options: `synchronous`, `full` (a commit is on the disk when it returns) or `normal` (the last
    commits may be lost when power fails); `migrate=no`, under which a file is not changed to WAL.
    """

    has_clock = False
    # SQLite keeps what locks a process has in memory; a child that copied it would trust locks
    # that it has not. See https://www.sqlite.org/howtocorrupt.html, section 2.6.
    outlives_fork = False

    # Writers of one file queue here, in this process: SQLite's own waiting is a sleep.
    _writers: ClassVar[dict[str, threading.Lock]] = {}
    _writers_guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, url: URL) -> None:
        url, options = _checked(url)
        self._path = path = str(Path(str(url.database)).resolve())
        with self._writers_guard:
            self._writing = self._writers.setdefault(path, threading.Lock())
        engine = create_engine(url, paramstyle="qmark", pool_size=8, max_overflow=64)
        shown = shown_of(url)
        super().__init__(shown, engine.dialect, engine.pool, (sqlite3.Error,))
        self.may_migrate: bool = yes_or_no(shown, "migrate", options.get("migrate", ""), True)

        @event.listens_for(engine.pool, "connect")
        def on_connect(connection: sqlite3.Connection, _: object) -> None:
            # The driver must not begin transactions by itself: BEGIN IMMEDIATE has to.
            connection.isolation_level = None
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
            if self.may_migrate:  # else the file may be somebody else's, and stays as it is
                _use_wal(cursor)
            cursor.execute(f"PRAGMA synchronous={options.get('synchronous', 'full')}")
            cursor.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            cursor.close()

        @event.listens_for(engine.pool, "connect")
        def note_file(_: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
            record.info[_FILE] = _file_at(path)

        @event.listens_for(engine.pool, "checkout")
        def check_file(_: object, record: ConnectionPoolEntry, __: object) -> None:
            if record.info[_FILE] != _file_at(path):
                raise InvalidatePoolError("the file was replaced")  # the pool connects anew

    def writing(self) -> AbstractContextManager[Any]:
        """The lock of the file's writers in this process."""
        return self._writing

    def locks_over_fork(self) -> Iterable[Any]:
        """The lock of the file's writers in this process."""
        return (self._writing,)

    def begin_anew(self) -> None:
        """Has connections and a lock of its own; one lock for all that write to the file."""
        super().begin_anew()
        if self._writers[self._path] is self._writing:
            self._writers[self._path] = threading.Lock()
        self._writing = self._writers[self._path]

    def begin(self, cursor: Any, *, writes: bool) -> None:
        """Begins a transaction; one that writes waits for the others that do."""
        cursor.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def now_ms(self, cursor: Any) -> int:  # noqa: ARG002
        """There is none: whoever opens the file brings a clock."""
        raise AssertionError("SQLite has no clock")

    def has_table(self, cursor: Any, name: str) -> bool:
        """Whether there is a table of that name."""
        cursor.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name=?", (name,))
        return cursor.fetchone() is not None

    def has_index(self, cursor: Any, table: str, name: str) -> bool:
        """Whether a table has an index of that name."""
        cursor.execute(
            "SELECT 1 FROM sqlite_master WHERE type='index' AND tbl_name=? AND name=?",
            (table, name),
        )
        return cursor.fetchone() is not None

    def give_up(self, connection: PoolProxiedConnection) -> None:
        """Rolls back first: a closed connection has its locks while anybody holds a cursor of it.

        The traceback of what has ended its work holds one.
        """
        inner: Any = connection.dbapi_connection
        if inner is not None:
            with suppress(sqlite3.Error):
                inner.rollback()
        super().give_up(connection)

    def undo(self, connection: PoolProxiedConnection) -> bool:
        """Rolls back what is still open; a commit that failed and left nothing open is unknown."""
        inner: Any = connection.dbapi_connection
        if inner is None or not inner.in_transaction:
            return False
        return super().undo(connection)

    def watch(self) -> FileWatch:
        """A number that changes when anything is committed.

        Raises:
            StoreUnavailable: if the file cannot be opened.
        """
        try:
            return SqliteWatch(self._path, lambda: self.pool.connect())
        except self.failures as error:
            raise self.translated(error, unknown=False) from error

    def is_conflict(self, error: Exception) -> bool:  # noqa: ARG002 - there is one writer
        """Never: writers wait for each other from their beginning."""
        return False

    def is_gone(self, error: Exception) -> bool:  # noqa: ARG002 - there is no server
        """Never."""
        return False

    def translated(self, error: Exception, *, unknown: bool) -> Exception:
        """The meaning of a driver's error here.

        A commit for which the disk has no room has not written its last page, without which the
        others count for nothing.
        """
        return super().translated(error, unknown=unknown and not _is_full(error))

    def birth(self) -> str:
        """The file itself: another may be made under its name."""
        return str(_file_at(self._path))

    def refusal(self, error: Exception) -> Exception | None:
        """Disks that are full or fail, files that are none, are damaged, kept or begun anew."""
        text = str(error)
        if f"no such table: {PREFIX}" in text:
            return SchemaMismatch(self.shown, 0)
        if _is_full(error):
            return StoreFull(self.shown, text)
        if "not a database" in text:
            return BadUrl("store", self.shown, "the file is not a database", "name another file")
        if "unable to open" in text:
            if why := lack_of_files(_FILES_AT_MOST):
                return StoreUnavailable(self.shown, why)
            return BadUrl(
                "store", self.shown, "the file cannot be opened",
                "name a file that this user may read and write, with its directory and the files "
                "beside it (-wal, -shm)",
            )  # fmt: skip
        if "malformed" in text:
            return BadUrl(
                "store", self.shown, f"the file is damaged ({text})",
                "stop what writes it, and restore a backup: docs/backup.md",
            )  # fmt: skip
        for part, meaning in _REMEDIES.items():
            if part in text:
                return StoreUnavailable(self.shown, text, **meaning)
        return error if isinstance(error, sqlite3.Error) and not _is_operational(error) else None


class SqliteWatch(FileWatch):
    """A connection that only asks whether another has committed; it is not open over a fork.

    Args:
        path: the file's.
        connect: makes a connection to it.
    """

    def __init__(self, path: str, connect: Callable[[], PoolProxiedConnection]) -> None:
        self._path = path
        self._connect = connect
        self._connection: PoolProxiedConnection | None = connect()
        self._guard = threading.Lock()
        self._is_open = True
        self._connections = 1
        Forks.add(self._begin_anew, before=self._before_fork, locks=self._locks_over_fork)

    def version(self) -> tuple[int, int]:
        """A number that changes when another connection has committed; nothing once released."""
        with self._guard:
            if not self._is_open:
                return 0, 0
            connection = self._connection
            if connection is not None and connection.info[_FILE] != _file_at(self._path):
                connection.invalidate()
                self._connection = None
            if self._connection is None:  # its numbers tell nothing of those before
                self._connection = self._connect()
                self._connections += 1
            cursor = self._connection.cursor()
            cursor.execute("PRAGMA data_version")
            row: Any = cursor.fetchone()
            cursor.close()
            return self._connections, int(row[0])

    def changes(self) -> FileChanges | None:
        """Notices writes to the file; None where the system does not tell."""
        try:
            return FileChanges(self._path)
        except OSError:
            return None

    def release(self) -> None:
        """Gives the connection back."""
        with self._guard:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._is_open = False

    def _locks_over_fork(self) -> Iterable[Any]:
        """The lock of whoever looks."""
        return (self._guard,)

    def _begin_anew(self) -> None:
        """Is nobody's in the child; its lock is the child's own."""
        self._guard = threading.Lock()

    def _before_fork(self) -> None:
        """Closes the connection; the next look opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()


def _is_open(connection: Connection) -> bool:
    """False once an error has rolled the transaction back."""
    driver: Any = connection.connection.dbapi_connection
    return bool(getattr(driver, "in_transaction", True))


def _database_of(driver: Any) -> str | None:
    """The path of a connection's file."""
    if not isinstance(driver, sqlite3.Connection):
        return None
    with closing(driver.cursor()) as cursor:
        cursor.row_factory = None
        path: str | None = cursor.execute("PRAGMA database_list").fetchone()[2]
        return path or None


SQLITE: Final = Dialect(
    name="sqlite",
    title="SQLite",
    backend=Sqlite,
    now_ms="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    insert=sqlite.insert,
    mark_lock=MarkLock.WRITER,
    settings="SELECT 'synchronous', synchronous FROM pragma_synchronous"
    " UNION ALL SELECT 'journal_mode', journal_mode FROM pragma_journal_mode"
    " UNION ALL SELECT 'version', sqlite_version()",
    has_one_writer=True,
    paramstyle="qmark",
    casts_bodies=True,
    types=Types(number=Integer()),
    tables=Tables(clustered={"with_rowid": False}, counted={"autoincrement": True}),
    codes=Codes(
        conflict_texts=(
            "database is locked", "database table is locked", "database is busy"
        )
    ),
    is_open=_is_open,
    database_of=_database_of,
)  # fmt: skip


def _file_at(path: str) -> tuple[int, int] | None:
    """The file that a path names now; a connection knows the one that it was opened with."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each transaction asks
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_full(error: Exception) -> bool:
    return "is full" in str(error)


def _is_operational(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError)


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Changes a new file to WAL; who meets another that does is told so at once, not made to wait.

    See https://www.sqlite.org/wal.html, "Sometimes Queries Return SQLITE_BUSY In WAL Mode".
    """
    for tries_left in reversed(range(1 + BUSY_TIMEOUT_MS // _AGAIN_MS)):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if not tries_left or "locked" not in str(error):
                raise
            time.sleep(_AGAIN_MS / 1000)
        else:
            return


def _checked(url: URL) -> tuple[URL, dict[str, str]]:
    """The URL as the engine takes it, and our own options."""
    remedy = "use sqlite:///file.db, or sqlite:////full/path/to/file.db"
    shown = shown_of(url)
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise BadUrl("store", shown, f"qframe does not use the driver {url.drivername}", remedy)
    if url.host:
        raise BadUrl(
            "store", shown, f"a file has no host, and {url.host!r} is in the place of one", remedy
        )
    if not url.database or url.database == ":memory:":
        in_memory = "; to keep messages in this process's memory: model://"
        raise BadUrl("store", shown, "it names no file", f"{remedy}{in_memory}")
    folder = Path(url.database).resolve().parent
    if not folder.is_dir():
        raise BadUrl("store", shown, f"there is no directory {folder}", "create it")
    options = {name: str(value).lower() for name, value in url.query.items()}
    for name, value in options.items():
        if name != "migrate" and (name != "synchronous" or value not in SYNCHRONOUS):
            raise BadUrl(
                "store", shown, f"{name} is not an option, or its value is wrong",
                "use ?synchronous=full, ?synchronous=normal or ?migrate=no",
            )  # fmt: skip
    return url.set(query={}), options
