"""MariaDB 10.6 or newer, and MySQL 8, through PyMySQL."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect as EngineDialect
from sqlalchemy.engine.url import URL
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import asbool

from qframe.drivers.dialect import Codes, Dialect, MarkLock, Options, Tables, Types
from qframe.drivers.sql_backend import (
    CROWDED,
    CUT_SHORT,
    HELD_UP,
    NO_LOGIN,
    NO_RIGHT,
    PREFIX,
    READ_ONLY,
    Backend,
    driver,
    shown_of,
    text_of,
    yes_or_no,
)
from qframe.drivers.tls import AUTHORITY, FILES, OF_MARIADB, TlsFault, fault_of
from qframe.errors import BadUrl, SchemaMismatch, StoreForbidden, StoreFull, StoreUnavailable

OLDEST_MARIADB: Final = (10, 6)
OLDEST_MYSQL: Final = (8, 0)
LOCK_WAIT_S: Final = 30
CONNECT_S: Final = 10
ROOM: Final = 4096  # for what a statement holds beside a body
SORTED_BYTES: Final = 2048  # of a key's 512 characters
# A firewall that forgets who was silent for a minute hears something earlier.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_SWITCHES: Final = ("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
# Not UNIX_TIMESTAMP, which takes a local time and so counts one hour of the year twice.
_NOW_MS: Final = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
_REMEDY: Final = "use mysql+pymysql://user:password@host:3306/name"
# MySQL takes names of 64 characters, and a database's name may have as many.
_SCHEMA_LOCK: Final = "LEFT(CONCAT('qframe_migrate', DATABASE()), 64)"
# Whatever the server, its database or `init_connect` have set: the clock is the same in summer and
# winter, no text is cut, no backslash is misread, no statement is refused for what it might touch,
# statements are committed by themselves and a commit begins nothing, every row of an answer comes,
# names are unique, and keys are sorted by all their characters. The driver sets character sets.
_SETTINGS: Final[dict[str, int | str]] = {
    "autocommit": 1,
    "time_zone": "+00:00",
    "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
    "tx_isolation": "READ-COMMITTED",
    "innodb_lock_wait_timeout": LOCK_WAIT_S,
    "sql_select_limit": 18446744073709551615,
    "sql_safe_updates": 0,
    "sql_big_selects": 1,
    "completion_type": "NO_CHAIN",
    "unique_checks": 1,
    "max_sort_length": SORTED_BYTES,
}
# A worker that is stopped in the middle of a transaction must not keep others from its slots.
_OF_MARIADB: Final[dict[str, int | str]] = {"idle_transaction_timeout": 30}
_OF_MYSQL: Final[dict[str, str]] = {"tx_isolation": "transaction_isolation"}  # its names
_CHARACTER_SETS: Final[dict[str, int | str]] = {
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_results": "utf8mb4",
}
# The last one: a table was changed while a snapshot was open, by who migrates.
_CONFLICTS: Final = (1213, 1020, 1062, 1412)
_READ_ONLY: Final = (1290, 1792, 1836)
_MALFORMED: Final = 2027
# A reply that is cut, or belongs to something else, meets them anywhere in the driver.
_UNREADABLE: Final = (
    struct.error, LookupError, ValueError, AttributeError, TypeError, AssertionError
)  # fmt: skip
_LOST: Final = (0, 1053, 1152, 1158, 1159, 1160, 1161, *_READ_ONLY, 1927, 2003, 2006, 2013,
                2014, _MALFORMED, 2055, 4031)  # fmt: skip
_TOO_MANY: Final = (1040, 1203, 1226)
_LOCKED: Final = 1205
_CANCELED: Final = (1317, 1969, 3024)  # also by a limit of time: MariaDB's, MySQL's
_NO_ROOM: Final = (3, 1021, 1114)
_NO_TABLE: Final = 1146
# "Got error 28 from storage engine": the number is the system's.
_ENGINE: Final = 1030
_NO_SPACE: Final = "error 28 "
_DENIED: Final = 1045
_CERTIFICATE: Final = f"a certificate ({OF_MARIADB.certificate}=…, {OF_MARIADB.key}=…)"
# From 1820 on: passwords that have expired, and accounts that are locked, of MySQL and of MariaDB.
_REFUSED: Final = (1044, _DENIED, 1049, 1251, 1698, 1820, 1862, 3118, 4151)
_FORBIDDEN: Final = (1142, 1143)


class MariaDb(Backend):
    """A server; options of the URL are PyMySQL's (`ssl_ca` …), and `migrate=no`."""

    tls = OF_MARIADB

    def __init__(self, url: URL) -> None:
        shown = shown_of(url)
        if url.drivername not in ("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"):
            raise BadUrl(
                "store", shown, f"qframe does not use the driver {url.drivername}", _REMEDY
            )
        if not url.database:
            raise BadUrl("store", shown, "it names no database", _REMEDY)
        self._pymysql: Any = driver("pymysql", "mysql", shown)
        self._connection = _connection_of(self._pymysql)
        options = {name: str(value) for name, value in url.query.items()}
        may_migrate = yes_or_no(shown, "migrate", options.pop("migrate", ""), True)
        dialect = _dialect(MYSQL.name, self._pymysql)
        try:
            # PyMySQL takes the text "false" for true.
            switches: dict[str, bool] = {
                name: asbool(options.pop(name)) for name in _SWITCHES if name in options
            }  # fmt: skip
            _, wanted = dialect.create_connect_args(url.set(query=options))
        except ValueError as error:
            raise BadUrl("store", shown, f"an option is wrong ({error})",
                         "see docs/configuration.md") from error  # fmt: skip
        wanted["ssl_disabled"] = switches.get("ssl_disabled", False)
        password = wanted.pop(OF_MARIADB.password, None)
        self._tls = wanted["ssl"] = _tls(shown, wanted.get("ssl", {}), switches)
        if password is not None:
            self._tls["password"] = password
        if fault := self._fault_of_files():
            raise BadUrl("store", shown, fault.why, fault.remedy)
        self._options = {
            "connect_timeout": CONNECT_S, "read_timeout": CONNECT_S, "write_timeout": 60, **wanted,
            "charset": "utf8mb4",
        }  # fmt: skip
        pool = QueuePool(self._connected, pool_size=8, max_overflow=64, reset_on_return=None)
        super().__init__(shown, dialect, pool, (self._pymysql.MySQLError,))
        self.may_migrate = may_migrate
        self._longest = 0
        self._is_asked = False
        self._read_timeout_s: int | None = wanted.get("read_timeout")

    def begin(self, cursor: Any, *, writes: bool) -> None:
        """Begins a transaction."""
        if writes:
            cursor.execute("START TRANSACTION")
            return
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def now_ms(self, cursor: Any) -> int:
        """The server's clock at this moment."""
        cursor.execute(f"SELECT {_NOW_MS}")
        return int(cursor.fetchone()[0])

    def has_table(self, cursor: Any, name: str) -> bool:
        """Whether there is a table of that name."""
        cursor.execute(
            "SELECT 1 FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_name = %s", (name,),
        )  # fmt: skip
        return bool(cursor.fetchall())

    def has_index(self, cursor: Any, table: str, name: str) -> bool:
        """Whether a table has an index of that name."""
        cursor.execute(
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE()"
            " AND table_name = %s AND index_name = %s", (table, name),
        )  # fmt: skip
        return bool(cursor.fetchall())

    def limit_silence(self, cursor: Any, longest_s: float | None) -> None:
        """How long the server may be silent from now on, unless the URL says it."""
        cursor.connection._read_timeout = self._read_timeout_s or longest_s  # noqa: SLF001 - it has no public name

    def lock_schema(self, cursor: Any) -> None:
        """Waits until no other session holds the lock."""
        cursor.execute(f"SELECT GET_LOCK({_SCHEMA_LOCK}, {LOCK_WAIT_S})")
        if cursor.fetchone()[0] != 1:
            text = "another process is changing the tables"
            raise self._pymysql.err.OperationalError(_LOCKED, text)

    def unlock_schema(self, cursor: Any) -> None:
        """Lets the lock go, which outlives the transaction."""
        with suppress(*self.failures):
            cursor.execute(f"SELECT RELEASE_LOCK({_SCHEMA_LOCK})")
            cursor.fetchall()

    def run_many(self, cursor: Any, text: str, parameters: Sequence[tuple[Any, ...]]) -> int:
        """Runs a change for each tuple, in statements that the server's packets can hold."""
        cursor.max_stmt_length = min(cursor.max_stmt_length, self._longest - ROOM)
        return super().run_many(cursor, text, parameters)

    def is_conflict(self, error: Exception) -> bool:
        """Deadlocks, and two who add the same."""
        return _code(error) in _CONFLICTS

    def is_gone(self, error: Exception) -> bool:
        """Whether the connection is lost, or leads to a server that may not be written."""
        return _code(error) in _LOST

    def refusal(self, error: Exception) -> Exception | None:
        """Disks that are full, users, databases and tables that are not there, our own mistakes."""
        code, text = _code(error), text_of(error)
        if code == _NO_TABLE and PREFIX in text:
            return SchemaMismatch(self.shown, 0)
        if code in _NO_ROOM or (code == _ENGINE and _NO_SPACE in text):
            return StoreFull(self.shown, text)
        if code in _READ_ONLY:
            return StoreUnavailable(self.shown, text, **READ_ONLY)
        if code in _TOO_MANY:
            return StoreUnavailable(self.shown, text, **CROWDED)
        if code in _CANCELED:
            return StoreUnavailable(self.shown, text, **CUT_SHORT)
        if code == _LOCKED:
            return StoreUnavailable(self.shown, text, **HELD_UP)
        if code in (*_REFUSED, *_FORBIDDEN):
            remedy = NO_RIGHT if code in _FORBIDDEN else NO_LOGIN
            if code == _DENIED and "cert" not in self._tls:
                remedy += f"; a user of whom TLS is required needs it, and maybe {_CERTIFICATE}"
            return StoreForbidden(self.shown, text, remedy=remedy)
        if isinstance(error, (self._pymysql.OperationalError, self._pymysql.InterfaceError)):
            return None
        return error if isinstance(error, self._pymysql.MySQLError) else None

    def limit_of(self, body: bytes) -> str | None:
        """The server's limit of a packet, if a body as it is written in a statement is above it."""
        if not self._longest or len(body) * 2 + ROOM < self._longest:
            return None
        is_above = len(self._pymysql.converters.escape_bytes(body)) > self._longest - ROOM
        return f"the server's max_allowed_packet is {self._longest}" if is_above else None

    def _connected(self) -> Any:
        try:
            connection = self._connection(autocommit=True, **self._options)
        except TypeError as error:
            raise BadUrl("store", self.shown, f"an option is unknown ({error})",
                         "see docs/configuration.md") from error  # fmt: skip
        except OSError as error:  # of a file: it was there before, and may be just being replaced
            fault = self._fault_of_files() or TlsFault(text_of(error), FILES)
            raise StoreUnavailable(self.shown, fault.why, remedy=fault.remedy) from error
        with suppress(OSError):  # what is no connection by TCP has no such options
            for name, value in _KEEPALIVE:
                option = getattr(socket, name, None)
                if option is not None:
                    connection._sock.setsockopt(socket.IPPROTO_TCP, option, value)  # noqa: SLF001
        cursor = connection.cursor()
        cursor.execute("SELECT VERSION(), @@max_allowed_packet")
        [(version, self._longest)] = cursor.fetchall()
        is_mariadb = "mariadb" in version.lower()
        self._check(version, is_mariadb)
        if is_mariadb and self.dialect.name != MARIADB.name:
            self.dialect: EngineDialect = _dialect(MARIADB.name, self._pymysql)
        settings = _settings(is_mariadb)
        words = ", ".join(f"{name} = {value!r}" for name, value in settings.items())
        cursor.execute(f"SET SESSION {words}")
        if not self._is_asked:
            self._check_settings(cursor, settings | _CHARACTER_SETS)
            self._is_asked = True
        cursor.close()
        return connection

    def _fault_of_files(self) -> TlsFault | None:
        return fault_of(*map(self._tls.get, ("ca", "cert", "key", "password")))

    def _check_settings(self, cursor: Any, wanted: dict[str, int | str]) -> None:
        """Refuses a proxy that does not pass on what a session sets."""
        cursor.execute("SELECT " + ", ".join(f"@@SESSION.{name}" for name in wanted))
        [found] = cursor.fetchall()
        ignored = [
            f"{name} is {value}" for name, value in zip(wanted, found, strict=True)
            if str(value) != str(wanted[name])
        ]  # fmt: skip
        if ignored:
            raise BadUrl(
                "store", self.shown, f"its sessions are not set as qframe asks ({ignored[0]})",
                "name the server itself, or let its proxy keep what a session sets",
            )  # fmt: skip

    def _check(self, version: str, is_mariadb: bool) -> None:
        numbers = re.findall(r"\d+", version)
        found = (int(numbers[0]), int(numbers[1]))
        if found < (OLDEST_MARIADB if is_mariadb else OLDEST_MYSQL):
            raise BadUrl("store", self.shown, f"it is version {version}",
                         "use MariaDB 10.6, MySQL 8, or newer")  # fmt: skip


def _settings(is_mariadb: bool) -> dict[str, int | str]:
    """What a session sets, by the names of its server."""
    if is_mariadb:
        return _SETTINGS | _OF_MARIADB
    return {_OF_MYSQL.get(name, name): value for name, value in _SETTINGS.items()}


def _tls(shown: str, tls: object, switches: dict[str, bool]) -> dict[str, Any]:
    """PyMySQL's `ssl`: files, and what is checked; by itself it would forget one for the other."""
    if not isinstance(tls, dict):
        raise BadUrl("store", shown, "ssl is not an option", "use ssl_ca=/etc/ca.pem")
    checked = switches.get("ssl_verify_cert")
    named = switches.get("ssl_verify_identity")
    if checked is not None or named:
        tls["verify_mode"] = bool(checked or named)
    if named is not None or checked is False:
        tls["check_hostname"] = bool(named)
    return tls


def _connection_of(pymysql: Any) -> Any:
    """The class of connections that say so, and are closed, where a reply cannot be read."""
    internal, lost = pymysql.err.InternalError, pymysql.err.OperationalError
    unreadable = (*_UNREADABLE, internal)

    class MariaDbConnection(pymysql.connections.Connection):  # type: ignore[misc, name-defined, unused-ignore]
        """A connection whose errors of reading are `OperationalError`, number 2027, as MySQL's."""

        def connect(self, *args: Any) -> None:
            try:
                super().connect(*args)
            except unreadable as error:
                self._end_by(error)

        def _read_query_result(self, *args: Any, **options: Any) -> Any:
            try:
                return super()._read_query_result(*args, **options)
            except unreadable as error:
                self._end_by(error)

        def _read_ok_packet(self) -> Any:
            try:
                return super()._read_ok_packet()
            except unreadable as error:
                self._end_by(error)

        def _end_by(self, error: Exception) -> NoReturn:
            if isinstance(error, internal) and isinstance(_code(error), int):
                raise error  # the server's own
            self._force_close()
            raise lost(_MALFORMED, f"a reply cannot be read: {text_of(error)}") from error

    return MariaDbConnection


def _dialect(name: str, pymysql: Any) -> EngineDialect:
    made: Any = URL.create(f"{name}+pymysql").get_dialect()
    dialect: EngineDialect = made(paramstyle="format", dbapi=pymysql)
    return dialect


def _code(error: Exception) -> object:
    """The number that a server or the driver gave an error; something else if it has none."""
    return error.args[0] if error.args else None


def _exact(collation: str) -> Any:
    return lambda length: mysql.VARCHAR(length, collation=collation)


def _users_exact(length: int) -> mysql.VARCHAR:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")


def _database_of(driver: Any) -> str | None:
    name = getattr(driver, "db", None)
    return name.decode() if isinstance(name, bytes) else name


def _checks_server(options: Options) -> bool:
    by_default = "true" if "ssl_ca" in options else options.get("ssl_verify_identity", "")
    is_checked = asbool(options.get("ssl_verify_cert") or by_default or "false")
    return is_checked and not asbool(options.get("ssl_disabled") or "false")


_TYPES: Final = Types(
    exact=_exact("utf8mb4_nopad_bin"),
    text=mysql.LONGTEXT(),
    blob=mysql.LONGBLOB(),
    users_exact=_users_exact,
    users_text=mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"),
)
MARIADB: Final = Dialect(
    name="mariadb",
    title="MariaDB",
    backend=MariaDb,
    now_ms=_NOW_MS,
    insert=mysql.insert,
    mark_lock=MarkLock.STATEMENT,
    settings="SHOW VARIABLES",
    has_on_conflict=False,
    sends_texts_as_bytes=True,
    needs_precision=True,
    types=_TYPES,
    # Rows that are written in one transaction and seen in another need this engine, and any text.
    # Other formats of rows, which a server may have as its default, cannot have a key in an index.
    tables=Tables(store={"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}),
    # Deadlock, lock wait timeout, record changed since it was read, nowait.
    codes=Codes(
        conflicts=(1213, _LOCKED, 1020, 3572),
        undone=(_LOCKED, 1213),
        locked=(_LOCKED, 3572),
        forbidden=_FORBIDDEN,
    ),
    database_of=_database_of,
    checks_server=_checks_server,
    tls_remedy=f"name {AUTHORITY} ({OF_MARIADB.trusted}=…)",
)
# What MySQL calls otherwise, or lacks.
MYSQL: Final = MARIADB._replace(
    name="mysql",
    title="MySQL",
    mark_lock=MarkLock.SESSION,
    types=_TYPES._replace(exact=_exact("utf8mb4_0900_bin")),
)
