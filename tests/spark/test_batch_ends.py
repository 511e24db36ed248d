"""What a task reads: filters that are pushed down, and pages of a log that has gaps."""

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
from tables import given
from topics import Space

from qframe.errors import BadOption
from qframe.message import Delivery
from qframe.spark import QFrameDataSource
from qframe.spark.filters import Bounds
from qframe.spark.options import TopicAddress, read_options
from qframe.spark.ranges import PAGE, PAGE_BYTES, Range, _fitting, read_range
from qframe.topic import Topic

pytestmark = pytest.mark.gate

FOREVER = 2**63 - 1


def test_a_range_has_nothing_behind_its_end_where_settled_messages_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic("orders", "stream", 2)
    log: list[Any] = [
        SimpleNamespace(
            slot=0, seq=seq, id=str(seq), key=None, body=b"1", headers=None, published_at_ms=1
        )
        for seq in (3, 7, 9)
    ]
    store = SimpleNamespace(
        read_log=lambda _topic, _slot, first, _most: [each for each in log if each.seq >= first],
        latest=lambda topics: topics, close=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr(TopicAddress, "open", lambda _: store)
    rows = read_range(
        TopicAddress("model://", "n", topic), read_options({"failOnDataLoss": "false"}),
        Range(0, 0, 8),
    )  # fmt: skip
    assert [each for part in rows for each in part.column("offset").to_pylist()] == [3, 7]


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_an_offset_beyond_the_end_is_an_error_unless_losses_are_none(
    space: Space, name: str
) -> None:
    """Nothing was read, or less than was asked for, without a word."""
    topic = space.topic(slots=1)
    space.fill(topic, 10)

    def planned(offset: int, **more: str) -> int:
        source = QFrameDataSource(
            given(**space.options(topic, **{name: f'{{"0": {offset}}}'}, **more))
        )
        return len(source.reader(source.schema()).partitions())

    with pytest.raises(BadOption, match=rf"{name} \{{0: 11\}}: slot 0 ends at offset 10"):
        planned(11)
    read_all = name == "endingOffsets"
    assert planned(11, failOnDataLoss="false") == planned(10) == read_all


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
