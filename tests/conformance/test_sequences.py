"""What several producers number and send out of order is released in sequence."""

from __future__ import annotations

import pytest
from bench import Bench, body_of
from whereabouts import whereabouts

from qframe.topic import Topic

pytestmark = pytest.mark.promise(3)


def topic_of(bench: Bench) -> Topic:
    return bench.topic("ordered", "g", gap_timeout="200ms")


def test_numbers_are_released_in_order_whatever_order_they_come_in(bench: Bench) -> None:
    topic = topic_of(bench)
    for number in (3, 2, 5, 1):
        assert bench.publish(topic, number, "k", sequence=number) == "stored"
    assert bench.bodies(topic) == [1, 2, 3]
    assert bench.total(topic).waiting == 1
    bench.publish(topic, 4, "k", sequence=4)
    assert bench.total(topic).waiting == 0


def test_a_gap_is_waited_for_and_then_passed_and_counted(bench: Bench) -> None:
    topic = topic_of(bench)
    bench.publish(topic, 2, "k", sequence=2)
    bench.advance(50)
    bench.publish(topic, 3, "k", sequence=3)
    assert bench.pull(topic).next_due_ms == 150
    bench.advance(149)
    assert bench.bodies(topic) == []
    bench.advance(1)
    pulled = bench.pull(topic)
    assert ([body_of(one) for one in pulled.deliveries], pulled.gaps) == ([2, 3], 1)


def test_two_gaps_are_passed_one_after_the_other(bench: Bench) -> None:
    topic = topic_of(bench)
    for number in (3, 6):
        bench.publish(topic, number, "k", sequence=number)
    bench.advance(200)
    pulled = bench.pull(topic)
    assert ([body_of(one) for one in pulled.deliveries], pulled.gaps) == ([3, 6], 2)


def test_a_late_number_is_handed_on_at_once(bench: Bench) -> None:
    topic = topic_of(bench)
    bench.publish(topic, 2, "k", sequence=2)
    bench.advance(200)
    assert bench.bodies(topic) == [2]
    bench.publish(topic, 1, "k", sequence=1)
    bench.ack(topic, *bench.got(topic))
    bench.publish(topic, 3, "k", sequence=3)
    assert bench.total(topic).published == 3
    assert bench.total(topic).waiting == 0


def test_keys_are_numbered_each_for_itself_and_reach_every_group(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", "h", gap_timeout="200ms")
    bench.publish(topic, "a2", "a", sequence=2)
    bench.publish(topic, "b1", "b", sequence=1)
    for group in ("g", "h"):
        assert bench.bodies(topic, group) == ["b1"]
    bench.publish(topic, "a1", "a", sequence=1)
    for group in ("g", "h"):
        assert bench.bodies(topic, group) == ["a1", "a2"]


def test_a_held_message_is_explained(bench: Bench) -> None:
    topic = topic_of(bench)
    bench.publish(topic, 5, "k", sequence=5, id="five")
    [record] = whereabouts(bench.store, topic, "five")
    assert (record.state, record.group, record.key) == ("held", None, "k")
    assert record.error == "waits for a sequence number before 5"


def test_each_held_message_is_waited_for_by_its_own_time(bench: Bench) -> None:
    topic = topic_of(bench)
    bench.publish(topic, 3, "k", sequence=3)
    bench.advance(100)
    bench.publish(topic, 6, "k", sequence=6)
    bench.advance(100)
    pulled = bench.pull(topic, lease_ms=1000)
    assert ([body_of(one) for one in pulled.deliveries], pulled.gaps) == ([3], 1)
    assert pulled.next_due_ms == 100
    bench.ack(topic, *pulled.deliveries)
    bench.advance(99)
    assert bench.pull(topic).gaps == 0
    bench.advance(1)
    pulled = bench.pull(topic)
    assert ([body_of(one) for one in pulled.deliveries], pulled.gaps) == ([6], 1)


def test_a_gap_that_was_waited_for_is_also_passed_when_another_number_would_be_held(
    bench: Bench,
) -> None:
    topic = topic_of(bench)
    bench.publish(topic, 2, "k", sequence=2)
    bench.advance(200)
    bench.publish(topic, 5, "k", sequence=5)
    total = bench.total(topic)
    assert (total.todo, total.waiting) == (1, 1)
    bench.publish(topic, 3, "k", sequence=3)
    assert bench.total(topic).todo == 2
    pulled = bench.pull(topic)
    assert [body_of(one) for one in pulled.deliveries] == [2, 3]


def test_a_number_that_is_held_already_is_handed_on_at_once(bench: Bench) -> None:
    topic = topic_of(bench)
    assert bench.publish(topic, "held", "k", sequence=2) == "stored"
    assert bench.publish(topic, "again", "k", sequence=2) == "stored"
    assert bench.bodies(topic) == ["again"]
    assert bench.total(topic).waiting == 1


def test_gaps_of_several_keys_are_passed_in_one_pull(bench: Bench) -> None:
    topic = topic_of(bench)
    for key in ("a", "b"):
        bench.publish(topic, key, key, sequence=2)
    bench.advance(200)
    pulled = bench.pull(topic)
    assert ([body_of(one) for one in pulled.deliveries], pulled.gaps) == (["a", "b"], 2)


def test_unnumbered_messages_of_a_key_are_not_held(bench: Bench) -> None:
    topic = topic_of(bench)
    bench.publish(topic, "numbered", "k", sequence=2)
    bench.publish(topic, "plain", "k")
    assert bench.bodies(topic) == ["plain"]


def test_the_pull_of_one_group_passes_a_gap_for_all(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", "h", gap_timeout="100ms")
    bench.publish(topic, 2, "k", sequence=2)
    bench.advance(100)
    assert bench.pull(topic, "g").gaps == 1
    pulled = bench.pull(topic, "h")
    assert ([body_of(one) for one in pulled.deliveries], pulled.gaps) == ([2], 0)


def test_what_is_held_when_a_group_comes_is_for_it_too(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", gap_timeout="100ms")
    bench.publish(topic, 2, "k", sequence=2)
    bench.store.subscribe(topic, "late")
    bench.take(topic, "late")
    bench.publish(topic, 1, "k", sequence=1)
    assert bench.bodies(topic, "late") == [1, 2]


def test_numbers_are_released_in_order_before_there_is_a_group_too(bench: Bench) -> None:
    topic = bench.topic("ordered")
    for number in (2, 3, 1):
        bench.publish(topic, number, "k", sequence=number)
    bench.store.subscribe(topic, "g")
    bench.take(topic)
    assert bench.bodies(topic) == [1, 2, 3]


def test_a_held_message_that_comes_again_is_a_duplicate(bench: Bench) -> None:
    topic = topic_of(bench)
    assert bench.publish(topic, 2, "k", sequence=2, id="two") == "stored"
    assert bench.publish(topic, 2, "k", sequence=2, id="two") == "duplicate"
    bench.publish(topic, 1, "k", sequence=1)
    assert bench.bodies(topic) == [1, 2]


@pytest.mark.parametrize(
    ("last", "then"), [(1300, [1, 1302, 1301]), (1100, [1, -501, -502, -1000])]
)
def test_a_run_of_very_many_goes_on_in_its_order_whatever_comes_meanwhile(
    bench: Bench, last: int, then: list[int]
) -> None:
    """The first lets all others go, and not all of them at once; a number may come again then."""
    topic = topic_of(bench)
    entries = [bench.entry(topic, n, "k", sequence=n) for n in range(2, last + 1)]
    for start in range(0, len(entries), 500):
        bench.store.publish(topic, entries[start : start + 500])
    for number in then:
        bench.publish(topic, number, "k", sequence=abs(number))
    seen: list[int] = []
    gaps = 0
    while len(seen) < len(entries) + len(then):
        pulled = bench.pull(topic, limit=500, run=500)
        assert pulled.deliveries or pulled.next_due_ms == 0
        seen += [body_of(one) for one in pulled.deliveries]
        gaps += pulled.gaps
        bench.ack(topic, *pulled.deliveries)
    assert [n for n in seen if n > 0] == list(range(1, max(last, *then) + 1))
    assert gaps == 0
    assert bench.total(topic).settled == len(seen)
    assert bench.store.verify(topic) == []
