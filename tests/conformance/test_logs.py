"""A stream's log is read by offsets, and nobody's position is moved by it."""

from __future__ import annotations

from bench import Bench, body_of
from whereabouts import whereabouts

from qframe.codec import batch_mark
from qframe.message import Delivery
from qframe.topic import Topic


def publish(bench: Bench, topic: Topic, first: int, count: int) -> None:
    """Publishes numbers as one batch, keys and headers to some."""
    token = f"{first:020d}"
    bench.store.publish(
        topic,
        [
            bench.entry(
                topic, number, f"k{number}" if number % 2 else None,
                id=f"{token}-{number}", mark=batch_mark(token),
                headers={"n": str(number)} if number % 3 else None,
            )
            for number in range(first, first + count)
        ],
    )  # fmt: skip


def offsets(messages: list[Delivery]) -> list[int]:
    return [each.seq for each in messages]


def test_a_log_is_read_from_any_offset_as_far_as_is_asked(bench: Bench) -> None:
    topic = bench.topic("stream")
    for first, count in ((0, 3), (3, 1), (4, 40), (44, 1)):
        publish(bench, topic, first, count)
    read = bench.store.read_log
    assert [body_of(each) for each in read(topic, 0, 0, 100)] == list(range(45))
    assert offsets(read(topic, 0, 2, 5)) == [2, 3, 4, 5, 6]
    assert offsets(read(topic, 0, 43, 5)) == [43, 44]
    assert read(topic, 0, 45, 5) == []
    assert read(topic, 0, 10, 0) == []


def test_a_long_log_of_small_and_large_batches_is_read_whole(bench: Bench) -> None:
    topic = bench.topic("stream")
    first = 0
    for count in [1] * 40 + [300] + [2] * 30:
        publish(bench, topic, first, count)
        first += count
    assert offsets(bench.store.read_log(topic, 0, 7, 1000)) == list(range(7, first))


def test_what_is_read_is_told_whole(bench: Bench) -> None:
    topic = bench.topic("stream")
    publish(bench, topic, 0, 6)
    one = bench.store.read_log(topic, 0, 5, 1)[0]
    assert (one.id, one.key, one.headers) == (f"{0:020d}-5", "k5", {"n": "5"})
    assert (one.slot, one.seq, one.receipt, one.subject) == (0, 5, "", None)
    [delivered] = [each for each in whereabouts(bench.store, topic, one.id) if each.seq == 5]
    assert one.published_at_ms == delivered.published_at_ms


def test_reading_moves_no_group(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    publish(bench, topic, 0, 4)
    bench.store.read_log(topic, 0, 0, 10)
    assert bench.total(topic).todo == 4
    assert bench.bodies(topic) == [0, 1, 2, 3]
    assert offsets(bench.store.read_log(topic, 0, 0, 10)) == [0, 1, 2, 3]


def test_what_was_removed_is_missing(bench: Bench) -> None:
    topic = bench.topic("stream", retain=1)
    publish(bench, topic, 0, 10)
    bench.advance(2000)
    publish(bench, topic, 10, 2)
    bench.store.sweep(topic, 4)
    kept = offsets(bench.store.read_log(topic, 0, 0, 100))
    assert kept == list(range(kept[0], 12))
    assert 0 < kept[0] <= 10
    while bench.store.sweep(topic):
        pass
    assert offsets(bench.store.read_log(topic, 0, 0, 100)) == [10, 11]


def test_what_is_no_stream_has_no_log(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    bench.publish(topic, 1, "k")
    assert bench.store.read_log(topic, 0, 0, 10) == []
