"""What is read of long lines: of a stream whose slow message holds its floor, of those who wait."""

from __future__ import annotations

from typing import Any

import pytest
from databases import EPOCH, begun, entry, pulled
from sqlalchemy import bindparam

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.outcomes import Outcome, Verdict
from qframe.stores.sql import audit
from qframe.stores.sql.cursors import COUNT_DEAD
from qframe.stores.sql.schema import subjects
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import PullRequest, PullTerms, Settlement
from qframe.topic import Kind, Topic

COUNT = 1000


def counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each query finds from now on."""
    rows, read = Transaction.rows, []

    def counted(self: Transaction, statement: Statement, parameters: Row = ()) -> list[Row]:
        found = rows(self, statement, parameters)
        read.append(len(found))
        return found

    monkeypatch.setattr(Transaction, "rows", counted)
    return read


def asked_statements(monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
    """The statements that are run from now on."""
    asked: list[Statement] = []
    for name in ("row", "rows", "run", "run_many", "rows_of_arrays"):
        verb = getattr(Transaction, name)

        def noted(self: Transaction, statement: Statement, *given: Row, verb: Any = verb) -> object:
            asked.append(statement)
            return verb(self, statement, *given)

        monkeypatch.setattr(Transaction, name, noted)
    return asked


@pytest.mark.gate
def test_a_lost_reply_is_given_again_without_reading_what_is_settled(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = begun(store, "stream", 1)
    store.publish(topic, [entry(topic, n, "k", str(n)) for n in range(COUNT + 20)])
    asks = [PullRequest(0, EPOCH, COUNT, 0)]
    got = store.pull(topic, "g", asks, PullTerms("r", 60_000, 5)).deliveries
    store.acknowledge(topic, "g", got[1:-1], {0: EPOCH})  # all but the first and the last
    read = counted_rows(monkeypatch)
    asks = [PullRequest(0, EPOCH, 10, COUNT - 1)]
    pulled = store.pull(topic, "g", asks, PullTerms("s", 60_000, 5))
    assert [one.seq for one in pulled.deliveries] == [*range(COUNT - 1, COUNT + 9)]
    assert max(read) <= 10


@pytest.mark.gate
def test_a_message_in_hand_is_shown_without_reading_what_is_settled_behind_it(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = begun(store, "stream", 1)
    store.publish(topic, [entry(topic, n, "k", str(n)) for n in range(COUNT)])
    asks = [PullRequest(0, EPOCH, COUNT, 0)]
    got = store.pull(topic, "g", asks, PullTerms("r", 60_000, 5)).deliveries
    store.acknowledge(topic, "g", got[1:-1], {0: EPOCH})
    read = counted_rows(monkeypatch)
    shown = store.peek(topic, "g", states=["doing"])
    assert [one.seq for one in shown] == [0, COUNT - 1]
    assert max(read) <= 2


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_dead_letters_are_not_counted_by_a_publish_that_fits_beside_them(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    topic = begun(store, kind, 1)
    topic = store.declare(Topic(topic.name, Kind(kind), 1, max_length=30))
    store.publish(topic, [entry(topic, n, f"k{n}", str(n)) for n in range(10)])
    dead = [
        Settlement(one.slot, one.subject, one.seq, "r", one.attempt, EPOCH, Verdict.DEAD)
        for one in pulled(store, topic, "r", position=0).deliveries
    ]
    store.settle(topic, "g", dead)
    asked = asked_statements(monkeypatch)
    more = [entry(topic, n, f"k{n}", str(n)) for n in range(10, 50)]
    assert store.publish(topic, more[:20]) == [Outcome.STORED] * 20
    assert COUNT_DEAD not in asked
    assert store.publish(topic, more[20:]) == [Outcome.STORED] * 10 + [Outcome.FULL] * 10
    assert COUNT_DEAD in asked


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "merge"])
def test_many_dead_letters_are_retried_with_as_many_statements_as_few(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    topic = begun(store, kind, 2)
    entries = [entry(topic, n, f"k{n % 90}", str(n)) for n in range(100)]
    for some in (entries[:90], entries[90:]):  # of ten keys two are dead
        store.publish(topic, some)
        dead = [
            Settlement(one.slot, one.subject, one.seq, "r", one.attempt, EPOCH, Verdict.DEAD)
            for one in pulled(store, topic, "r", position=0).deliveries
        ]
        store.settle(topic, "g", dead)
    store.publish(topic, [entry(topic, "new", f"k{n}", f"new{n}") for n in range(40, 90)])
    asked = asked_statements(monkeypatch)
    assert store.retry_dead(topic, "g") == 100
    assert len(asked) <= 30
    assert store.dead(topic, "g") == [] == store.verify(topic)


def test_an_audit_reads_all_heads_a_page_at_a_time_and_no_bodies(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = begun(store, "delay", 2)
    store.publish(topic, [entry(topic, "body", f"k{n}", str(n)) for n in range(COUNT)])
    one = subjects.c.subject == bindparam("of")
    wrong = Statement(subjects.update().where(one).values(given=bindparam("g")), "g of")
    store._database.write(lambda it: it.run(wrong, (1, f"k{COUNT - 1}")))
    rows, found = Transaction.rows, []

    def noted(self: Transaction, statement: Statement, parameters: Row = ()) -> list[Row]:
        found.append(rows(self, statement, parameters))
        return found[-1]

    monkeypatch.setattr(Transaction, "rows", noted)
    monkeypatch.setattr(audit, "PAGE", 10)
    [told] = store.verify(topic)
    assert f"subject k{COUNT - 1}: not in doing, but with a receipt or a run" in told
    assert max(map(len, found)) <= 10
    assert not any(b'"body"' in row for some in found for row in some)
