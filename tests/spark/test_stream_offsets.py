"""A streaming read's offsets: what it asks Spark to keep, how far a batch goes, what follows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from eventually import eventually
from hypothesis import given as given_any
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tables import given
from topics import Space

from qframe import QFrame, Topic
from qframe.admin.totals import totals_in
from qframe.clock import SYSTEM_CLOCK
from qframe.doctor.examine import examine
from qframe.errors import BadInput, BadOption, MessagesGone, TopicMismatch, UnknownTopic
from qframe.options.settings import Settings
from qframe.spark import QFrameDataSource
from qframe.spark.columns import outgoing
from qframe.spark.stream_reader import Offsets, StreamReader, shared_out
from qframe.stores.doubling import Doubling

pytestmark = pytest.mark.gate

ALL = ReadAllAvailable()


@contextmanager
def reading(space: Space, topic: Topic, **options: str) -> Iterator[StreamReader]:
    source = QFrameDataSource(given(**space.options(topic, **options)))
    reader = source.streamReader(source.schema())
    try:
        yield reader
    finally:
        reader.stop()


def at(topic: Topic, *offsets: int) -> Offsets:
    """The offsets of slots 0 and on, as Spark keeps them."""
    return {topic.name: {str(slot): offset for slot, offset in enumerate(offsets)}}


def count(offsets: Offsets) -> int:
    """How many messages lie before them."""
    return sum(offset for by_slot in offsets.values() for offset in by_slot.values())


def read(reader: StreamReader, start: Offsets, end: Offsets) -> list[int]:
    """The bodies of a batch, in order of the partitions."""
    return [
        int(body)
        for part in reader.partitions(start, end)
        for rows in reader.read(part)
        for body in rows.column("body").to_pylist()
    ]


def test_a_query_begins_where_it_is_told(space: Space) -> None:
    topic = space.topic(slots=2)
    space.fill(topic, 100)
    with reading(space, topic) as reader:
        assert reader.initialOffset() == at(topic, 0, 0)
    with reading(space, topic, startingOffsets="latest") as reader:
        heads = reader.initialOffset()
        assert count(heads) == 100
    with reading(space, topic, startingOffsets='{"1": 7}') as reader:
        assert reader.initialOffset() == at(topic, 0, 7)
        assert reader.reportLatestOffset() == heads


def test_a_batch_that_is_committed_is_followed_by_a_sweep(space: Space) -> None:
    """Topics that queries alone read were never swept."""
    topic = space.topic(slots=1, dedupe_window="1ms")
    space.fill(topic, 40)
    with reading(space, topic) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        published_ms = space.store.now_ms(topic)
        eventually(lambda: space.store.now_ms(topic) > published_ms + 1)
        reader.commit(end)
    assert space.store.sweep(topic) == 0


def test_batches_follow_each_other_without_gap_or_overlap(space: Space) -> None:
    topic = space.topic()
    space.fill(topic, 500)
    with reading(space, topic, maxMessagesPerTrigger="90") as reader:
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(90)
        start, seen = reader.initialOffset(), []
        while (end := reader.latestOffset(start, limit)) != start:
            batch = read(reader, start, end)
            assert len(batch) <= 90
            seen += batch
            start = end
        assert sorted(seen) == list(range(500))
        space.fill(topic, 10, first=500)
        assert count(reader.latestOffset(start, ALL)) == 510


def test_a_run_that_takes_what_is_available_does_not_take_what_comes_later(space: Space) -> None:
    topic = space.topic()
    space.fill(topic, 50)
    with reading(space, topic) as reader:
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        space.fill(topic, 50, first=50)
        assert count(reader.latestOffset(start, ALL)) == 50
        beyond = reader.reportLatestOffset()
        assert reader.latestOffset(beyond, ALL) == beyond


def test_the_same_offsets_give_the_same_rows_again(space: Space) -> None:
    topic = space.topic()
    space.fill(topic, 50)
    with reading(space, topic) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(20))
        before = read(reader, start, end)
    space.fill(topic, 50, first=50)
    with reading(space, topic) as reader:
        assert read(reader, start, end) == before


def test_a_group_has_moved_behind_a_batch_when_spark_looks_for_the_next_one(space: Space) -> None:
    """Spark commits a batch when it plans another: until there is one, the last stayed due."""
    topic = space.topic(slots=2)
    space.fill(topic, 40)
    with reading(space, topic, group="archive") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert sum(one.todo for one in space.store.stats(topic, "archive")) == 40
        assert reader.latestOffset(end, ALL) == end  # the batch is done, and there is no other
        assert sum(one.todo for one in space.store.stats(topic, "archive")) == 0
    facts, *_ = [each for each in totals_in(space.store, topic).groups if each.group == "archive"]
    assert facts.tuning.reader == "spark"


def test_doctor_advises_no_worker_for_a_group_that_follows_a_query(space: Space) -> None:
    topic = space.topic(slots=2)
    with reading(space, topic, group="archive") as reader:
        reader.initialOffset()
    space.fill(topic, 40)
    seen = examine(Settings.load(store=space.url, namespace=space.namespace), SYSTEM_CLOCK)
    assert [each.what for each in seen.findings if each.check == "workers"] == [
        "orders/g has 40 messages due or in hand, and no worker is alive"
    ]


def test_a_worker_refuses_the_group_of_a_query_which_goes_on(space: Space) -> None:
    """The query could not begin again: its group had been used by a worker."""
    topic = space.topic(slots=2)
    with reading(space, topic, group="archive") as reader:
        reader.initialOffset()
    with QFrame(store=space.url, namespace=space.namespace) as app:
        app.consumer(topic, "archive")(lambda: None)
        with pytest.raises(BadOption, match="group 'archive': it follows a Spark query of topic"):
            app.run(burst=True)
    with reading(space, topic, group="archive") as reader:
        assert reader.initialOffset() == at(topic, 0, 0)


def test_a_group_follows_behind_what_is_done_and_holds_back_removing(space: Space) -> None:
    topic = Topic("orders", "stream", 1, retain=0)
    space.store.declare(topic)
    space.fill(topic, 100)
    with reading(space, topic, group="archive") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(40))
        space.trim(topic)
        assert len(read(reader, start, end)) == 40
        reader.commit(end)
        [stats] = space.store.stats(topic, "archive")
        assert (stats.floor, stats.todo, stats.settled) == (40, 60, 0)
        space.trim(topic)
        assert space.store.offsets_at(topic, 0) == {0: 40}
        assert len(read(reader, end, reader.latestOffset(end, ALL))) == 60
        space.store.seek(topic, "archive", {0: 50})
        reader.commit(end)  # there is nothing new, so it is not moved
        assert space.store.stats(topic, "archive")[0].floor == 50
    with reading(space, topic, group="archive") as reader:
        reader.commit(reader.latestOffset(end, ReadMaxRows(30)))
    assert space.store.stats(topic, "archive")[0].floor == 70
    assert space.store.verify(topic) == []


def test_a_group_that_workers_use_is_not_moved(space: Space) -> None:
    topic = space.topic()
    space.fill(topic, 10)
    assert len(space.messages(topic)) == 10
    with (
        reading(space, topic, group="g") as reader,
        pytest.raises(BadInput, match="option group 'g': workers use this group"),
    ):
        reader.initialOffset()
    assert sum(one.doing for one in space.store.stats(topic, "g")) == 10


def test_what_was_removed_below_the_checkpoint_is_an_error_or_left_out(space: Space) -> None:
    topic = Topic("old", "stream", 1, retain=0)
    space.store.declare(topic)
    space.fill(topic, 10)
    with reading(space, topic) as reader:
        start = reader.initialOffset()
    space.trim(topic)
    space.fill(topic, 5, first=10)
    with reading(space, topic) as reader:
        end = reader.latestOffset(start, ALL)
        with pytest.raises(MessagesGone, match=r"offsets 0 to 9 .* failOnDataLoss"):
            reader.partitions(start, end)
        assert reader.partitions(start, start) == []  # nothing of it is to be read
    with reading(space, topic, failOnDataLoss="false") as reader:
        assert read(reader, start, end) == [10, 11, 12, 13, 14]


def test_a_slot_that_ends_before_the_checkpoint_is_an_error_or_goes_on_from_its_end(
    space: Space,
) -> None:
    topic = space.topic("older", slots=2)
    space.fill(topic, 30)
    with reading(space, topic) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)[topic.name]["0"]
        ahead = at(topic, end + 5, 0)  # as read before a server lost its last moments
        with pytest.raises(MessagesGone) as caught:
            reader.latestOffset(ahead, ALL)
    gone = caught.value
    assert (gone.slot, gone.first, gone.kept) == (0, end, end + 5)
    assert "came back with an older state" in gone.__notes__[0]
    with reading(space, topic, failOnDataLoss="false") as reader:
        back = reader.latestOffset(ahead, ReadMaxRows(4))
        assert back == at(topic, end, 4)
        assert len(read(reader, ahead, back)) == 4
        space.fill(topic, 30, first=30)
        news = read(reader, back, reader.latestOffset(back, ALL))
        assert len(news) == 60 - end - 4


def test_a_checkpoint_of_another_slot_count_is_refused(redis_space: Space) -> None:
    topic = redis_space.topic(slots=4)
    with (
        reading(redis_space, topic) as reader,
        pytest.raises(TopicMismatch, match="declared with slots=4"),
    ):
        reader.latestOffset(at(topic, 5, 5), ALL)


def test_a_query_ends_when_its_topic_grows_and_does_not_go_on_from_its_checkpoint(
    space: Space,
) -> None:
    topic = space.topic(slots=2)
    space.fill(topic, 50)
    with reading(space, topic) as reader:
        start = reader.initialOffset()
        read_all = reader.latestOffset(start, ALL)
        assert sorted(read(reader, start, read_all)) == list(range(50))
        doubling = Doubling(space.store, topic.name, owned=lambda *_: (), pause=lambda _: None)
        doubling.finish(doubling.begin(4))
        with pytest.raises(BadInput, match="it grows, or has grown: its slots are 2 to 5"):
            reader.latestOffset(read_all, ALL)
    with reading(space, topic) as reader:
        with pytest.raises(BadInput, match="with another checkpoint"):
            reader.latestOffset(read_all, ALL)
        start = reader.initialOffset()
        assert sorted(start[topic.name]) == ["2", "3", "4", "5"]
        assert sorted(read(reader, start, reader.latestOffset(start, ALL))) == list(range(50))


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_batch_whose_slots_are_split_before_it_is_read_fails_and_leaves_nothing_out(
    space: Space, loss: str
) -> None:
    topic = space.topic(slots=2)
    space.fill(topic, 50)
    with reading(space, topic, failOnDataLoss=loss) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        planned = reader.partitions(start, end)
        doubling = Doubling(space.store, topic.name, owned=lambda *_: (), pause=lambda _: None)
        doubling.finish(doubling.begin(4))
        for part in [*planned, *reader.partitions(start, end)]:
            with pytest.raises(BadInput, match="it grows, or has grown: its slots are 2 to 5"):
                list(reader.read(part))


def test_a_query_ends_when_its_topic_is_deleted(space: Space) -> None:
    topic = space.topic(slots=2)
    space.fill(topic, 50)
    with reading(space, topic, failOnDataLoss="false") as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        with QFrame(store=space.url, namespace=space.namespace) as app:
            app.admin.delete_topic(topic.name, confirm=topic.name)
        with pytest.raises(UnknownTopic, match="'orders'"):
            reader.latestOffset(end, ALL)


def test_a_checkpoint_of_another_topic_is_refused(space: Space) -> None:
    """Its offsets would pass over this topic's first messages."""
    one, other = space.topic("one"), space.topic("other")
    space.fill(one, 50)
    space.fill(other, 500)
    with reading(space, one) as reader:
        read_all = reader.latestOffset(reader.initialOffset(), ALL)
    with (
        reading(space, other) as reader,
        pytest.raises(BadInput, match=r"\['one'\]: its offsets are not those of topic 'other'"),
    ):
        reader.latestOffset(read_all, ALL)


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("ordered", {}, "option topic"),
        ("stream", {"group": "g", "deadLetters": "true"}, "option deadLetters"),
        ("stream", {"endingOffsets": '{"0": 5}'}, "option endingOffsets"),
        ("stream", {"maxMessagesPerTrigger": "0"}, "option maxMessagesPerTrigger '0'"),
        ("stream", {"pushFilters": "true"}, "option pushFilters"),
    ],
)
def test_a_wrong_option_is_named(
    redis_space: Space, kind: str, options: dict[str, str], named: str
) -> None:
    topic = redis_space.topic(kind=kind)
    source = QFrameDataSource(given(**redis_space.options(topic, **options)))
    with pytest.raises(BadInput, match=named):
        source.streamReader(outgoing(raw=False, dead=False))


@given_any(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=9),
    st.integers(1, 200),
)
def test_a_batch_is_as_large_as_it_may_be_and_no_slot_is_left_out(
    slots: list[tuple[int, int]], most: int
) -> None:
    begin = {slot: at for slot, (at, _) in enumerate(slots)}
    end = {slot: at + more for slot, (at, more) in enumerate(slots)}
    shared = shared_out(begin, end, most)
    assert all(begin[slot] <= shared[slot] <= end[slot] for slot in begin)
    assert sum(shared.values()) - sum(begin.values()) == min(most, sum(more for _, more in slots))
    if most >= len(slots):
        assert all(shared[slot] > begin[slot] for slot in begin if end[slot] > begin[slot])


@given_any(
    begin=st.lists(st.integers(0, 1000), min_size=1, max_size=8),
    heads=st.lists(st.integers(1, 10**6), min_size=8, max_size=8),
    most=st.integers(1, 10),
)
def test_every_slot_that_has_something_is_served_however_small_a_batch_is(
    begin: list[int], heads: list[int], most: int
) -> None:
    """Also where others have more, or less, all the time."""
    at = dict(enumerate(begin))
    served: set[int] = set()
    for _ in range(-(-len(at) // most) + 1):
        end = {slot: offset + heads[slot] for slot, offset in at.items()}  # more has come
        ends = shared_out(at, end, most)
        served |= {slot for slot in at if ends[slot] > at[slot]}
        at = ends
    assert served == set(at)
