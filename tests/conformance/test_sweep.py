"""Tidying takes what is settled and old, and nothing else."""

from __future__ import annotations

from bench import Bench


def test_a_stream_keeps_settled_messages_for_retain_and_unsettled_ones_for_ever(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g", "h", retain="200ms", dedupe_window="1h")
    for number in range(4):
        bench.publish(topic, number)
    bench.ack(topic, *bench.got(topic))
    bench.ack(topic, *bench.got(topic, "h")[:2], group="h")
    bench.advance(199)
    assert bench.store.sweep(topic) == 0
    bench.advance(1)
    assert bench.store.sweep(topic) == 2
    bench.store.seek(topic, "g", {0: 0})
    assert bench.bodies(topic) == [2, 3]


def test_a_new_group_of_a_trimmed_stream_starts_at_what_is_kept(bench: Bench) -> None:
    topic = bench.topic("stream", "g", retain="50ms")
    for number in range(3):
        bench.publish(topic, number)
    bench.ack(topic, *bench.got(topic)[:2])
    bench.advance(50)
    bench.store.sweep(topic)
    bench.store.subscribe(topic, "late")
    bench.take(topic, "late")
    assert bench.bodies(topic, "late") == [2]


def test_a_stream_without_groups_is_trimmed_by_age(bench: Bench) -> None:
    topic = bench.topic("stream", retain="50ms", dedupe_window="1h")
    bench.publish(topic, 1)
    bench.advance(50)
    bench.publish(topic, 2)
    assert bench.store.sweep(topic) == 1


def test_a_retry_survives_the_trimming_of_the_log_under_it(bench: Bench) -> None:
    topic = bench.topic("stream", "g", retain="50ms")
    bench.publish(topic, 1)
    bench.retry(topic, *bench.got(topic), delay_ms=200)
    bench.advance(100)
    assert bench.store.sweep(topic) >= 1
    bench.advance(100)
    assert bench.bodies(topic) == [1]


def test_marks_go_after_the_window_in_steps_no_larger_than_asked(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", dedupe_window="100ms")
    for number in range(5):
        bench.publish(topic, number, id=f"m{number}")
    assert bench.store.sweep(topic) == 0
    bench.advance(100)
    assert [bench.store.sweep(topic, 2) for _ in range(4)] == [2, 2, 1, 0]
