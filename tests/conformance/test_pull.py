"""Handing out: the order among due subjects, due times that are replaced, windows and limits."""

from __future__ import annotations

import pytest
from bench import SETTLED, STALE, Bench, body_of

from qframe.stores.types import PullRequest, PullTerms

SUBJECTS = ("ordered", "delay", "priority", "merge")
KINDS = ("stream", *SUBJECTS)
REPLACING = ("delay", "priority", "merge")


@pytest.mark.parametrize("kind", SUBJECTS)
def test_among_equal_priorities_the_earlier_due_goes_before_the_earlier_published(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    for key, delay_ms in (("a", 90), ("b", 60), ("c", 30)):
        bench.publish(topic, key, key, delay_ms=delay_ms)
    bench.advance(100)
    assert bench.bodies(topic) == ["c", "b", "a"]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_what_is_due_at_the_same_moment_goes_in_the_order_of_publishing(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    at_ms = bench.store.now_ms() + 50
    for key in ("z", "m", "a", "q"):
        bench.publish(topic, key, key, at_ms=at_ms)
    bench.advance(50)
    assert bench.bodies(topic) == ["z", "m", "a", "q"]


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", ["ordered", "priority"])
def test_a_higher_priority_goes_before_an_earlier_due_but_not_before_it_is_due(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "high", "high", priority=9, delay_ms=100)
    for key in ("low", "lower"):
        bench.publish(topic, key, key)
    assert bench.bodies(topic, limit=1) == ["low"]
    bench.advance(100)
    assert bench.bodies(topic) == ["high", "lower"]


@pytest.mark.parametrize("kind", ["priority"])
def test_of_very_many_that_fall_due_at_once_the_highest_goes_first(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    number = 2100
    entries = [
        bench.entry(topic, each, f"k{each}", priority=each % 7, delay_ms=100)
        for each in range(number)
    ]
    for start in range(0, number, 500):
        bench.store.publish(topic, entries[start : start + 500])
    bench.advance(100)
    pulled = bench.pull(topic, limit=number)
    while not pulled.deliveries:  # they are ranked in steps, and none is handed out before
        assert pulled.next_due_ms == 0
        pulled = bench.pull(topic, limit=number)
    seen = [int(one.body) for one in pulled.deliveries]
    highest_first = sorted(range(number), key=lambda each: (-(each % 7), each))
    assert seen == highest_first[: len(seen)]
    assert bench.total(topic).todo == number - len(seen)
    assert bench.store.verify(topic) == []


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", REPLACING)
def test_the_next_round_is_due_at_its_own_time_once_the_first_is_settled(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    for verdict in (bench.ack, bench.kill):
        bench.publish(topic, 1, "k")
        [first] = bench.got(topic)
        assert bench.publish(topic, 2, "k", delay_ms=100) == "stored"
        assert verdict(topic, first) == SETTLED
        assert bench.total(topic).waiting == 1
        bench.advance(99)
        assert bench.got(topic) == []
        bench.advance(1)
        [second] = bench.got(topic)
        assert (body_of(second), second.attempt) == (2, 1)
        bench.ack(topic, second)


@pytest.mark.parametrize(
    ("kind", "due_ms"),
    [("delay", [50, 300]), ("priority", [50, 300]), ("merge", [50, 50])],
)
def test_a_further_one_replaces_the_next_round_by_the_kinds_own_rule(
    bench: Bench, kind: str, due_ms: list[int]
) -> None:
    for delay_ms, expected in zip((50, 300), due_ms, strict=True):
        topic = bench.topic(kind, "g")
        bench.publish(topic, 1, "k")
        [first] = bench.got(topic)
        assert bench.publish(topic, 2, "k", delay_ms=50) == "stored"
        bench.publish(topic, 3, "k", delay_ms=delay_ms)
        bench.ack(topic, first)
        assert bench.pull(topic).next_due_ms == expected
        assert bench.total(topic).published == 2


@pytest.mark.parametrize(("kind", "expected"), [("delay", 300), ("priority", 300), ("merge", 100)])
def test_a_next_round_to_come_is_applied_to_the_due_time_of_the_retry(
    bench: Bench, kind: str, expected: int
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic)
    bench.publish(topic, 2, "k", delay_ms=300)
    bench.retry(topic, first, delay_ms=100)
    assert bench.pull(topic).next_due_ms == expected
    bench.advance(expected)
    assert bench.bodies(topic) == [2]
    assert bench.total(topic).published == 1


def test_an_absorbed_next_round_brings_its_priority(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    bench.publish(topic, "a", "a", priority=1)
    [first] = bench.got(topic)
    bench.publish(topic, "b", "b", priority=5)
    bench.publish(topic, "a2", "a", priority=9)
    bench.release(topic, first)
    assert bench.bodies(topic) == ["a2", "b"]


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("how", ["release", "lose"])
def test_what_was_released_or_lost_is_due_when_it_was(bench: Bench, kind: str, how: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b"):
        bench.publish(topic, key, key)
        bench.advance(10)
    [first] = bench.got(topic, limit=1, lease_ms=50)
    bench.advance(50)
    if how == "release":
        bench.release(topic, first)
    assert bench.bodies(topic) == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_again_and_what_is_new_are_no_more_together_than_was_asked(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    for number in range(8):
        bench.publish(topic, number, f"k{number}")
    bench.retry(topic, *bench.got(topic, limit=3))
    bench.release(topic, *bench.got(topic, limit=1))
    found = [len(bench.got(topic, limit=limit, lease_ms=9000)) for limit in (2, 3, 3)]
    assert found == [2, 3, 3]
    assert bench.total(topic).doing == 8


@pytest.mark.promise(6)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_handed_out_too_often_is_dead_with_the_error_of_its_last_retry(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    for error in ("first", "second"):
        got = bench.got(topic, max_attempts=3)
        bench.retry(topic, *got, error=error, traceback=f"{error}\nline")
    bench.got(topic, lease_ms=50, max_attempts=3)
    bench.advance(50)
    pulled = bench.pull(topic, max_attempts=3)
    assert (pulled.deliveries, pulled.dead) == ([], 1)
    [letter] = bench.store.dead(topic, "g")
    assert (letter.error, letter.traceback, letter.attempts) == ("second", "second\nline", 3)


@pytest.mark.parametrize("kind", REPLACING)
def test_what_absorbed_its_next_round_is_not_buried_for_the_attempts_of_the_first(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    bench.got(topic, lease_ms=50)
    bench.publish(topic, 2, "k")
    bench.advance(50)
    pulled = bench.pull(topic, max_attempts=1)
    assert (pulled.dead, pulled.lost) == (0, 1)
    assert [body_of(one) for one in pulled.deliveries] == [2]


def test_all_of_a_streams_window_bears_the_receipt_under_which_it_began(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    first = bench.got(topic, limit=2, receipt="one")
    second = bench.got(topic, limit=1, receipt="two")
    assert {one.receipt for one in (*first, *second)} == {"one"}
    assert bench.ack(topic, *first, *second) == SETTLED * 3
    assert [one.receipt for one in bench.got(topic, receipt="three")] == ["three"]


@pytest.mark.promise(1)
def test_only_what_is_unsettled_leaves_the_line_with_a_streams_lease(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number)
    got = bench.got(topic, limit=4, lease_ms=100)
    bench.ack(topic, got[0], got[2])
    bench.advance(100)
    pulled = bench.pull(topic)
    assert [(body_of(one), one.subject, one.attempt) for one in pulled.deliveries] == [
        (1, "1", 2), (3, "3", 2), (4, None, 1),
    ]  # fmt: skip
    assert pulled.lost == 2
    assert bench.ack(topic, got[1], got[3]) == STALE * 2
    assert bench.ack(topic, *pulled.deliveries) == SETTLED * 3


@pytest.mark.promise(3, 7)
def test_a_streams_line_waits_while_one_of_the_front_does_and_not_for_a_retry(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number)
    got = bench.got(topic, limit=3)
    bench.retry(topic, got[0], delay_ms=300)
    bench.release(topic, got[1], got[2])
    assert bench.bodies(topic, limit=1) == [1]
    assert bench.bodies(topic, limit=1) == [2]
    assert bench.bodies(topic) == [3, 4]
    bench.advance(300)
    assert bench.bodies(topic) == [0]


def test_retried_messages_of_a_stream_come_by_due_time_and_not_by_offset(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    for one, delay_ms in zip(bench.got(topic), (90, 30, 60), strict=True):
        bench.retry(topic, one, delay_ms=delay_ms)
    bench.advance(90)
    assert bench.bodies(topic) == [1, 2, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_slots_are_answered_as_they_were_asked(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=4)
    for number in range(40):
        bench.publish(topic, number, f"k{number}")
    own = bench.store.epochs(topic, "g")
    asks = [PullRequest(slot, own[slot], limit) for slot, limit in ((2, 3), (0, 1), (3, 0), (1, 2))]
    pulled = bench.store.pull(topic, "g", asks, PullTerms("r", 300, 9))
    assert [one.slot for one in pulled.deliveries] == [2, 2, 2, 0, 1, 1]


@pytest.mark.promise(4, 7)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fenced_slot_gives_nothing_and_the_others_do(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(10):
        bench.publish(topic, number, f"k{number}")
    own = bench.store.epochs(topic, "g")
    before = bench.store.stats(topic)[0]
    asks = [PullRequest(0, "f" * 16, 9), PullRequest(1, own[1], 9)]
    pulled = bench.store.pull(topic, "g", asks, PullTerms("r", 300, 9))
    assert pulled.fenced == [0]
    assert {one.slot for one in pulled.deliveries} == {1}
    assert bench.store.stats(topic)[0] == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_due_time_is_the_nearest_of_delays_retries_and_leases(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "a")
    bench.publish(topic, 2, "b")
    first, _ = bench.got(topic, lease_ms=300)
    assert bench.pull(topic).next_due_ms == 300
    bench.publish(topic, 3, "c", delay_ms=200)
    assert bench.pull(topic).next_due_ms == 200
    bench.retry(topic, first, delay_ms=100)
    assert bench.pull(topic).next_due_ms == 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_tells_since_when_it_could_be_handed_out(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    at_ms = bench.store.now_ms() + 200
    bench.publish(topic, "delayed", "a", at_ms=at_ms)
    bench.advance(250)
    [delivery] = bench.got(topic)
    assert at_ms <= delivery.due_ms <= bench.store.now_ms()
    bench.retry(topic, delivery, delay_ms=300)
    asked_ms = bench.store.now_ms()
    bench.advance(400)
    [again] = bench.got(topic)
    assert asked_ms <= again.due_ms <= bench.store.now_ms()
    bench.ack(topic, again)
    bench.publish(topic, "at once", "b")
    [delivery] = bench.got(topic)
    assert (delivery.due_ms or delivery.published_at_ms) == delivery.published_at_ms
