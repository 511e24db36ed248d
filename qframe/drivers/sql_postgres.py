"""PostgreSQL 15 or newer, through psycopg 3."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from qframe.drivers.dialect import Codes, Dialect, MarkLock, Options, Types
from qframe.drivers.sql_backend import (
    CROWDED,
    CUT_SHORT,
    HELD_UP,
    NO_LOGIN,
    NO_RIGHT,
    PREFIX,
    READ_ONLY,
    Backend,
    Listener,
    Values,
    driver,
    shown_of,
    text_of,
    yes_or_no,
)
from qframe.drivers.sql_bytes import bytes_writer_of
from qframe.drivers.sql_lists import list_writer_of
from qframe.drivers.sql_silence import connection_of
from qframe.drivers.tls import AUTHORITY, OF_POSTGRES, meaning_of
from qframe.errors import BadUrl, SchemaMismatch, StoreForbidden, StoreFull, StoreUnavailable
from qframe.poller import new_poller

OLDEST: Final = 150000
CHANNEL: Final = "qframe"
CHECK_EVERY_S: Final = 10.0
COPY_FROM: Final = 8
_INSERT: Final = re.compile(
    r"INSERT INTO (\S+) \(([^()]+)\) VALUES \(((?:%s(?:::[A-Z]+(?: COLLATE \"C\")?)?(?:, )?)+)\)"
)
_NOW_MS: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
_INTRANS: Final = 2  # of libpq
_REMEDY: Final = "use postgresql+psycopg://user:password@host:5432/name"
# A worker that is stopped in the middle of a transaction must not keep others from its slots; a
# host that has vanished is noticed. Every statement goes by an index, but one that was planned
# while its table was empty would read all of it from then on, as long as the plan is kept; what
# must be read whole all the same is not worth compiling. Whoever names one of these in the URL has
# the last word; of a setting that is given twice the server takes the second.
_CONNECTING: Final[Mapping[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "qframe",
    "sslpassword": " ",  # else a terminal is asked for that of a key
    "options": "-c idle_in_transaction_session_timeout=30s -c lock_timeout=30s"
    " -c enable_seqscan=off -c jit=off",
}
_SCHEMA_LOCK: Final = 0x71_66_72_61_6D_65  # "qframe"
_SERIALIZATION, _DEADLOCK, _UNIQUE = "40001", "40P01", "23505"
_LOST: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006")
_NO_ROOM: Final = ("53100",)
_NO_TABLE: Final = "42P01"
_READ_ONLY: Final = "25006"
_FORBIDDEN: Final = "42501"
_NO_SCHEMA: Final = "3F000"  # none of the search path is there
_TOO_MANY: Final = "53300"
_CANCELED: Final = ("57014", "25P04")  # also by a limit of time: of a statement, of a transaction
_LOCKED: Final = "55P03"
_ENCODINGS: Final = (None, "UTF8", "SQL_ASCII")  # a pooler may not tell; the last takes any text
# As a connection is refused, without its state; from `max_connections` to that of a role.
_TOO_MANY_TEXTS: Final = ("too many clients", "too many connections", "connection slots are")
# What a pooler cannot do, as it or the server says it.
_POOLERS: Final[Mapping[str, str]] = {
    "prepared statement": "add ?prepare_threshold=0 to the URL",
    "unsupported startup parameter": "set ignore_startup_parameters",
    "statement pooling mode": "set pool_mode = transaction, or session",
}
_REFUSED: Final = ("password authentication failed", "does not exist", "no pg_hba.conf entry",
                   "pg_hba.conf rejects", "no password supplied", "permission denied",
                   "is not permitted to log in")  # fmt: skip
_UNENCRYPTED: Final = "no encryption"  # what no line of pg_hba.conf lets in
_WRONG_OPTIONS: Final = ("invalid connection option", "invalid sslmode", "bad value for")


class Postgres(Backend):
    """A server; options of the URL are libpq's, `prepare_threshold` and `migrate=no`."""

    takes_arrays = True
    tls = OF_POSTGRES

    def __init__(self, url: URL) -> None:
        shown = shown_of(url)
        if url.drivername not in ("postgresql", "postgresql+psycopg"):
            raise BadUrl(
                "store", shown, f"qframe does not use the driver {url.drivername}", _REMEDY
            )
        if not url.database:
            raise BadUrl("store", shown, "it names no database", _REMEDY)
        self._psycopg: Any = driver("psycopg", "postgres", shown)
        self._list_writer = list_writer_of(self._psycopg)
        self._bytes_writer = bytes_writer_of(self._psycopg)
        self._connection = connection_of(self._psycopg, CHECK_EVERY_S)
        options = dict(url.query)  # `host` may be given several times
        may_migrate = yes_or_no(shown, "migrate", str(options.pop("migrate", "")), True)
        threshold = str(options.pop("prepare_threshold", ""))
        self._options = {**_CONNECTING, **_threshold(shown, threshold)}
        dialect: Any = PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]
        _, wanted = dialect.create_connect_args(url.set(query=options))
        if more := wanted.pop("options", ""):
            self._options["options"] = f"{_CONNECTING['options']} {more}"
        # Keys and errors may have any character, whatever is usual in the database.
        self._options |= wanted | {"client_encoding": "utf8"}
        pool = QueuePool(self._connected, pool_size=8, max_overflow=64, reset_on_return=None)
        super().__init__(shown, dialect, pool, (self._psycopg.Error,))
        self.may_migrate = may_migrate
        self._is_asked = False

    def begin(self, cursor: Any, *, writes: bool) -> None:
        """Begins a transaction."""
        cursor.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED" if writes
            else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        )  # fmt: skip

    def now_ms(self, cursor: Any) -> int:
        """The server's clock at this moment."""
        cursor.execute(f"SELECT {_NOW_MS}")
        return int(cursor.fetchone()[0])

    def has_table(self, cursor: Any, name: str) -> bool:
        """Whether there is a table of that name on the search path."""
        cursor.execute("SELECT to_regclass(%s::text) IS NOT NULL", (name,))
        return bool(cursor.fetchone()[0])

    def has_index(self, cursor: Any, table: str, name: str) -> bool:  # noqa: ARG002
        """Whether there is an index of that name on the search path."""
        return self.has_table(cursor, name)

    def limit_silence(self, cursor: Any, longest_s: float | None) -> None:
        """How long the server may be silent from now on."""
        cursor.connection.silent_s = longest_s

    def lock_schema(self, cursor: Any) -> None:
        """Waits until no other transaction holds the lock; the end of this one lets it go."""
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))

    def run_many(self, cursor: Any, text: str, parameters: Sequence[tuple[Any, ...]]) -> int:
        """Runs a change for each tuple; rows that are only added are copied."""
        into = _copied(text) if len(parameters) >= COPY_FROM else None
        if into is None:
            return super().run_many(cursor, text, parameters)
        with cursor.copy(into) as copy:
            for row in parameters:
                copy.write_row(row)
        return len(parameters)

    def rows_of_arrays(self, cursor: Any, text: str, parameters: Values) -> list[Values]:
        """Returns the rows of a query whose parameters are arrays.

        It is planned each time, for tables as long as they are now: a plan that was made and kept
        when they were empty could read them whole for each element.
        """
        cursor.execute(text, parameters, prepare=False)
        return list(cursor.fetchall())

    def notify(self, cursor: Any, notifications: Sequence[str]) -> None:
        """Sends notifications when the transaction is committed."""
        cursor.execute(
            "SELECT pg_notify(%s, word) FROM unnest(%s::text[]) AS word",
            (CHANNEL, list(notifications)),
        )

    def listener(self) -> Listener:
        """A connection of its own that listens.

        Raises:
            StoreUnavailable: if the server cannot be reached.
        """
        with ExitStack() as undo:
            try:
                connection = self._connected()
                undo.callback(connection.close)
                connection.execute(f"LISTEN {CHANNEL}")
            except self.failures as error:
                raise self.translated(error, unknown=False) from error
            undo.pop_all()
        return PostgresListener(self, connection)

    def is_conflict(self, error: Exception) -> bool:
        """Deadlocks, serialization failures, and two who add the same."""
        return getattr(error, "sqlstate", None) in (_SERIALIZATION, _DEADLOCK, _UNIQUE)

    def is_gone(self, error: Exception) -> bool:
        """Whether the connection is lost, or leads to a server that may not be written."""
        state = getattr(error, "sqlstate", None)
        if state is None:
            of = self._psycopg
            broken = (of.OperationalError, of.InterfaceError, of.InternalError)
            # A reply that cannot be read has the class of all errors.
            return isinstance(error, broken) or type(error) is of.DatabaseError
        return state.startswith("08") or state in _LOST

    def refusal(self, error: Exception) -> Exception | None:
        """Disks that are full, users, databases and tables that are not there, our own mistakes."""
        state, text = getattr(error, "sqlstate", None), text_of(error)
        if state == _NO_TABLE and PREFIX in text:
            return SchemaMismatch(self.shown, 0)
        if state == _READ_ONLY:
            return StoreUnavailable(self.shown, text, **READ_ONLY)
        if state == _TOO_MANY or (state is None and any(each in text for each in _TOO_MANY_TEXTS)):
            return StoreUnavailable(self.shown, text, **CROWDED)
        if state in _CANCELED:
            return StoreUnavailable(self.shown, text, **CUT_SHORT)
        if state == _LOCKED:
            return StoreUnavailable(self.shown, text, **HELD_UP)
        if state in _NO_ROOM:
            return StoreFull(self.shown, text)
        for part, remedy in _POOLERS.items():
            if part in text:
                return BadUrl(
                    "store", self.shown, f"a pooler cannot do what is needed ({text})",
                    f"{remedy}: see docs/configuration.md",
                )  # fmt: skip
        if state is None and any(each in text for each in _WRONG_OPTIONS):
            return BadUrl("store", self.shown, f"an option is wrong ({text})",
                          "see docs/configuration.md")  # fmt: skip
        if state is None and meaning_of(text, OF_POSTGRES):
            return None
        is_forbidden = state == _FORBIDDEN
        is_refused = state is None and any(each in text for each in _REFUSED)
        if is_forbidden or is_refused or state == _NO_SCHEMA:
            remedy = NO_RIGHT if is_forbidden else NO_LOGIN
            if text.endswith(_UNENCRYPTED):
                remedy = f"use TLS (sslmode=verify-full), if the server asks for it; or {NO_LOGIN}"
            return StoreForbidden(self.shown, text, remedy=remedy)
        if isinstance(error, self._psycopg.DataError) and state is None:
            return BadUrl("string for the store", self.shown, text, "remove the NUL character")
        if self.is_gone(error) or isinstance(error, self._psycopg.OperationalError):
            return None
        return error if isinstance(error, self._psycopg.Error) else None

    def _connected(self) -> Any:
        connection = self._connection.connect(autocommit=True, **self._options)
        with ExitStack() as undo:
            undo.callback(connection.close)
            self._set_up(connection)
            undo.pop_all()
        return connection

    def _set_up(self, connection: Any) -> None:
        """Checks what a new connection leads to, and has it read and write as is wanted."""
        if connection.info.server_version < OLDEST:
            raise BadUrl(
                "store", self.shown, f"it is PostgreSQL {connection.info.server_version // 10000}",
                "use PostgreSQL 15 or newer",
            )  # fmt: skip
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in _ENCODINGS:
            raise BadUrl(
                "store", self.shown, f"its encoding {encoding} does not hold every character",
                "use a database that was made with ENCODING 'UTF8' TEMPLATE template0",
            )  # fmt: skip
        if not self._is_asked:
            # A pooler tells a number of its own, and may lend the session that listens to others.
            [(session,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
            self.notifies, self._is_asked = session == connection.info.backend_pid, True
        connection.adapters.register_dumper(list, self._list_writer)
        connection.adapters.register_dumper(bytes, self._bytes_writer)
        # The last one is the one of parameters, which are sent as they are.
        connection.adapters.register_dumper(bytes, self._psycopg.types.string.BytesBinaryDumper)
        connection.cursor_factory = self._cursor

    def _cursor(self, connection: Any, *, row_factory: Any = None) -> Any:
        """A cursor to which the server sends rows as they are, and not as text to be read again."""
        cursor = self._psycopg.Cursor(connection, row_factory=row_factory)
        cursor.format = self._psycopg.pq.Format.BINARY
        return cursor


class PostgresListener(Listener):
    """A connection that listens; one thread receives, any may wake it."""

    def __init__(self, backend: Postgres, connection: Any) -> None:
        self._backend = backend
        self._connection = connection
        self._failures: tuple[type[Exception], ...] = (*backend.failures, OSError)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._poller = new_poller(connection.fileno(), self._reader)

    def receive(self, timeout_s: float) -> list[str]:
        """Returns the notifications that have come; waits for the first at most so long."""
        try:
            ready = self._poller.poll(min(timeout_s, CHECK_EVERY_S) * 1000)
            if not ready:
                # A server that has vanished says nothing: ask it.
                self._connection.execute("SELECT 1")
            with suppress(BlockingIOError):
                os.read(self._reader, 4096)
            return [one.payload for one in self._connection.notifies(timeout=0)]
        except self._failures as error:
            raise StoreUnavailable(self._backend.shown, text_of(error)) from error

    def wake(self) -> None:
        """Ends a `receive` now."""
        with suppress(OSError):
            os.write(self._writer, b"!")

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
        os.close(self._reader)
        os.close(self._writer)


def _is_open(connection: Connection) -> bool:
    """After an error that was swallowed the server makes a rollback of COMMIT, and says nothing.

    Where the driver cannot tell, as asyncpg cannot, the server is asked: it refuses every statement
    then.

    Raises:
        DBAPIError: if the connection is lost.
    """
    driver: Any = connection.connection.dbapi_connection
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    if status is not None:
        return int(status) == _INTRANS
    try:
        connection.exec_driver_sql("SELECT 1")
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return True


def _database_of(driver: Any) -> str | None:
    name: str | None = getattr(getattr(driver, "info", None), "dbname", None)
    return name


def _checks_server(options: Options) -> bool:
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE", "")
    return mode in ("verify-full", "verify-ca")


POSTGRESQL: Final = Dialect(
    name="postgresql",
    title="PostgreSQL",
    backend=Postgres,
    now_ms=_NOW_MS,
    insert=postgresql.insert,
    mark_lock=MarkLock.ADVISORY,
    settings="SELECT name, setting FROM pg_settings",
    has_partial_indexes=True,
    # With E the server's standard_conforming_strings changes nothing of it.
    bytes_literal=r"E'\\x{}'",
    types=Types(exact=lambda _: postgresql.TEXT(collation="C")),
    codes=Codes(
        conflicts=(_SERIALIZATION, _DEADLOCK, _LOCKED),
        away=("57P01", "57P02", "57P03", _TOO_MANY),
    ),
    notify=lambda channel: select(func.pg_notify(channel, "")),
    listening_driver="psycopg",
    is_open=_is_open,
    database_of=_database_of,
    checks_server=_checks_server,
    tls_remedy=f"write sslmode=verify-full, and name {AUTHORITY} ({OF_POSTGRES.trusted}=…)",
    rights="SELECT name FROM unnest(ARRAY[{tables}]) AS name"
    " WHERE to_regclass(name) IS NOT NULL AND NOT ("
    "has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT') AND"
    " has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE'))",
    schemas="SELECT nspname, pg_table_is_visible(pg_class.oid)"
    " FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE relname = '{table}' AND relkind IN ('r', 'p') ORDER BY nspname",
)


@lru_cache(maxsize=256)
def _copied(text: str) -> str | None:
    """The COPY for an INSERT of plain parameters; None for any other statement."""
    match = _INSERT.fullmatch(text)
    if match is None or match[3].count("%s") != match[2].count(",") + 1:
        return None
    return f"COPY {match[1]} ({match[2]}) FROM STDIN"


def _threshold(shown: str, text: str) -> dict[str, int | None]:
    """After how many uses a statement is prepared; 0 for never, as pgbouncer may need it."""
    if not text:
        return {}
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadUrl("store", shown, f"prepare_threshold={text} is not a number",
                     "use ?prepare_threshold=0 to prepare nothing")  # fmt: skip
    return {"prepare_threshold": int(text) or None}
