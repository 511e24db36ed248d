"""What the store looks up on PostgreSQL, it finds by the primary key.

The plans are those of the very lookups that publishing, pulling and settling make, and nobody but a
test analyzes the tables: it decides what the server knows of them when it plans. Plans that the
server keeps are not shown to anybody, but it counts the rows that are read by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from databases import EPOCH, begun, entry
from eventually import eventually
from servers import PostgresServer

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.outcomes import Verdict
from qframe.stores.sql.publish import publish
from qframe.stores.sql.pull import pull
from qframe.stores.sql.settle import settle
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import PullRequest, PullTerms, Settlement

SLOTS = 4
SUBJECTS = 6000
QUEUES = ("qframe_subjects", "qframe_backlog")
Plan = dict[str, Any]


class Explained(Transaction):
    """A transaction that keeps the plan of each lookup."""

    __slots__ = ("plans",)

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction._database, transaction._cursor)
        self.plans: list[Plan] = []

    def rows_of_arrays(self, statement: Statement, parameters: Row) -> list[Row]:
        text = f"EXPLAIN (FORMAT JSON) {self._database.text_of(statement)}"
        self._cursor.execute(text, parameters, prepare=False)
        [(found,)] = self._cursor.fetchall()
        self.plans.append(found[0]["Plan"])
        return super().rows_of_arrays(statement, parameters)


class Queue:
    """An ordered topic with a database of its own, in which nothing is analyzed by itself."""

    def __init__(self, url: str) -> None:
        self.store = SqlStore(url)
        self.topic = begun(self.store, "ordered", SLOTS)
        self._url = url.replace("+psycopg", "")
        self._sent = 0
        self._tell("ALTER TABLE {} SET (autovacuum_enabled = off)")

    def fill(self, subjects: int = SUBJECTS) -> None:
        """Publishes two messages for each of so many subjects."""
        for first in range(0, subjects, 250):
            self.publish(range(first, min(first + 250, subjects)), twice=True)

    def work_off(self) -> None:
        """Takes all messages away."""
        self._tell("DELETE FROM {}")

    def analyze(self) -> None:
        """Lets the server see what there is now; room stays with a table, as while it is used."""
        self._tell("VACUUM (ANALYZE, TRUNCATE off) {}")

    def publish(self, subjects: range, *, twice: bool = False) -> list[Plan]:
        """Publishes to these subjects; answers the plans of its lookups."""
        entries = [
            entry(self.topic, 1, f"k{number}", str(self._sent + place))
            for place, number in enumerate([*subjects, *(subjects if twice else ())])
        ]
        self._sent += len(entries)
        place = self.store._ref(self.topic)
        return self._plans(lambda it: publish(it, place, entries))

    def pull_and_settle(self, limit: int) -> list[Plan]:
        """Pulls so many of each slot and acknowledges them; answers the plans of its lookups."""
        place = self.store._ref(self.topic)
        asks = [PullRequest(slot, EPOCH, limit) for slot in range(SLOTS)]
        terms = PullTerms("r", 60_000, 16, 32)

        def act(transaction: Transaction) -> None:
            pulled = pull(transaction, place, "g", asks, terms, set())
            assert pulled is not None
            got = pulled.deliveries
            acknowledged = [
                Settlement(one.slot, one.subject, one.seq, "r", 1, EPOCH, Verdict.ACK)
                for one in got
            ]
            settle(transaction, place, "g", acknowledged)

        return self._plans(act)

    def _plans(self, act: Callable[[Transaction], object]) -> list[Plan]:
        plans: list[Plan] = []

        def explained(transaction: Transaction) -> None:
            it = Explained(transaction)
            act(it)
            plans.extend(it.plans)

        self.store._database.write(explained)
        return plans

    def _tell(self, text: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            for table in QUEUES:
                connection.execute(text.format(table).encode())


@pytest.fixture
def queue(postgres: PostgresServer) -> Iterator[Queue]:
    queue = Queue(postgres.new_database())
    yield queue
    queue.store.close()


def never(queue: Queue) -> None:
    queue.fill()


def when_empty(queue: Queue) -> None:
    queue.analyze()
    queue.fill()


def when_short(queue: Queue) -> None:
    queue.fill(10)
    queue.analyze()
    queue.fill()


def as_they_are(queue: Queue) -> None:
    queue.fill()
    queue.analyze()


def when_worked_off(queue: Queue) -> None:
    queue.fill()
    queue.work_off()
    queue.analyze()
    queue.fill()


@pytest.mark.parametrize("analyzed", [never, when_empty, when_short, as_they_are, when_worked_off])
def test_subjects_are_looked_up_by_the_primary_key_whenever_long_tables_were_analyzed(
    queue: Queue, analyzed: Callable[[Queue], None]
) -> None:
    analyzed(queue)
    scans = []
    for count in (1, 40, 500):
        for plan in (*queue.publish(range(count)), *queue.pull_and_settle(count)):
            scans += scans_of(plan)
    assert {scan["Relation Name"] for scan in scans} == set(QUEUES)
    for scan in scans:
        assert scan["Node Type"] == "Index Scan", scan
        assert scan["Index Name"] == f"{scan['Relation Name']}_pkey", scan
        assert "cursor = " in scan["Index Cond"], scan
        assert "subject " in scan["Index Cond"], scan


TABLES = ("backlog", "cursors", "log", "marks", "slots", "subjects")
KEPT_AFTER = 12
"""So often a statement is run until psycopg prepares it and the server keeps a plan, and more."""
READ_FOR_EACH = 12
"""Rows that are read for a message at most: it is looked up, written, claimed, settled, removed."""


class Worker:
    """Somebody who publishes, pulls and settles, and counts what that was about."""

    def __init__(self, store: SqlStore, kind: str) -> None:
        self.store = store
        self.topic = begun(store, kind, SLOTS)
        self.messages = 0
        self._sent = 0

    def publish(self, keys: range, *, named: bool) -> None:
        entries = []
        for key in keys:
            self._sent += 1
            one = entry(self.topic, 1, f"k{key}", str(self._sent))
            entries.append(msgspec.structs.replace(one, mark=one.id) if named else one)
        self.store.publish(self.topic, entries)
        self.messages += len(entries)

    def work(self, limit: int, verdict: Verdict = Verdict.ACK) -> int:
        asks = [PullRequest(slot, EPOCH, limit) for slot in range(SLOTS)]
        found = self.store.pull(self.topic, "g", asks, PullTerms("r", 60_000, 99)).deliveries
        if verdict is Verdict.ACK:
            self.store.acknowledge(self.topic, "g", found, dict.fromkeys(range(SLOTS), EPOCH))
        else:
            settlements = [
                Settlement(one.slot, one.subject, one.seq, "r", 1, EPOCH, verdict) for one in found
            ]
            self.store.settle(self.topic, "g", settlements)
        self.messages += len(found)
        return len(found)

    def live(self) -> None:
        """Publishes a little and works it off, until plans are kept."""
        for _ in range(KEPT_AFTER):
            for named in (False, True):
                self.publish(range(8), named=named)
            while self.work(3):
                pass


@pytest.mark.parametrize("kind", ["stream", "ordered", "merge"])
def test_a_plan_that_was_kept_since_the_tables_were_empty_never_reads_them_whole(
    postgres: PostgresServer, kind: str
) -> None:
    url = postgres.new_database()
    database = url.rpartition("/")[2]
    worker = Worker(SqlStore(url), kind)

    def tell(text: str) -> None:
        for table in TABLES:
            postgres.call(text.format(f"qframe_{table}"), database)

    tell("ALTER TABLE {} SET (autovacuum_enabled = off)")
    tell("VACUUM (ANALYZE) {}")
    worker.live()
    tell("VACUUM (ANALYZE) {}")
    worker.live()
    for first in range(0, 3000, 250):
        worker.publish(range(first, first + 250), named=True)
    for _ in range(3):
        worker.publish(range(200), named=False)
        worker.publish(range(200, 400), named=True)
        assert worker.work(50)
        assert worker.work(50, Verdict.RETRY)
    worker.store.close()

    def counts(text: str) -> dict[object, int]:
        return {name: int(str(count)) for name, count in postgres.call(text, database)}

    await_counts(postgres, database)
    whole = counts("SELECT relname, seq_tup_read FROM pg_stat_user_tables")
    assert {table: whole[f"qframe_{table}"] for table in TABLES} == dict.fromkeys(TABLES, 0)
    by_index = counts("SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes")
    for name in ("subjects", "backlog", "marks", "log"):
        for index, count in by_index.items():
            if str(index).startswith(f"qframe_{name}"):
                assert count <= READ_FOR_EACH * worker.messages, (index, by_index)


def test_a_sweep_that_finds_nothing_old_reads_no_whole_line(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    database = url.rpartition("/")[2]
    worker = Worker(SqlStore(url), "stream")
    for first in range(0, 4000, 500):
        worker.publish(range(first, first + 500), named=False)
    worker.store.close()
    postgres.call("VACUUM (ANALYZE) qframe_log", database)
    store = SqlStore(url)
    assert not store.sweep(worker.topic)
    store.close()
    assert read_of_log(postgres, database) <= 10 * SLOTS


def read_of_log(postgres: PostgresServer, database: str) -> int:
    """How many rows of the log were read."""
    await_counts(postgres, database)
    whole = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'qframe_log'"
    by_index = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE relname = 'qframe_log'"
    found = [postgres.call(text, database) for text in (whole, by_index)]
    return sum(int(str(count)) for rows in found for (count,) in rows)


def await_counts(postgres: PostgresServer, database: str) -> None:
    """Waits for the end of all sessions: each says then what it has counted."""
    left = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'qframe' AND datname = '{}'"
    eventually(lambda: not postgres.call(left.format(database)))


def scans_of(plan: Plan) -> list[Plan]:
    """The nodes of a plan that read a table."""
    below = [scan for each in plan.get("Plans", ()) for scan in scans_of(each)]
    return [plan, *below] if "Relation Name" in plan else below
