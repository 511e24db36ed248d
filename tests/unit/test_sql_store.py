"""The SQL store's own affairs: files, versions, other processes, and an audit that can speak."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import bindparam, event, select

from qframe import Outgoing, QFrame, SchemaMismatch, StoreFull, Topic
from qframe.clock import VirtualClock
from qframe.drivers.sql import Database, Statement, Transaction
from qframe.outcomes import Verdict
from qframe.stores.open import open_store
from qframe.stores.sql import ranges
from qframe.stores.sql.migrate import FIRST, KNOWN
from qframe.stores.sql.pages import _dead_of
from qframe.stores.sql.schema import PREFIX, expiries, groups, metadata, slots
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import Entry, PullRequest, PullTerms, Settlement

EPOCH = "0" * 15 + "1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def app(path: Path) -> Iterator[QFrame]:
    with QFrame(store=f"sqlite:///{path}") as app:
        yield app


def change(path: Path, *statements: str) -> None:
    """Does behind the store's back what the store never does."""
    connection = sqlite3.connect(path)
    for statement in statements:
        assert connection.execute(statement).rowcount != 0, statement
    connection.commit()
    connection.close()


def filled(app: QFrame, kind: str, **options: Any) -> Topic:
    """A topic of one slot with messages in doing, todo and dead."""
    topic = Topic(f"a-{kind}", kind=kind, slots=1, **options)
    app.declare(topic)
    app.store.subscribe(topic, "g")
    app.store.take(topic, "g", {0: EPOCH})
    keys = 3 if kind == "ordered" else 9
    app.publish_many(topic, [Outgoing(number, key=f"k{number % keys}") for number in range(9)])
    pulled = app.store.pull(
        topic, "g", [PullRequest(0, EPOCH, 3)], PullTerms("r", 60_000, 9, run=2)
    )
    one = pulled.deliveries[0]
    app.store.settle(
        topic, "g",
        [Settlement(0, one.subject, one.seq, "r", 1, EPOCH, Verdict.DEAD, error="e", id=one.id)],
    )  # fmt: skip
    assert app.store.verify(topic) == []
    return topic


def test_tables_of_a_version_that_was_never_released_are_refused_and_left_as_they_are(
    app: QFrame, path: Path
) -> None:
    topic = filled(app, "ordered")
    before = app.store.stats(topic)
    app.close()

    def at(version: int) -> None:
        connection = sqlite3.connect(path)
        connection.execute("UPDATE qframe_version SET version = ?", (version,))
        connection.commit()
        connection.close()

    for version in (1, FIRST - 1):
        at(version)
        with pytest.raises(SchemaMismatch, match=f"at version {version}, .* it was never released"):
            SqlStore(f"sqlite:///{path}")
    at(KNOWN)
    store = SqlStore(f"sqlite:///{path}")
    assert store.stats(topic) == before
    store.close()


def test_what_is_settled_behind_a_slow_message_is_not_read_when_its_slot_is_taken(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("t", slots=1)
    app.declare(topic)
    store = app.store
    store.subscribe(topic, "g")
    store.take(topic, "g", {0: EPOCH})
    app.publish_many(topic, range(500))
    asks = [PullRequest(0, EPOCH, 500)]
    slow, *quick = store.pull(topic, "g", asks, PullTerms("r", 60_000, 9)).deliveries
    store.acknowledge(topic, "g", quick, {0: EPOCH})
    read: list[int] = []
    rows = Transaction.rows

    def counted(self: Transaction, *statement: Any) -> Any:
        found = rows(self, *statement)
        read.append(len(found))
        return found

    monkeypatch.setattr(Transaction, "rows", counted)
    assert store.take(topic, "g", {0: f"{2:016x}"}) == [0]
    assert sum(read) < 10
    assert store.verify(topic) == []
    assert slow.seq == 0


def test_what_falls_due_all_at_once_joins_its_log_in_steps_and_in_order(path: Path) -> None:
    clock = VirtualClock()
    store = SqlStore(f"sqlite:///{path}", clock=clock)
    topic = Topic("t", slots=1)
    store.declare(topic)
    store.subscribe(topic, "g")
    store.take(topic, "g", {0: EPOCH})
    size = 1200
    # All are due at the same moment, and their ids say in which order they come.
    names = [f"id-{number:04}" for number in range(size)]
    store.publish(topic, [Entry(0, None, n, n, None, None, b"1", delay_ms=50) for n in names])
    clock.advance(50)
    seen: list[str] = []
    joined: list[int] = []
    while len(seen) < size:
        pulled = store.pull(topic, "g", [PullRequest(0, EPOCH, 5000)], PullTerms("r", 60_000, 9))
        seen += [one.id for one in pulled.deliveries]
        joined.append(len(pulled.deliveries))
        assert pulled.next_due_ms == 0 or len(seen) == size
    assert seen == names
    assert max(joined) <= 500
    assert store.verify(topic) == []
    store.close()


def test_a_file_that_only_its_user_may_read_stays_so_with_all_that_lies_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "private.db"
    path.touch(mode=0o600)
    with QFrame(f"sqlite:///{path}") as app:
        app.publish(Topic("t"), "for nobody else")
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}


@pytest.mark.promise(8)
def test_a_full_database_refuses_the_batch_whole_and_goes_on_when_there_is_room(
    path: Path,
) -> None:
    store = SqlStore(f"sqlite:///{path}")
    database: Database = store._database
    small = [True]

    @event.listens_for(database.backend.pool, "checkout")
    def limit(connection: Any, *_: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 5 if small[0] else 10**6}")

    app = QFrame(store=f"sqlite:///{path}")
    app.parts.opened.store = store
    topic = Topic("t", slots=1)
    app.declare(topic)
    app.store.subscribe(topic, "g")
    with pytest.raises(StoreFull, match="has no room: database or disk is full; free space"):
        app.publish_many(topic, ["x" * 1000] * 100)
    assert sum(one.published for one in store.stats(topic)) == 0
    small[0] = False
    app.publish_many(topic, ["x" * 1000] * 100)
    assert sum(one.published for one in store.stats(topic)) == 100
    app.close()


PUBLISHER = """
import sys
import threading
from qframe import QFrame, Topic
app = QFrame(store=sys.argv[1])
topic = Topic("t", slots=4)
for number in range(100_000):
    published = app.publish(topic, number, id=f"{sys.argv[2]}-{number}")
    print(published.id, flush=True)
"""


def test_a_new_file_to_which_another_process_writes_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE theirs (n INTEGER)")
        other.execute("BEGIN IMMEDIATE")
        soon = threading.Timer(0.2, other.execute, ["COMMIT"])
        soon.start()
        with QFrame(store=f"sqlite:///{path}") as app:
            app.declare(Topic("orders"))
        soon.join()


@pytest.mark.promise(1)
def test_processes_publish_side_by_side_and_a_killed_one_loses_nothing_it_was_told_is_stored(
    tmp_path: Path, path: Path
) -> None:
    url = f"sqlite:///{path}"
    open_store(url).close()
    outputs = [tmp_path / f"{name}.txt" for name in "ab"]
    processes = []
    for output in outputs:
        with output.open("wb") as file:
            command = [sys.executable, "-c", PUBLISHER, url, output.stem]
            processes.append(subprocess.Popen(command, stdout=file))
    try:
        eventually(lambda: all(out.read_bytes().count(b"\n") > 50 for out in outputs))
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    told = {line for out in outputs for line in out.read_text().split("\n")[:-1]}
    seen: set[str] = set()
    with QFrame(store=url) as app:
        app.consumer("t", group="g")(lambda: None)
        app.run(burst=True)
        assert app.store.verify(Topic("t", slots=4)) == []
    connection = sqlite3.connect(path)
    seen = {row[0] for row in connection.execute("SELECT id FROM qframe_log")}
    connection.close()
    assert told <= seen
    assert len(seen - told) <= 2  # each process was killed before it could tell of one


def test_a_statement_whose_parameters_are_named_in_another_order_is_refused(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    query = select(slots.c.head).where(
        slots.c.slot == bindparam("a"), slots.c.head > bindparam("b")
    )
    assert Statement(query, "a b").text(database.backend.dialect).count("?") == 2
    with pytest.raises(AssertionError, match="parameters are"):
        Statement(query, "b a").text(database.backend.dialect)
    constant = select(slots.c.head).where(slots.c.slot == 5, slots.c.head > bindparam("b"))
    assert "= 5" in Statement(constant, "b").text(database.backend.dialect)
    database.close()


@pytest.mark.promise(8)
def test_a_failed_transaction_leaves_nothing_behind(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}", clock=VirtualClock())
    store.declare(Topic("t", slots=2))

    def fail_half_way(transaction: Transaction) -> None:
        transaction.run(Statement(slots.update().values(head=bindparam("to")), "to"), (99,))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store._database.write(fail_half_way)
    assert list(store.offsets_at(Topic("t", slots=2), 0).values()) == [0, 0]
    store.close()


def test_ranges_add_up_whatever_the_order() -> None:
    floor, held = ranges.added(0, [], [3, 1, 7])
    assert (floor, held) == (0, [(1, 2), (3, 4), (7, 8)])
    floor, held = ranges.added(floor, held, [0, 2, 6])
    assert (floor, held) == (4, [(6, 8)])
    assert ranges.count(held) == 2
    assert ranges.contains(held, 7)
    assert not ranges.contains(held, 5)
    assert list(ranges.gaps(4, 10, held)) == [(4, 6), (8, 10)]
    assert ranges.load(ranges.dump(held)) == held
    assert ranges.added(4, held, [5, 4]) == (8, [])


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_offsets_are_in_ranges_or_not_one_by_one_and_together(one: set[int], two: set[int]) -> None:
    _, held = ranges.added(-1, [], one)
    assert ranges.has_any(held, sorted(two)) == any(ranges.contains(held, each) for each in two)
    assert ranges.has_any(held, sorted(two)) == bool(one & two)


def steps(app: QFrame, topic: Topic, clock: VirtualClock) -> list[tuple[int, int]]:
    """How many messages and gaps each pull brings, until none is left."""
    app.store.take(topic, "g", {0: EPOCH})
    clock.advance(60_000)
    found = []
    while True:
        pulled = app.store.pull(
            topic,
            "g",
            [PullRequest(0, EPOCH, 5000)],
            PullTerms("r", 600_000, 9, run=1),
        )
        found.append((len(pulled.deliveries), pulled.gaps))
        if pulled.next_due_ms:  # that of their leases
            return found


@pytest.fixture
def moved(path: Path) -> Iterator[tuple[QFrame, VirtualClock]]:
    clock = VirtualClock()
    with QFrame(store=f"sqlite:///{path}?synchronous=normal") as app:
        app.parts.opened.clock = clock
        yield app, clock


def test_what_falls_due_all_at_once_is_ranked_in_steps(
    moved: tuple[QFrame, VirtualClock],
) -> None:
    app, clock = moved
    topic = app.declare(Topic("t", kind="priority", slots=1))
    app.store.subscribe(topic, "g")
    app.publish_many(topic, [Outgoing(n, key=f"k{n}", delay="10s") for n in range(4500)])
    assert steps(app, topic, clock) == [(0, 0), (0, 0), (4500, 0)]
    assert app.store.verify(topic) == []


def test_gaps_that_were_waited_for_long_enough_are_passed_in_steps(
    moved: tuple[QFrame, VirtualClock],
) -> None:
    app, clock = moved
    topic = app.declare(Topic("t", kind="ordered", slots=1, gap_timeout="10s"))
    app.store.subscribe(topic, "g")
    app.publish_many(topic, [Outgoing(n, key=f"k{n}", sequence=2) for n in range(1200)])
    assert steps(app, topic, clock) == [(500, 500), (500, 500), (200, 200)]
    assert app.store.verify(topic) == []


def test_a_slot_whose_record_of_a_group_is_missing_has_no_counts_and_is_named(
    app: QFrame, path: Path
) -> None:
    topic = Topic("orders", kind="ordered", slots=2)
    app.declare(topic)
    app.store.subscribe(topic, "billing")
    app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(8)])
    before = app.store.stats(topic)
    change(path, "DELETE FROM qframe_cursors WHERE cursor % 4096 = 0")
    assert app.store.stats(topic) == before[1:]
    [totals] = app.admin.topics()
    assert totals.groups[0].todo == before[1].todo
    assert "this slot has no record of it" in app.admin.verify(topic)[0]


def rows_of_groups(path: Path) -> dict[str, int]:
    """How many rows stand for groups, by table."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table.name.removeprefix(PREFIX): connection.execute(
                f"SELECT count(*) FROM {table.name}"
            ).fetchone()[0]
            for table in metadata.sorted_tables
            if {"cursor", "group_id"} & set(table.columns.keys()) or table in (groups, expiries)
        }


def test_the_last_group_of_a_topic_that_is_deleted_leaves_no_row_in_any_table(
    app: QFrame, path: Path
) -> None:
    """Its numbers come never again, so nobody would find what is left of it."""
    store, used = app.store, dict.fromkeys(rows_of_groups(path), 0)
    for kind in ("stream", "ordered"):
        topic = filled(app, kind, history="1d")
        store.subscribe(topic, "g", expires_ms=60_000, max_parked=9 if kind == "stream" else 0)
        store.tune(topic, "g", {"threads": "2"})
        store.draw(topic, "g", 1, rate=1, per_ms=1000, burst=2)
        store.report(topic, "g", "w", "{}")
        store.heartbeat(topic, "g", "w", 60_000)
        store.claim(topic, "g", "w", {0: EPOCH})
        used = {name: used[name] + count for name, count in rows_of_groups(path).items()}
        assert store.drop_group(topic, "g")
        while not store.delete(topic):
            pass
        assert set(rows_of_groups(path).values()) == {0}, rows_of_groups(path)
    assert all(used.values()), used


@pytest.mark.parametrize("values", [("a", 100), ("a", "b")], ids=["one", "several"])
def test_dead_letters_of_ids_are_found_by_the_index_of_ids(
    app: QFrame, path: Path, values: tuple[str | int, ...]
) -> None:
    assert isinstance(app.store, SqlStore)
    count = sum(isinstance(value, str) for value in values)
    statement = _dead_of("id", count).text(app.store._database.backend.dialect)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (1, *values)).fetchall()
    read = [row[3].split(" ", 2)[2] for row in plan if "qframe_dead" in row[3]]
    assert read == ["USING INDEX qframe_dead_id (cursor=? AND id=?)"]
