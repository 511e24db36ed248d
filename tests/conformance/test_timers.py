"""What is not handed out yet can be moved, changed, cancelled and looked up."""

from __future__ import annotations

import pytest
from bench import Bench, body_of

SUBJECTS = ("ordered", "delay", "priority", "merge")


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_is_moved_earlier_and_later_for_every_group(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k", delay_ms=300)
    now = bench.store.now_ms()
    assert bench.store.move(topic, "k", now + 400) == "done"
    assert bench.store.move(topic, "k", now + 100) == "done"
    bench.advance(99)
    assert bench.bodies(topic) == []
    bench.advance(1)
    assert bench.bodies(topic) == [1]
    assert bench.bodies(topic, "h") == [1]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_is_changed_until_it_is_handed_out(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=50)
    assert bench.store.change(topic, "k", b"2", {"h": "x"}) == "done"
    bench.advance(50)
    assert bench.store.change(topic, "k", b"3", {"h": "y"}) == "done"
    [one] = bench.got(topic)
    assert (body_of(one), one.headers) == (3, {"h": "y"})
    for answer in (
        bench.store.change(topic, "k", b"4", None),
        bench.store.move(topic, "k", 0),
        bench.store.cancel(topic, "k"),
    ):
        assert answer == "doing"
    assert bench.total(topic).doing == 1


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_cancelled_timer_never_comes_and_is_counted(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=50)
    assert bench.store.cancel(topic, "k") == "done"
    assert bench.store.cancel(topic, "k") == "absent"
    bench.advance(100)
    assert bench.bodies(topic) == []
    assert bench.total(topic).cancelled == 1


def test_if_one_group_has_it_in_doing_nothing_is_changed_for_any(bench: Bench) -> None:
    topic = bench.topic("delay", "g", "h")
    bench.publish(topic, 1, "k")
    bench.got(topic, "h")
    assert bench.store.cancel(topic, "k") == "doing"
    assert bench.bodies(topic, "g") == [1]


def test_cancelling_an_ordered_subject_takes_all_its_messages(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    assert bench.store.cancel(topic, "k") == "done"
    assert (bench.total(topic).cancelled, bench.total(topic).todo) == (3, 0)


def test_a_timer_without_a_key_is_found_by_its_subject(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=4)
    bench.publish(topic, "body", delay_ms=100)
    [record] = bench.store.timers(topic)
    assert record.subject is not None
    assert bench.store.cancel(topic, record.subject) == "done"


def test_timers_are_listed_by_due_time_within_a_span(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=4)
    now = bench.store.now_ms()
    for ms in (300, 100, 200, 0):
        bench.publish(topic, ms, f"k{ms}", delay_ms=ms)
    assert [record.key for record in bench.store.timers(topic)] == ["k100", "k200", "k300"]
    span = bench.store.timers(topic, from_ms=now + 100, until_ms=now + 300)
    assert [record.key for record in span] == ["k100", "k200"]
    assert [record.key for record in bench.store.timers(topic, limit=1)] == ["k100"]
    [record] = bench.store.timer(topic, "k200")
    assert (record.state, record.due_ms, record.group) == ("waiting", now + 200, "g")
    assert bench.store.timer(topic, "none") == []
