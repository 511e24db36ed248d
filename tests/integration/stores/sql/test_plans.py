"""What the store looks up on PostgreSQL, it finds by an index, though plans are old.

Plans that the server keeps are not shown to anybody, but it counts the rows that are read by them.
"""

from __future__ import annotations

import msgspec
import pytest
from databases import EPOCH, begun, entry
from eventually import eventually
from servers import PostgresServer

from qframe.drivers.sql import Transaction
from qframe.outcomes import Verdict
from qframe.stores.sql import lookups
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import PullRequest, PullTerms, Settlement

SLOTS = 4
HEADS = (lookups._KNOWN, lookups._TO_SETTLE, lookups._PUBLISHED, lookups._WHOLE)
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


@pytest.mark.parametrize("analyzed", ["never", "full", "worked off"])
def test_subjects_are_looked_up_by_the_primary_key_whenever_a_long_queue_was_analyzed(
    postgres: PostgresServer, analyzed: str
) -> None:
    url = postgres.new_database()
    worker, database = Worker(SqlStore(url), "ordered"), url.rpartition("/")[2]
    plans: list[str] = []

    def tell(text: str) -> None:
        for table in ("subjects", "backlog"):
            postgres.call(text.format(f"qframe_{table}"), database)

    def fill() -> None:
        for first in range(0, 6000, 250):
            for _ in range(2):
                worker.publish(range(first, first + 250), named=False)

    def explain(it: Transaction) -> None:
        for statement in (*(heads._together for heads in HEADS), lookups._BEHIND):
            text = it._database.text_of(statement)
            for count in (1, 40, 500):
                given = [list(each) for each in zip(*subjects[:count], strict=True)]
                if statement is lookups._BEHIND:
                    given += [[2] * count, 1000]  # type: ignore[list-item]
                it._cursor.execute(f"EXPLAIN {text}", given, prepare=False)
                plans.extend(line for [line] in it._cursor.fetchall())

    tell("ALTER TABLE {} SET (autovacuum_enabled = off)")
    if analyzed == "worked off":
        fill()
        tell("DELETE FROM {}")
        tell("VACUUM (ANALYZE, TRUNCATE off) {}")  # room stays with a table, as while it is used
    fill()
    if analyzed == "full":
        tell("VACUUM (ANALYZE) {}")
    subjects = postgres.call("SELECT cursor, subject FROM qframe_subjects LIMIT 500", database)
    worker.store._database.write(explain)
    worker.store.close()
    scans = [line.split("  (cost")[0].strip(" ->") for line in plans if " on qframe_" in line]
    assert {*scans} == {
        f"Index Scan using qframe_{table}_pkey on qframe_{table}"
        for table in ("subjects", "backlog")
    }
    conditions = [line for line in plans if "Index Cond" in line]
    assert len(conditions) == len(scans)  # none reads its index from end to end
    assert all("cursor = " in line and "subject " in line for line in conditions)


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
