"""What several producers number and send out of order is released in sequence."""

from __future__ import annotations

from bench import Bench, body_of

from qframe.topic import Topic


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
    [record] = bench.store.explain(topic, "five")
    assert (record.state, record.group, record.key) == ("held", None, "k")
    assert record.error == "waits for a sequence number before 5"
