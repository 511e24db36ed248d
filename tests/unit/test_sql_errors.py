"""Errors of databases: which are repeated, which end a connection, and what the others mean."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import psycopg
import pytest
from sqlalchemy import make_url

from qframe.clock import VirtualClock
from qframe.drivers import sql_mariadb, sql_postgres, sql_silence, sql_sqlite
from qframe.drivers.sql_backend import Backend, shown_of, yes_or_no
from qframe.drivers.sql_mariadb import MariaDb
from qframe.drivers.sql_postgres import CHECK_EVERY_S, Postgres
from qframe.drivers.sql_silence import connection_of
from qframe.drivers.sql_sqlite import Sqlite
from qframe.errors import (
    AnswerLost,
    BadUrl,
    SchemaMismatch,
    StoreForbidden,
    StoreFull,
    StoreUnavailable,
)

POSTGRES = Postgres(make_url("postgresql://qframe@nowhere/qframe"))
MARIADB = MariaDb(make_url("mysql://qframe@nowhere/qframe"))
LOST = (1053, 1152, 1158, 1159, 1160, 1161, 1927, 2003, 2006, 2013, 2014, 2027, 2055, 4031)
PYMYSQL: Any = MARIADB._pymysql  # which has no types


def of_postgres(state: str, text: str = "x") -> Exception:
    error: Exception = psycopg.errors.lookup(state)(text)
    return error


def of_mariadb(code: int, text: str = "x") -> Exception:
    kind: Any = PYMYSQL.err.error_map.get(code) or PYMYSQL.err.OperationalError
    error: Exception = kind(code, text)
    return error


class Meaning(NamedTuple):
    """What becomes of an error: whether it is repeated at once, or anew, and what is raised."""

    conflict: bool
    gone: bool
    kind: type[Exception]
    words: str = ""


AGAIN = Meaning(True, False, StoreUnavailable)
GONE = Meaning(False, True, StoreUnavailable, "cannot be reached")


def lasting(kind: type[Exception], words: str = "") -> Meaning:
    return Meaning(False, False, kind, words)


def check(backend: Backend, error: Exception, meaning: Meaning) -> None:
    told = backend.translated(error, unknown=False)
    found = (backend.is_conflict(error), backend.is_gone(error), type(told))
    assert found == meaning[:3]
    assert meaning.words in str(told)
    assert type(backend.translated(error, unknown=True)) is AnswerLost


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        *[(of_postgres(state), AGAIN) for state in ("40001", "40P01")],
        (of_postgres("23505"), Meaning(True, False, psycopg.errors.UniqueViolation)),
        *[
            (of_postgres(state), GONE)
            for state in ("08006", "08001", "57P01", "57P02", "57P03", "57P05", "25P03")
        ],
        (psycopg.OperationalError("the connection is lost"), GONE),
        (psycopg.InterfaceError("the connection is closed"), GONE),
        (psycopg.DatabaseError("lost synchronization with server"), GONE),
        (psycopg.InternalError("unexpected result status from query"), GONE),
        (of_postgres("25006"), Meaning(False, True, StoreUnavailable, "refuses writes")),
        (of_postgres("42P01", 'relation "qframe_log"'), lasting(SchemaMismatch)),
        (of_postgres("42P01", 'relation "orders"'), lasting(psycopg.errors.UndefinedTable)),
        (of_postgres("53300"), lasting(StoreUnavailable, "max_connections")),
        (
            psycopg.OperationalError("FATAL: sorry, too many clients already"),
            Meaning(False, True, StoreUnavailable, "max_connections"),
        ),
        (of_postgres("25P04"), Meaning(False, True, StoreUnavailable, "ends statements before")),
        (of_postgres("57014"), lasting(StoreUnavailable, "ends statements before")),
        (of_postgres("55P03"), lasting(StoreUnavailable, "is held up")),
        (of_postgres("53100"), lasting(StoreFull)),
        (of_postgres("42501"), lasting(StoreForbidden, "grant its user")),
        (of_postgres("3F000"), lasting(StoreForbidden, "check user")),
        (
            psycopg.OperationalError('FATAL: role "x" does not exist'),
            Meaning(False, True, StoreForbidden, "check user"),
        ),
        (
            psycopg.OperationalError('no pg_hba.conf entry for host "h", no encryption'),
            Meaning(False, True, StoreForbidden, "use TLS"),
        ),
        (
            psycopg.OperationalError('root certificate file "x" does not exist'),
            Meaning(False, True, StoreUnavailable, "cannot be reached by TLS"),
        ),
        (
            psycopg.ProgrammingError('invalid connection option "x"'),
            lasting(BadUrl, "an option is wrong"),
        ),
        (psycopg.DataError("cannot contain NUL (0x00) bytes"), lasting(BadUrl, "NUL character")),
        (
            psycopg.errors.InvalidSqlStatementName('prepared statement "_pg3_0" does not exist'),
            lasting(BadUrl, "prepare_threshold=0"),
        ),
        (
            psycopg.OperationalError("FATAL: unsupported startup parameter: options"),
            Meaning(False, True, BadUrl, "ignore_startup_parameters"),
        ),
        (
            psycopg.ProgrammingError("transaction blocks not allowed in statement pooling mode"),
            lasting(BadUrl, "pool_mode = transaction"),
        ),
        (of_postgres("22003"), lasting(psycopg.errors.NumericValueOutOfRange)),
        (of_postgres("53200"), lasting(StoreUnavailable)),
        (of_postgres("42601", "bad value for x"), lasting(psycopg.errors.SyntaxError)),
    ],
)  # fmt: skip
def test_an_error_of_postgresql_has_one_meaning(error: Exception, meaning: Meaning) -> None:
    check(POSTGRES, error, meaning)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        *[(of_mariadb(code), AGAIN) for code in (1213, 1020, 1412)],
        (
            of_mariadb(1062),
            Meaning(True, False, PYMYSQL.err.IntegrityError),
        ),
        *[
            (of_mariadb(code), GONE)
            for code in LOST
        ],
        (PYMYSQL.err.InterfaceError(0, ""), GONE),
        *[
            (of_mariadb(code), Meaning(False, True, StoreUnavailable, "refuses writes"))
            for code in (1290, 1792, 1836)
        ],
        *[
            (of_mariadb(code), lasting(StoreUnavailable, "max_connections"))
            for code in (1040, 1203, 1226)
        ],
        (of_mariadb(1205), lasting(StoreUnavailable, "is held up")),
        *[
            (of_mariadb(code), lasting(StoreUnavailable, "ends statements before"))
            for code in (1317, 1969, 3024)
        ],
        *[(of_mariadb(code), lasting(StoreFull)) for code in (3, 1021, 1114)],
        (of_mariadb(1030, "Got error 28 from storage engine"), lasting(StoreFull)),
        (of_mariadb(1030, "Got error 281 from storage engine"), lasting(StoreUnavailable)),
        (
            of_mariadb(1146, "Table 'd.qframe_log'"),
            lasting(SchemaMismatch),
        ),
        (
            of_mariadb(1146, "Table 'd.orders'"),
            lasting(PYMYSQL.err.ProgrammingError),
        ),
        *[
            (of_mariadb(code), lasting(StoreForbidden, "check user"))
            for code in (1044, 1045, 1049, 1251, 1698, 1820, 1862, 3118, 4151)
        ],
        (of_mariadb(1045), lasting(StoreForbidden, "needs it, and maybe a certificate")),
        *[(of_mariadb(code), lasting(StoreForbidden, "grant its user")) for code in (1142, 1143)],
        (of_mariadb(1366), lasting(PYMYSQL.err.DataError)),
        (PYMYSQL.err.OperationalError("without a number"), lasting(StoreUnavailable)),
    ],
)  # fmt: skip
def test_an_error_of_mariadb_has_one_meaning(error: Exception, meaning: Meaning) -> None:
    check(MARIADB, error, meaning)


def packets(*bodies: bytes, first: int = 1) -> bytes:
    """What a server of MariaDB sends, the numbers of its packets in order."""
    return b"".join(
        len(body).to_bytes(3, "little") + bytes([number]) + body
        for number, body in enumerate(bodies, start=first)
    )


COLUMN = b"\3def\0\0\0\1n\1n\x0c\x21\0\4\0\0\0\xfd\0\0\0\0\0"
END = b"\xfe\0\0\2\0"
UNREADABLE = {
    "of another request": packets(b"\0\0\0\2\0\0\0", first=5),
    "an empty packet": packets(b""),
    "a cut number": packets(b"\0\xfe\1"),
    "a cut column": packets(b"\1", COLUMN[:6]),
    "a column of another length": packets(b"\1", COLUMN[:4] + b"\x70" + COLUMN[5:]),
    "no end of columns": packets(b"\1", COLUMN, b"\0\0\0\2\0\0\0"),
    "no text": packets(b"\1", COLUMN, END, b"\1\xff", END),
}


@pytest.mark.parametrize("of", ["a query", "a rollback", "a login"])
@pytest.mark.parametrize("what", UNREADABLE)
def test_a_reply_of_mariadb_that_cannot_be_read_ends_the_connection(of: str, what: str) -> None:
    near, far = socket.socketpair()
    connection = MARIADB._connection(defer_connect=True, charset="utf8mb4")
    first = {"a login": b"\x0a8.0\0" + b"\1" * 40}.get(of)
    with near, far:
        far.sendall((packets(first, first=0) if first else b"") + UNREADABLE[what])
        far.shutdown(socket.SHUT_WR)
        connection._sock, connection._rfile = near, near.makefile("rb")
        connection._next_seq_id = 1
        reads = {
            "a query": connection._read_query_result, "a rollback": connection._read_ok_packet,
            "a login": lambda: connection.connect(near),
        }  # fmt: skip
        with pytest.raises(PYMYSQL.err.OperationalError) as raised:
            reads[of]()
        assert not connection.open
    assert MARIADB.is_gone(raised.value)
    told = MARIADB.translated(raised.value, unknown=False)
    assert type(told) is StoreUnavailable


def test_who_shows_mariadb_a_certificate_is_not_told_to_show_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "certificate" not in str(MARIADB.translated(of_mariadb(1044), unknown=False))
    monkeypatch.setitem(MARIADB._tls, "cert", "client.pem")
    assert "certificate" not in str(MARIADB.translated(of_mariadb(1045), unknown=False))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("no such table: qframe_log", SchemaMismatch, ""),
        ("no such table: orders", StoreUnavailable, ""),
        ("database is locked", StoreUnavailable, "is held by another transaction"),
        ("attempt to write a readonly database", StoreUnavailable, "refuses writes"),
        ("disk I/O error", StoreUnavailable, "cannot be read or written"),
        ("unable to open database file", BadUrl, "the file cannot be opened"),
        ("database disk image is malformed", BadUrl, "restore a backup"),
    ],
)
def test_an_error_of_sqlite_has_one_meaning(
    tmp_path: Path, text: str, kind: type[Exception], words: str
) -> None:
    backend = Sqlite(make_url(f"sqlite:///{tmp_path}/q.db"))
    check(backend, sqlite3.OperationalError(text), Meaning(False, False, kind, words))


def test_what_a_disk_without_room_did_not_take_is_known_to_be_undone(tmp_path: Path) -> None:
    backend = Sqlite(make_url(f"sqlite:///{tmp_path}/q.db"))
    for unknown in (False, True):
        told = backend.translated(
            sqlite3.OperationalError("database or disk is full"), unknown=unknown
        )
        assert type(told) is StoreFull
    not_a_file = sqlite3.DatabaseError("file is not a database")
    assert "the file is not a database" in str(backend.translated(not_a_file, unknown=False))
    mistake = sqlite3.IntegrityError("UNIQUE constraint failed")
    assert backend.translated(mistake, unknown=False) is mistake


def test_a_file_that_cannot_be_opened_for_want_of_descriptors_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_sqlite, "lack_of_files", lambda _: "no file can be opened")
    error = sqlite3.OperationalError("unable to open database file")
    told = Sqlite(make_url(f"sqlite:///{tmp_path}/q.db")).translated(error, unknown=False)
    assert type(told) is StoreUnavailable
    assert "no file can be opened" in str(told)


def test_all_that_write_to_a_file_have_one_lock_also_in_a_child(tmp_path: Path) -> None:
    one, other = (Sqlite(make_url(f"sqlite:///{tmp_path}/q.db")) for _ in range(2))
    parents = one.writing()
    assert other.writing() is parents
    one.begin_anew()
    other.begin_anew()
    assert one.writing() is other.writing()
    assert one.writing() is not parents
    assert Sqlite(make_url(f"sqlite:///{tmp_path}/q.db")).writing() is one.writing()


def test_a_file_whose_commit_left_nothing_open_may_have_taken_it(tmp_path: Path) -> None:
    backend = Sqlite(make_url(f"sqlite:///{tmp_path}/q.db"))
    for inner, known in (
        (None, False), (SimpleNamespace(in_transaction=False), False),
        (SimpleNamespace(in_transaction=True), True),
    ):  # fmt: skip
        assert backend.undo(MagicMock(dbapi_connection=inner)) is known


def test_a_watch_of_a_file_sees_commits_and_keeps_one_connection_to_the_file_that_is_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.db"
    backend = Sqlite(make_url(f"sqlite:///{path}"))
    watch = backend.watch()
    pool: Any = backend.pool
    first = watch.version()
    assert watch.version() == first
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE t (a)")
    assert watch.version()[1] > first[1]
    with closing(sqlite3.connect(tmp_path / "new.db")) as other, other:
        other.execute("CREATE TABLE u (a)")
    (tmp_path / "new.db").replace(path)
    assert watch.version()[0] == first[0] + 1
    assert pool.checkedout() == 1
    watch._before_fork()
    assert pool.checkedout() == 0
    assert watch.version()[0] == first[0] + 2
    watch.release()
    assert pool.checkedout() == 0
    assert watch.version() == (0, 0)
    watch.release()
    pool.dispose()
    path.unlink()
    assert sql_sqlite._file_at(str(path)) is None  # so no connection to it is used again


@pytest.mark.parametrize(
    ("options", "synchronous", "journal"),
    [("", 2, "wal"), ("?synchronous=normal", 1, "wal"), ("?migrate=no", 2, "delete")],
)
def test_a_file_is_opened_with_its_settings(
    tmp_path: Path, options: str, synchronous: int, journal: str
) -> None:
    backend = Sqlite(make_url(f"sqlite:///{tmp_path}/q.db{options}"))
    connection = backend.pool.connect()
    names = ("busy_timeout", "synchronous", "journal_mode", "cache_size", "wal_autocheckpoint")
    found = [connection.cursor().execute(f"PRAGMA {name}").fetchone() for name in names]  # type: ignore[func-returns-value]
    assert [one[0] for one in found] == [30_000, synchronous, journal, -32_768, 4000]
    connection.close()
    backend.pool.dispose()


def test_an_option_that_is_yes_or_no_is_nothing_else() -> None:
    found = [yes_or_no("x", "migrate", value, True) for value in ("", "yes", "NO")]
    assert found == [True, True, False]
    assert yes_or_no("x", "migrate", "", False) is False
    with pytest.raises(BadUrl, match="migrate=true is not an option"):
        yes_or_no("x", "migrate", "true", True)


def test_mariadb_is_asked_for_tls_unless_the_url_says_no() -> None:
    for options, disabled in (("", False), ("?ssl_disabled=true", True)):
        backend = MariaDb(make_url(f"mysql://u@h/d{options}"))
        assert backend._options["ssl_disabled"] is disabled


def test_a_url_is_shown_without_its_password_and_its_options() -> None:
    url = make_url("postgresql://u:secret@h:5432/d?sslpassword=secret")
    assert shown_of(url) == "postgresql://u:***@h:5432/d"


# Servers that say nothing.


class Waiting:
    """In place of psycopg's connection: its waits are answered as a test says."""

    readiness: list[int]
    is_closed = False

    def wait(self, steps: Any) -> Any:
        try:
            steps.send(None)
            while True:
                steps.send(self.readiness.pop(0))
        except StopIteration as end:
            return end.value

    def close(self) -> None:
        self.is_closed = True


def asked(replies: int) -> Any:
    """psycopg's steps until so many replies have come."""
    while replies:
        replies -= bool((yield "readable"))
    return "done"


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A connection that may be silent for 3 s, each of whose waits takes one."""
    clock = VirtualClock()
    monkeypatch.setattr(sql_silence, "SYSTEM_CLOCK", clock)
    module = SimpleNamespace(
        Connection=Waiting, Error=psycopg.Error, OperationalError=psycopg.OperationalError
    )
    made = connection_of(module, 3.0)()

    def passes(readiness: list[int]) -> None:
        class Ticking(list[int]):
            def pop(self, _: Any = -1) -> int:
                clock.advance(1000)
                return super().pop(0)

        made.readiness = Ticking(readiness)

    made.passes = passes
    return made


def test_a_server_that_is_silent_for_longer_than_it_may_be_is_given_up(waiting: Any) -> None:
    waiting.passes([0] * 9)
    with pytest.raises(psycopg.OperationalError, match="no reply within 3 s"):
        waiting.wait(asked(1))
    assert waiting.is_closed
    assert len(waiting.readiness) == 4  # after the first wait, and more than 3 s


def test_each_reply_begins_the_silence_anew(waiting: Any) -> None:
    waiting.passes([0, 0, 0, 1] * 3)
    assert waiting.wait(asked(3)) == "done"
    assert not waiting.is_closed


def test_a_server_that_may_take_its_time_is_waited_for(waiting: Any) -> None:
    waiting.silent_s = None
    waiting.passes([0] * 100 + [1])
    assert waiting.wait(asked(1)) == "done"


# Connections.


class Told:
    """A connection to PostgreSQL that tells of its server what a test says."""

    def __init__(self, version: int = 150001, encoding: str = "UTF8", session: int = 7) -> None:
        self.info = SimpleNamespace(
            server_version=version, backend_pid=7, parameter_status=lambda _: encoding
        )
        self.adapters = SimpleNamespace(register_dumper=lambda *_: None)
        self.asked: list[str] = []
        self.is_closed = False
        self._session = session
        self.reader, self.writer = os.pipe()
        self.notes: list[str] = []

    def execute(self, text: str) -> Told:
        self.asked.append(text)
        if self.is_closed:
            raise psycopg.OperationalError("the connection is closed")
        return self

    def fetchall(self) -> list[tuple[int]]:
        return [(self._session,)]

    def fileno(self) -> int:
        return self.reader

    def notifies(self, *, timeout: float) -> list[Any]:
        assert timeout == 0
        return [SimpleNamespace(payload=one) for one in self.notes]

    def close(self) -> None:
        self.is_closed = True


def postgres_with(monkeypatch: pytest.MonkeyPatch, *told: Told) -> Postgres:
    backend = Postgres(make_url("postgresql://qframe@nowhere/qframe"))
    left = list(told)
    monkeypatch.setattr(backend._connection, "connect", lambda **_: left.pop(0))
    return backend


@pytest.mark.parametrize(
    ("told", "words"),
    [({"version": 149999}, "it is PostgreSQL 14"), ({"encoding": "LATIN1"}, "encoding LATIN1")],
)
def test_a_database_that_cannot_be_used_is_refused_and_let_go(
    monkeypatch: pytest.MonkeyPatch, told: Any, words: str
) -> None:
    connection = Told(**told)
    with pytest.raises(BadUrl, match=words):
        postgres_with(monkeypatch, connection)._connected()
    assert connection.is_closed


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Any:
    connection = Told()
    listener: Any = postgres_with(monkeypatch, connection).listener()
    connection.asked.clear()
    listener.told = connection
    yield listener
    for descriptor in (connection.reader, connection.writer):
        os.close(descriptor)


def test_a_listener_asks_a_server_that_says_nothing_whether_it_is_there(heard: Any) -> None:
    waits: list[float] = []
    poll, heard._poller = heard._poller.poll, SimpleNamespace(poll=waits.append)
    assert heard.receive(3600) == []
    assert waits == [CHECK_EVERY_S * 1000]
    assert heard.told.asked == ["SELECT 1"]
    heard._poller = SimpleNamespace(poll=poll)
    heard.wake()
    assert heard.receive(60) == []
    assert heard.receive(0) == []  # it was woken once
    assert heard.told.asked == ["SELECT 1"] * 2
    os.write(heard._writer, b"!" * 100_000)  # as much as there is room for
    heard.wake()
    assert heard.receive(60) == []
    heard.told.notes = ["m 1 0"]
    os.write(heard.told.writer, b"x")
    assert heard.receive(60) == ["m 1 0"]
    assert heard.told.asked == ["SELECT 1"] * 2
    heard.close()
    assert heard.told.is_closed


def test_a_listener_whose_connection_is_lost_says_so_and_leaves_nothing_open(heard: Any) -> None:
    heard.told.is_closed = True
    heard._backend._connected = lambda: heard.told
    for asks in (lambda: heard.receive(0), heard._backend.listener):
        with pytest.raises(StoreUnavailable):
            asks()
    heard.close()
    heard.wake()
    for descriptor in (heard._reader, heard._writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_rows_are_copied_where_they_are_many_and_only_added() -> None:
    plain = "INSERT INTO t (a, b) VALUES (%s, %s::BIGINT)"
    assert sql_postgres._copied(plain) == "COPY t (a, b) FROM STDIN"
    for text in (
        "INSERT INTO t (a, b) VALUES (%s, 1)", f"{plain} ON CONFLICT DO NOTHING",
        "UPDATE t SET a = %s", "INSERT INTO t (a, b) VALUES (%s)",
    ):  # fmt: skip
        assert sql_postgres._copied(text) is None
    for rows, copies in ((7, 0), (8, 1)):
        cursor = MagicMock(rowcount=rows)
        assert POSTGRES.run_many(cursor, plain, [(1, 2)] * rows) == rows
        assert cursor.copy.call_count == copies
        assert cursor.executemany.call_count == 1 - copies
    assert sql_postgres._threshold("x", "0") == {"prepare_threshold": None}
    assert sql_postgres._threshold("x", "5") == {"prepare_threshold": 5}


class Cursor:
    """A cursor of PyMySQL that answers as a test says, and its connection."""

    max_stmt_length = 1_024_000
    rowcount = 3

    def __init__(self, version: str, packet: int = 16_777_216) -> None:
        self.asked: list[str] = []
        self.many: list[Any] = []
        self.options: dict[int, int] = {}
        self._version = version
        self._packet = packet
        self._sock = self

    def cursor(self) -> Cursor:
        return self

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        self.options[option] = value

    def execute(self, text: str) -> None:
        self.asked.append(text)

    def executemany(self, text: str, _parameters: Any) -> None:
        self.asked.append(text)

    def fetchall(self) -> list[tuple[Any, ...]]:
        *_, text = self.asked
        if not text.startswith("SELECT @@SESSION."):
            return [(self._version, self._packet)]
        wanted = sql_mariadb._settings("MariaDB" in self._version) | sql_mariadb._CHARACTER_SETS
        return [tuple(wanted[name] for name in re.findall(r"@@SESSION\.(\w+)", text))]

    def fetchone(self) -> tuple[int]:
        return (0,)

    def close(self) -> None: ...


def mariadb_with(monkeypatch: pytest.MonkeyPatch, cursor: Cursor) -> MariaDb:
    backend = MariaDb(make_url("mysql://qframe@nowhere/qframe"))
    monkeypatch.setattr(backend, "_connection", lambda **_: cursor)
    return backend


@pytest.mark.parametrize("version", ["10.6.0-MariaDB", "11.4.2-MariaDB-log", "8.0.36", "9.1.0"])
def test_mariadb_and_mysql_are_told_apart_and_given_their_settings(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    cursor = Cursor(version)
    backend = mariadb_with(monkeypatch, cursor)
    backend._connected()
    is_mariadb = "MariaDB" in version
    assert backend.dialect.name == ("mariadb" if is_mariadb else "mysql")
    assert ("transaction_isolation" in cursor.asked[1]) is not is_mariadb
    assert ("idle_transaction_timeout" in cursor.asked[1]) is is_mariadb
    backend._connected()
    assert len(cursor.asked) == 3 + 2  # what a session has is asked once
    assert sorted(cursor.options.values()) == [3, 10, 30]


@pytest.mark.parametrize("version", ["10.5.9-MariaDB", "5.7.44", "5.5.5-MariaDB"])
def test_a_server_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    with pytest.raises(BadUrl, match="use MariaDB"):
        mariadb_with(monkeypatch, Cursor(version))._connected()


def test_statements_of_mariadb_fit_into_a_packet_and_who_does_not_get_the_lock_is_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cursor = Cursor("11.4.2-MariaDB", packet=65_536)
    backend = mariadb_with(monkeypatch, cursor)
    backend._connected()
    backend.run_many(cursor, "INSERT", [()])
    assert cursor.max_stmt_length == 65_536 - sql_mariadb.ROOM
    with pytest.raises(PYMYSQL.err.OperationalError) as raised:
        backend.lock_schema(cursor)
    assert "is held up" in str(backend.translated(raised.value, unknown=False))


def test_the_silence_that_a_url_allows_counts_before_any_other() -> None:
    for url, expected in (("mysql://u@h/d", 32.0), ("mysql://u@h/d?read_timeout=7", 7)):
        connection = SimpleNamespace(_read_timeout=None)
        backend = MariaDb(make_url(url))
        backend.limit_silence(SimpleNamespace(connection=connection), 32.0)
        assert connection._read_timeout == expected


@pytest.mark.parametrize(
    ("options", "verify", "named"),
    [
        ("", None, None), ("&ssl_verify_cert=false", False, False),
        ("&ssl_verify_cert=true", True, None), ("&ssl_verify_identity=true", True, True),
        ("&ssl_verify_cert=true&ssl_verify_identity=false", True, False),
    ],
)  # fmt: skip
def test_what_is_checked_of_a_certificate_is_what_the_url_says(
    options: str, verify: bool | None, named: bool | None
) -> None:
    tls = MariaDb(make_url(f"mysql://u@h/d?connect_timeout=3{options}"))._tls
    assert (tls.get("verify_mode"), tls.get("check_hostname")) == (verify, named)
