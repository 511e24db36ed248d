"""Leases, epochs and receipts: what is not held any more changes nothing."""

from __future__ import annotations

import pytest
from bench import SETTLED, STALE, Bench, body_of, epoch

from qframe.stores.base import LOST_ERROR, NO_EPOCH, Ask, Hold

KINDS = ("stream", "ordered", "delay", "priority", "merge")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_handed_out_stays_hidden_until_its_lease_passes_and_then_counts(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic, lease_ms=200)
    assert (first.attempt, first.lost) == (1, 0)
    bench.advance(199)
    pulled = bench.pull(topic)
    assert (pulled.deliveries, pulled.next_due_ms) == ([], 1)
    bench.advance(1)
    pulled = bench.pull(topic)
    [again] = pulled.deliveries
    assert (again.attempt, again.lost, pulled.lost) == (2, 1, 1)
    assert bench.ack(topic, first) == STALE
    assert bench.ack(topic, again) == SETTLED


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_settlement_counts_as_long_as_nobody_else_has_the_message(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic, lease_ms=100)
    bench.advance(300)
    assert bench.ack(topic, one) == SETTLED


@pytest.mark.parametrize("kind", KINDS)
def test_renewing_keeps_a_message_hidden_however_long(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic, lease_ms=100)
    for _ in range(5):
        bench.advance(80)
        assert bench.store.renew(topic, "g", bench.holds(topic, one), 100) == []
        assert bench.got(topic) == []
    bench.ack(topic, one)
    assert bench.store.renew(topic, "g", bench.holds(topic, one), 100) == bench.holds(topic, one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_epoch_fences_the_old_owner_off_and_hands_out_what_it_had(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    old = bench.store.epochs(topic, "g")[0]
    [one] = bench.got(topic)
    new = bench.take(topic)
    assert bench.store.epochs(topic, "g") == {0: new}
    pulled = bench.pull(topic, epoch=old)
    assert (pulled.deliveries, pulled.fenced) == ([], [0])
    before = bench.total(topic)
    for settle in (bench.ack, bench.retry, bench.kill, bench.release):
        assert settle(topic, one, epoch=old) == STALE
    assert bench.store.renew(topic, "g", [Hold(0, old, one.subject, one.receipt)], 100) != []
    assert bench.total(topic) == before
    [again] = bench.got(topic)
    assert (again.attempt, again.lost) == (2, 1)


def test_an_epoch_below_the_slots_own_is_refused_and_the_same_one_changes_nothing(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g", slots=2)
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic)
    current = bench.store.epochs(topic, "g")[0]
    assert bench.store.take(topic, "g", {0: epoch(0), 1: current}) == [1]
    assert bench.store.take(topic, "g", {0: current, 1: current}) == [0, 1]
    assert bench.ack(topic, one) == SETTLED


def test_under_no_epoch_nothing_can_be_settled(bench: Bench) -> None:
    topic = bench.topic("stream")
    bench.store.subscribe(topic, "g")
    bench.publish(topic, 1)
    [one] = bench.got(topic)
    assert bench.store.epochs(topic, "g") == {0: NO_EPOCH}
    assert bench.ack(topic, one) == STALE


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_receipt_is_stale_and_changes_nothing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic)
    before = bench.total(topic)
    one.receipt = "forged"
    for settle in (bench.ack, bench.retry, bench.kill, bench.release):
        assert settle(topic, one) == STALE
    assert bench.total(topic) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_whose_attempts_are_spent_by_losses_is_dead(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    bench.publish(topic, 2, "other")
    for attempt in (1, 2):
        got = bench.got(topic, lease_ms=50, max_attempts=2)
        assert {one.attempt for one in got} == {attempt}
        bench.ack(topic, *[one for one in got if body_of(one) == 2 and attempt == 2])
        bench.advance(50)
    pulled = bench.pull(topic, max_attempts=2)
    assert (pulled.deliveries, pulled.dead) == ([], 1)
    [letter] = bench.store.dead(topic, "g")
    assert (letter.body, letter.attempts, letter.error) == (b"1", 2, LOST_ERROR)


def test_what_follows_a_buried_head_is_handed_out_in_the_same_pull(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for body in (1, 2):
        bench.publish(topic, body, "a")
    bench.got(topic, lease_ms=50, run=1)
    bench.advance(50)
    pulled = bench.pull(topic, max_attempts=1)
    assert (pulled.dead, [body_of(one) for one in pulled.deliveries]) == (1, [2])


def test_what_a_stream_lost_comes_back_before_the_rest_of_the_line_in_order(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(6):
        bench.publish(topic, number, "k")
    got = bench.got(topic, limit=4)
    bench.ack(topic, got[1])
    bench.take(topic)
    first = bench.got(topic, limit=2)
    assert [(body_of(one), one.lost) for one in first] == [(0, 1), (2, 1)]
    assert bench.bodies(topic) == [3, 4, 5]


def test_what_a_stream_released_comes_back_first_in_order_and_uncounted(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number, "k")
    got = bench.got(topic, limit=3)
    bench.release(topic, got[2])
    bench.advance(10)
    bench.release(topic, got[0], got[1])
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [
        (0, 1), (1, 1), (2, 1), (3, 1),
    ]  # fmt: skip


def test_the_floor_moves_over_what_is_settled_out_of_order_and_what_has_left(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number)
    got = bench.got(topic)
    bench.ack(topic, got[1], got[3])
    assert bench.store.stats(topic)[0].floor == 0
    bench.retry(topic, got[0], delay_ms=300)
    assert bench.store.stats(topic)[0].floor == 2
    bench.kill(topic, got[2])
    assert bench.store.stats(topic)[0].floor == 4


def test_an_answer_of_a_stream_that_was_lost_is_given_again_uncounted(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    [first] = bench.got(topic, limit=1)
    assert bench.bodies(topic, limit=2) == [1, 2]
    again = bench.got(topic, position=1)
    assert [(body_of(one), one.attempt) for one in again] == [(1, 1), (2, 1), (3, 1)]
    assert bench.ack(topic, first, *again) == SETTLED * 4


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority", "merge"])
def test_what_was_handed_out_in_an_answer_that_was_lost_can_be_given_back(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "a")
    [kept] = bench.got(topic, receipt="kept")
    bench.publish(topic, 2, "b")
    bench.got(topic, receipt="lost")
    own = bench.store.epochs(topic, "g")[0]
    assert bench.store.recall(topic, "g", [Ask(0, own, 9)], "lost") == 1
    assert bench.store.recall(topic, "g", [Ask(0, own, 9)], "lost") == 0
    [again] = bench.got(topic)
    assert (body_of(again), again.attempt, again.lost) == (2, 1, 0)
    assert bench.ack(topic, kept) == SETTLED


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_is_handed_out_of_a_slot_than_was_asked_for(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(40):
        bench.publish(topic, number, f"k{number}")
    pulled = bench.pull(topic, limit=5)
    slots = [one.slot for one in pulled.deliveries]
    assert (slots.count(0), slots.count(1), pulled.next_due_ms) == (5, 5, 0)
