"""Transactions on a database whose answers are given: what is repeated, undone, closed and told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    bindparam,
    create_engine,
    insert,
    make_url,
)
from sqlalchemy.exc import TimeoutError as NoneFree

from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.drivers import sql as driver
from qframe.drivers.sql import Database, Statement, Transaction, url_of
from qframe.drivers.sql_backend import Backend
from qframe.drivers.sql_postgres import Postgres
from qframe.errors import AnswerLost, BadUrl, StoreUnavailable
from qframe.forks import Forks


class FailureError(Exception):
    """What a driver raises: `conflict`, `lost`, or what else it is about."""


CONFLICT, LOST, REFUSED = FailureError("conflict"), FailureError("lost"), FailureError("refused")


class Connection:
    """A connection, its cursor and all that was done with it; some words are answered by errors."""

    rowcount = 1

    def __init__(self, faults: dict[str, list[BaseException]]) -> None:
        self.done: list[str] = []
        self._faults = faults
        self.is_valid = True

    def cursor(self) -> Connection:
        return self

    def execute(self, word: str, *_: Any) -> None:
        self.done.append(word)
        if self._faults.get(word):
            raise self._faults[word].pop(0)

    def executemany(self, word: str, rows: Sequence[Any]) -> None:
        self.execute(f"{word} {len(rows)} times")

    def rollback(self) -> None:
        self.execute("rollback")

    def invalidate(self) -> None:
        assert self.is_valid  # else SQLAlchemy warns
        self.is_valid = False
        self.done.append("invalidate")

    def close(self) -> None:
        self.done.append("close")


class Pool:
    """Makes connections, and counts how often it was given up."""

    def __init__(self, faults: dict[str, list[BaseException]]) -> None:
        self._faults = faults
        self.made: list[Connection] = []
        self.disposed = 0

    def connect(self) -> Connection:
        if self._faults.get("connect"):
            raise self._faults["connect"].pop(0)
        self.made.append(Connection(self._faults))
        return self.made[-1]

    def dispose(self) -> None:
        self.disposed += 1

    def recreate(self) -> Pool:
        renewed = Pool(self._faults)
        renewed.made, renewed.disposed = self.made, self.disposed
        return renewed


class Server(Backend):
    """A database of which nothing is real but how qframe takes its errors."""

    has_clock = False

    def __init__(self, **faults: list[BaseException]) -> None:
        pool: Any = Pool(faults)
        super().__init__("server://", None, pool, (FailureError,))  # type: ignore[arg-type]

    def begin(self, cursor: Any, *, writes: bool) -> None:
        cursor.execute("write" if writes else "read")

    def now_ms(self, cursor: Any) -> int:
        raise NotImplementedError

    def has_table(self, cursor: Any, name: str) -> bool:
        raise NotImplementedError

    def has_index(self, cursor: Any, table: str, name: str) -> bool:
        raise NotImplementedError

    def notify(self, cursor: Any, notifications: Any) -> None:
        cursor.execute(f"notify {' '.join(notifications)}")

    def limit_silence(self, cursor: Any, longest_s: float | None) -> None:
        cursor.execute(f"silent for {longest_s} s")

    def is_conflict(self, error: Exception) -> bool:
        return error is CONFLICT

    def is_gone(self, error: Exception) -> bool:
        return error is LOST

    def refusal(self, error: Exception) -> Exception | None:
        return BadUrl("store", "server://", "refused", "x") if error is REFUSED else None


class Bench:
    """A database on such a server, and what it has paused and told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **faults: list[BaseException]) -> None:
        self.server = Server(**faults)
        monkeypatch.setattr(driver, "_backend", lambda _: self.server)
        self.told: list[Sequence[str]] = []
        self.database = Database("server://", clock=VirtualClock(), on_notified=self.told.append)
        self.pauses: list[float] = []
        monkeypatch.setattr("qframe.drivers.sql.time.sleep", self.pauses.append)
        monkeypatch.setattr("qframe.drivers.sql.random.uniform", lambda _, longest_s: longest_s)

    @property
    def done(self) -> list[list[str]]:
        """What was done with each connection, but for what it began with."""
        pool: Any = self.server.pool
        return [one.done[1:] for one in pool.made]

    @property
    def times_closed(self) -> int:
        pool: Any = self.server.pool
        return int(pool.disposed)


Make = Callable[..., Bench]


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(**faults: list[BaseException]) -> Bench:
        return Bench(monkeypatch, **faults)

    return made


def act(transaction: Transaction) -> str:
    """A transaction that changes something, and tells others of it."""
    transaction._cursor.execute("act")
    transaction.notify("news")
    transaction.notify("news")
    return "done"


def look(transaction: Transaction) -> str:
    """A transaction that tells nobody."""
    transaction._cursor.execute("act")
    return "seen"


def test_a_transaction_that_writes_tells_of_it_once_it_is_committed(bench_of: Make) -> None:
    bench = bench_of()
    assert bench.database.write(act) == "done"
    assert bench.done == [["write", "act", "notify news", "COMMIT", "close", "close"]]
    assert bench.told == [["news"]]


def test_who_reads_commits_one_view_or_reads_each_statement_by_itself(bench_of: Make) -> None:
    bench = bench_of()
    assert bench.database.read(look) == bench.database.read_autocommit(look) == "seen"
    assert bench.done == [["read", "act", "COMMIT", "close", "close"], ["act", "close", "close"]]
    assert bench.told == []


def test_each_transaction_has_its_limit_of_silence_and_a_migration_has_none(bench_of: Make) -> None:
    bench = bench_of()
    bench.database.write(Transaction.lock_schema)
    pool: Any = bench.server.pool
    words = [one for one in pool.made[0].done if one.startswith("silent")]
    assert words == [f"silent for {driver.SILENT_S} s", "silent for None s"]


def test_what_another_transaction_has_undone_is_repeated_with_growing_pauses(
    bench_of: Make,
) -> None:
    bench = bench_of(act=[CONFLICT] * driver.CONFLICTS)
    assert bench.database.write(act) == "done"
    assert bench.done[:-1] == [["write", "act", "rollback", "close"]] * driver.CONFLICTS
    assert bench.pauses[:3] == [0.004, 0.008, 0.016]
    assert bench.pauses[-1] == driver.LONGEST_PAUSE_S
    assert bench.told == [["news"]]
    assert bench.times_closed == 0
    bench = bench_of(act=[CONFLICT] * (driver.CONFLICTS + 1))
    with pytest.raises(StoreUnavailable):
        bench.database.write(act)
    assert bench.told == []


def test_a_connection_that_is_lost_before_the_commit_is_made_anew_once(bench_of: Make) -> None:
    """All others are closed with it, since they are to the same server."""
    bench = bench_of(act=[LOST], rollback=[LOST])
    assert bench.database.write(act) == "done"
    assert bench.done[0] == ["write", "act", "rollback", "invalidate", "close"]
    assert (bench.times_closed, bench.pauses) == (1, [])
    bench = bench_of(act=[LOST] * 2, rollback=[LOST] * 2)
    with pytest.raises(StoreUnavailable) as raised:
        bench.database.write(act)
    assert not isinstance(raised.value, AnswerLost)
    assert bench.times_closed == 2


def test_a_server_to_which_there_is_no_connection_is_asked_once(bench_of: Make) -> None:
    bench = bench_of(connect=[LOST])
    with pytest.raises(StoreUnavailable) as raised:
        bench.database.write(act)
    assert not isinstance(raised.value, AnswerLost)
    assert bench.times_closed == 1


def test_conflicts_and_a_lost_connection_are_counted_apart(bench_of: Make) -> None:
    faults = [CONFLICT] * 6 + [LOST] + [CONFLICT] * 6
    bench = bench_of(act=faults)
    assert bench.database.write(act) == "done"


@pytest.mark.parametrize("error", [LOST, CONFLICT])
def test_a_commit_of_which_nobody_knows_is_told_as_such_and_never_repeated(
    bench_of: Make, error: FailureError
) -> None:
    bench = bench_of(COMMIT=[error], rollback=[LOST])
    with pytest.raises(AnswerLost):
        bench.database.write(act)
    assert len(bench.done) == 1
    assert bench.done[0][-2:] == ["invalidate", "close"]
    assert bench.told == []


def test_a_commit_that_failed_on_a_connection_that_lives_has_changed_nothing(
    bench_of: Make,
) -> None:
    bench = bench_of(COMMIT=[CONFLICT, REFUSED])
    with pytest.raises(BadUrl):
        bench.database.write(act)
    assert len(bench.done) == 2


def test_the_end_of_a_view_that_is_lost_is_repeated(bench_of: Make) -> None:
    bench = bench_of(COMMIT=[LOST], rollback=[LOST])
    assert bench.database.read(look) == "seen"
    bench = bench_of(act=[LOST], rollback=[LOST])
    assert bench.database.read_autocommit(look) == "seen"


def test_an_error_of_ours_is_undone_and_its_connection_used_again(bench_of: Make) -> None:
    bench = bench_of(act=[BadUrl("store", "x", "y", "z")])
    with pytest.raises(BadUrl):
        bench.database.write(act)
    assert bench.done == [["write", "act", "rollback", "close"]]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_a_connection_is_given_up_on_which_an_answer_may_be_still_to_come(
    bench_of: Make, error: BaseException
) -> None:
    for faults in ({"act": [error]}, {"act": [REFUSED], "rollback": [error]}):
        bench = bench_of(**faults)
        with pytest.raises(type(error)):
            bench.database.write(act)
        assert bench.done[0][-2:] == ["invalidate", "close"]


def test_a_file_is_free_at_once_when_a_signal_ends_what_writes_it(tmp_path: Path) -> None:
    """Though a traceback still holds the cursor."""
    path = tmp_path / "q.db"
    table = Table("t", MetaData(), Column("n", Integer, primary_key=True))
    database = Database(f"sqlite:///{path}")

    class Rows(list[tuple[int]]):
        def __iter__(self) -> Iterator[tuple[int]]:
            yield self[0]
            raise KeyboardInterrupt

    def ended(transaction: Transaction) -> None:
        statement = Statement(insert(table).values(n=bindparam("n")), "n")
        transaction.run_many(statement, Rows([(1,), (2,)]))

    with sqlite3.connect(path, timeout=0) as other:
        other.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    with pytest.raises(KeyboardInterrupt) as held:
        database.write(ended)
    with sqlite3.connect(path, timeout=0) as other:
        other.execute("INSERT INTO t VALUES (1)")
    assert held.tb is not None
    database.close()


def test_who_comes_after_the_close_leaves_no_connection_open(bench_of: Make) -> None:
    """Such as a thread of a worker that has ended: nobody would close what it has opened."""
    bench = bench_of()
    bench.database.close()
    bench.database.write(lambda _: None)
    assert bench.done == [["write", "COMMIT", "close", "invalidate", "close"]]
    bench = bench_of()
    bench.database.renew()
    bench.database.write(lambda _: None)
    assert bench.done == [["write", "COMMIT", "close", "close"]]


def test_a_connection_of_a_pool_that_was_given_up_meanwhile_is_closed(bench_of: Make) -> None:
    bench = bench_of()

    def close_meanwhile(transaction: Transaction) -> None:
        bench.database.close()

    bench.database.write(close_meanwhile)
    assert bench.done == [["write", "COMMIT", "close", "invalidate", "close"]]
    bench = bench_of(rollback=[LOST])

    def fail_meanwhile(_: Transaction) -> None:
        bench.database.close()
        raise REFUSED

    with pytest.raises(BadUrl):
        bench.database.write(fail_meanwhile)
    assert bench.done == [["write", "rollback", "invalidate", "close"]]


def test_a_process_whose_connections_are_all_taken_is_told_so(bench_of: Make) -> None:
    bench = bench_of(connect=[NoneFree("QueuePool limit reached")])
    with pytest.raises(StoreUnavailable, match="no connection left for this process"):
        bench.database.write(act)


def test_a_change_is_run_for_each_tuple_and_not_at_all_without_any(
    bench_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of()
    monkeypatch.setattr(bench.database, "text_of", lambda _: "change")
    change: Any = None

    def run(transaction: Transaction) -> list[int]:
        return [transaction.run_many(change, rows) for rows in ([], [(1,)], [(1,), (2,)])]

    assert bench.database.write(run) == [0, 1, 1]
    assert bench.done == [["write", "change", "change 2 times", "COMMIT", "close", "close"]]


@pytest.mark.parametrize("outlives", [True, False])
def test_a_child_has_connections_of_its_own_and_closes_none_of_its_parents(
    bench_of: Make, monkeypatch: pytest.MonkeyPatch, *, outlives: bool
) -> None:
    bench = bench_of()
    monkeypatch.setattr(Server, "outlives_fork", outlives)
    bench.database._before_fork()
    assert bench.times_closed == (not outlives)
    parents = bench.server.pool
    bench.database._begin_anew()
    assert bench.server.pool is not parents
    assert any(kept is parents for kept in Forks._kept)
    assert bench.times_closed == (not outlives)


def test_the_time_is_the_servers_where_it_has_one_and_none_was_given(
    bench_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of()
    assert bench.database.read(Transaction.now_ms) == VirtualClock().now_ms()
    assert Database("server://").clock is SYSTEM_CLOCK
    monkeypatch.setattr(Server, "has_clock", True)
    monkeypatch.setattr(Server, "now_ms", lambda *_: 7)
    assert Database("server://").read(Transaction.now_ms) == 7


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgres://u:x@h/d", "postgresql"), ("postgresql+psycopg://h/d", "postgresql+psycopg"),
        ("sqlite:///a@b@c.db", "sqlite"),
    ],
)  # fmt: skip
def test_a_url_names_its_database(url: str, name: str) -> None:
    assert url_of(url).drivername == name


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:secret@x@h/d", "two @"), ("mysql://u:secret@h:port/d", "is not a URL"),
        ("secret", "is not a URL"), ("oracle://u:secret@h/d", "does not support the database"),
    ],
)  # fmt: skip
def test_a_url_of_no_database_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words) as raised:
        url_of(url)
    assert "secret@" not in str(raised.value)


def test_a_statement_has_a_text_for_each_dialect_with_its_constants_in_it() -> None:
    table = Table("t", MetaData(), Column("a", Integer), Column("b", LargeBinary))
    statement = Statement(insert(table).values(a=bindparam("one"), b=b"\x01\xff"), "one")
    sqlite = create_engine("sqlite://", paramstyle="qmark").dialect
    postgres = Postgres(make_url("postgresql://h/d")).dialect
    for _ in range(2):
        assert statement.text(sqlite) == "INSERT INTO t (a, b) VALUES (?, X'01ff')"
        assert statement.text(postgres).endswith(r"VALUES (%s::INTEGER, E'\\x01ff')")
