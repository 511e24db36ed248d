"""Where a batch of a streaming read ends, over a store that says what the test wants."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable

from qframe.errors import MessagesGone
from qframe.message import Delivery
from qframe.spark.filters import Bounds
from qframe.spark.options import TopicAddress, read_options
from qframe.spark.ranges import PAGE, PAGE_BYTES, Range, _fitting, read_range
from qframe.spark.stream_reader import StreamReader
from qframe.topic import Topic

pytestmark = pytest.mark.gate

TOPIC = Topic("orders", "stream", 2)
ALL = ReadAllAvailable()
FOREVER = 2**63 - 1


class LogStore:
    """A store whose log begins and ends as it is told."""

    def __init__(self) -> None:
        self.firsts, self.heads = {0: 0, 1: 0}, {0: 0, 1: 0}
        self.moved: list[dict[int, int]] = []

    def offsets_at(self, _topic: Topic, at_ms: int) -> dict[int, int]:
        return dict(self.heads if at_ms else self.firsts)

    def latest(self, topics: list[Topic]) -> list[Topic]:
        return topics

    def subscribe(self, *_: object) -> None:
        """Has a group already."""

    def epochs(self, *_: object) -> dict[int, str]:
        return {}

    def seek(self, _topic: Topic, _group: str, offsets: dict[int, int]) -> None:
        self.moved.append(offsets)

    def read_log(self, _topic: Topic, slot: int, first: int, _most: int) -> list[Delivery]:
        """What is there from an offset on; of settled messages there are none."""
        return [_message(slot, seq) for seq in (3, 7, 9) if seq >= first]

    def close(self) -> None:
        """Is used again."""


def _message(slot: int, seq: int) -> Delivery:
    found: Any = SimpleNamespace(
        slot=slot, seq=seq, id=str(seq), key=None, body=str(seq).encode(), headers=None,
        published_at_ms=1,
    )  # fmt: skip
    delivery: Delivery = found
    return delivery


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LogStore:
    store = LogStore()
    monkeypatch.setattr(TopicAddress, "open", lambda _: store)
    return store


def reader(**options: str) -> StreamReader:
    return StreamReader(TopicAddress("model://", "n", TOPIC), read_options(options))


def at(first: int, second: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": first, "1": second}}


def test_a_run_that_was_to_end_before_its_start_reads_nothing(store: LogStore) -> None:
    stream = reader()
    store.heads = {0: 2, 1: 5}
    stream.prepareForTriggerAvailableNow()
    store.heads = {0: 9, 1: 9}
    assert stream.latestOffset(at(4, 4), ALL) == at(4, 5)


def test_what_is_gone_where_nothing_is_read_is_no_loss(store: LogStore) -> None:
    store.firsts = {0: 8, 1: 0}
    assert reader().partitions(at(4, 2), at(4, 3)) == [Range(1, 2, 3)]
    with pytest.raises(MessagesGone):
        reader().partitions(at(4, 2), at(5, 3))


def test_a_group_that_follows_is_moved_where_there_is_something_new(store: LogStore) -> None:
    stream = reader(group="follower")
    for ends in (at(1, 1), at(1, 4), at(1, 4)):
        stream.commit(ends)
    assert store.moved == [{0: 1, 1: 1}, {1: 4}]


def test_a_range_has_nothing_behind_its_end(store: LogStore) -> None:
    address = TopicAddress("model://", "n", TOPIC)
    options = read_options({"failOnDataLoss": "false"})
    offsets = [
        offset
        for rows in read_range(address, options, Range(0, 0, 8))
        for offset in rows.column("offset").to_pylist()
    ]
    assert offsets == [3, 7]


@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [
        (EqualTo, 5, 6), (LessThan, 0, 5), (LessThanOrEqual, 0, 6),
        (GreaterThan, 6, FOREVER), (GreaterThanOrEqual, 5, FOREVER),
    ],
)  # fmt: skip
def test_a_filter_of_offsets_leaves_what_it_says(kind: type[Any], first: int, end: int) -> None:
    bounds = Bounds()
    assert bounds.take([kind(("offset",), 5)]) == []
    assert (bounds.first, bounds.end) == (first, end)


def test_a_filter_of_times_leaves_more_than_it_says_and_is_left_to_spark() -> None:
    bounds, moment = Bounds(), datetime(2026, 1, 1, microsecond=500, tzinfo=UTC)
    filters: list[Any] = [
        GreaterThanOrEqual(("published_at",), moment), LessThanOrEqual(("published_at",), moment),
    ]  # fmt: skip
    assert bounds.take(filters) == filters
    ms = 1_767_225_600_000
    assert (bounds.since_ms, bounds.until_ms) == (ms, ms + 1)


def test_the_next_page_is_as_long_as_bodies_of_this_size_allow() -> None:
    def page(size: int) -> list[Delivery]:
        one: Any = SimpleNamespace(body=b"x" * size)
        return [one] * 10

    sizes = [_fitting(page(size)) for size in (0, 1000, 1_000_000, PAGE_BYTES * 2)]
    assert sizes == [PAGE, PAGE, PAGE_BYTES // 1_000_000, 1]
