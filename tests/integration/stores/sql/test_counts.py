"""The counts that follow by subtraction are those of a count row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import msgspec
import pytest
from databases import EPOCH, begun, entry

from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.stores.records import Stats
from qframe.stores.sql import counts
from qframe.stores.sql.row_counts import counted_by_rows
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import PullRequest, PullTerms, Settlement
from qframe.topic import Topic

FAR_MS = 3_600_000


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[SqlStore]:
    """A store in an empty database."""
    name = request.param
    url = f"sqlite:///{tmp_path}/q.db"
    if name != "sqlite":
        url = request.getfixturevalue(name).new_database()
    store = SqlStore(url)
    yield store
    store.close()


@pytest.mark.gate
@pytest.mark.parametrize("is_most_due", [True, False])
@pytest.mark.parametrize("kind", ["ordered", "priority"])
def test_whichever_part_is_the_smaller_one_the_counts_are_those_of_the_rows(
    store: SqlStore, kind: str, is_most_due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_AT_FIRST", 2)
    monkeypatch.setattr(counts, "_GROWS", 2)
    topic = begun(store, kind, 2)
    due, later = (30, 9) if is_most_due else (9, 30)
    store.publish(topic, [
        msgspec.structs.replace(
            entry(topic, 1, f"k{key}", f"{again}{key}"),
            delay_ms=None if key < due else FAR_MS, priority=key % 3,
        )
        for again in range(2)
        for key in range(0, due + later, 1 + 3 * again)  # some keys have a second message
    ])  # fmt: skip
    verdicts = (Verdict.RETRY, Verdict.RETRY, Verdict.DEAD, Verdict.ACK)
    store.settle(topic, "g", [
        Settlement(
            one.slot, one.subject, one.seq, "r1", 1, EPOCH, verdict, delay_ms=FAR_MS, error="no"
        )
        for one, verdict in zip(_pulled(store, topic, "r1"), cycle(verdicts), strict=False)
    ])  # fmt: skip
    _pulled(store, topic, "r2")

    assert _counts(store.stats(topic, "g")) == _counts(_recounted(store, topic))


def _pulled(store: SqlStore, topic: Topic, receipt: str) -> Sequence[Delivery]:
    asks = [PullRequest(slot, EPOCH, 4) for slot in range(topic.slots)]
    return store.pull(topic, "g", asks, PullTerms(receipt, 60_000, 9)).deliveries


def _recounted(store: SqlStore, topic: Topic) -> Sequence[Stats]:
    ref = store._ref(topic)
    return store._database.read(
        lambda it: counted_by_rows(it, ref, counts.known_group(it, ref, "g"), "g", it.now_ms())
    )


def _counts(stats: Sequence[Stats]) -> list[tuple[int, ...]]:
    return [
        (one.slot, one.waiting, one.retrying, one.todo, one.doing, one.dead, one.settled)
        for one in stats
    ]
