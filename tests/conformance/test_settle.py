"""Settling: each in order, by receipt and epoch, and what is stale changes nothing."""

from __future__ import annotations

import os
import random
from itertools import pairwise

import msgspec
import pytest
from bench import LEASE_MS, SETTLED, STALE, Bench, body_of

from qframe.outcomes import Settled, Verdict
from qframe.retry import Backoff
from qframe.runtime.handler.retry_policy import disposition_of
from qframe.stores.types import PullRequest, Settlement

SUBJECTS = ("ordered", "delay")
KINDS = ("stream", *SUBJECTS)
REPLACING = ("delay", "priority", "merge")
VERDICTS = (Verdict.ACK, Verdict.RETRY, Verdict.DEAD, Verdict.RELEASE)


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_what_is_handed_out_where_nobody_owns_the_slot_cannot_be_settled(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind)
    bench.store.subscribe(topic, "g")
    bench.publish(topic, 1, "k")
    got = bench.got(topic)
    before = bench.store.stats(topic)
    for verdict in VERDICTS:
        assert bench.settle(topic, verdict, *got) == STALE * len(got)
    for epochs in (bench.store.epochs(topic, "g"), {}):
        assert bench.store.acknowledge(topic, "g", got, epochs) == STALE * len(got)
    assert bench.store.stats(topic) == before


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_takes_all_verdicts(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for number in range(4):
        bench.publish(topic, number, f"k{number}")
    own = bench.store.epochs(topic, "g")[0]
    settlements = [
        Settlement(
            one.slot, one.subject, one.seq, one.receipt, one.attempt, own, verdict, delay_ms=100
        )
        for one, verdict in zip(bench.got(topic), VERDICTS, strict=True)
    ]
    assert bench.store.settle(topic, "g", settlements) == SETTLED * 4
    total = bench.total(topic)
    assert (total.settled, total.waiting, total.dead, total.todo) == (1, 1, 1, 1)
    assert bench.bodies(topic) == [3]
    bench.advance(100)
    assert bench.bodies(topic) == [1]


@pytest.mark.promise(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verdict", [None, *VERDICTS])
def test_deliveries_end_in_any_order_and_each_of_them_once(
    bench: Bench, kind: str, verdict: Verdict | None
) -> None:
    dice = random.Random(7)
    topic = bench.topic(kind, "g")
    for start, end in pairwise((0, 1, 3, 20, 60)):
        bench.store.publish(topic, [bench.entry(topic, n, f"k{n}") for n in range(start, end)])
    got, epochs = bench.got(topic), bench.store.epochs(topic, "g")
    ended: set[int] = set()
    for _ in range(3):
        chosen = dice.choices(got, k=len(got) // 3)
        if verdict is None:
            found = bench.store.acknowledge(topic, "g", chosen, epochs)
        else:
            found = bench.settle(topic, verdict, *chosen)
        for one, result in zip(chosen, found, strict=True):
            assert result is (Settled.STALE if one.seq in ended else Settled.SETTLED)
            ended.add(one.seq)
    left = [body_of(one) for one in got if one.seq not in ended]
    back = [body_of(one) for one in got if one.seq in ended]
    gone = verdict in (None, Verdict.ACK, Verdict.DEAD)
    assert bench.total(topic).dead == (len(back) if verdict is Verdict.DEAD else 0)
    bench.advance(LEASE_MS)
    assert sorted(bench.bodies(topic)) == sorted(left if gone else left + back)


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", KINDS)
def test_neither_an_earlier_receipt_nor_another_epoch_settles_a_delivery(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic)
    bench.retry(topic, first)
    [second] = bench.got(topic)
    before = bench.store.stats(topic)
    for verdict in VERDICTS:
        assert bench.settle(topic, verdict, first) == STALE
        for epoch in ("f" * 16, "0" * 16):
            assert bench.settle(topic, verdict, second, epoch=epoch) == STALE
    assert bench.store.stats(topic) == before
    assert bench.ack(topic, second) == SETTLED


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_settles_nothing_of_another(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k")
    [mine] = bench.got(topic, "g", receipt="mine")
    bench.got(topic, "h", receipt="theirs")
    assert bench.ack(topic, mine, group="h") == STALE
    assert (bench.total(topic, "g").doing, bench.total(topic, "h").doing) == (1, 1)
    assert bench.ack(topic, mine, group="g") == SETTLED


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("kind", REPLACING)
@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_next_round_is_neither_swallowed_nor_concurrent_nor_settled_by_the_first(
    bench: Bench, kind: str, verdict: Verdict
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic, receipt="first")
    bench.publish(topic, 2, "k", id="second")
    assert bench.got(topic) == []
    assert bench.settle(topic, verdict, first) == SETTLED
    assert bench.ack(topic, first) == STALE
    [second] = bench.got(topic, receipt="second")
    assert (second.id, body_of(second), second.attempt) == ("second", 2, 1)
    assert bench.ack(topic, first) == STALE
    assert bench.total(topic).doing == 1
    assert bench.ack(topic, second) == SETTLED


@pytest.mark.promise(6, 9)
@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_counts_and_a_release_does_not(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    attempts = []
    for verdict in (Verdict.RELEASE, Verdict.RETRY, Verdict.RELEASE, Verdict.RETRY, Verdict.ACK):
        [one] = bench.got(topic)
        attempts.append(one.attempt)
        assert bench.settle(topic, verdict, one) == SETTLED
    assert attempts == [1, 1, 2, 2, 3]


@pytest.mark.promise(6)
@pytest.mark.parametrize("kind", KINDS)
def test_lost_counts_the_losses_in_a_row_and_a_word_from_the_worker_ends_it(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    for lost in range(3):
        [one] = bench.got(topic, lease_ms=50)
        assert (one.attempt, one.lost) == (lost + 1, lost)
        bench.advance(50)
    [one] = bench.got(topic)
    assert (one.attempt, one.lost) == (4, 3)
    bench.retry(topic, one)
    [one] = bench.got(topic)
    assert (one.attempt, one.lost) == (5, 0)


def test_of_a_run_settlements_in_one_call_that_skip_the_head_are_stale(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(4):
        bench.publish(topic, number, "k")
    got = bench.got(topic)
    answers = bench.ack(topic, got[1], got[0], got[2], got[1])
    assert answers == [Settled.STALE, Settled.SETTLED, Settled.STALE, Settled.SETTLED]
    assert (bench.total(topic).settled, bench.total(topic).doing) == (2, 2)


def test_behind_the_head_a_run_takes_neither_retry_nor_dead(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    first, second, third = bench.got(topic)
    assert bench.retry(topic, second) == STALE
    assert bench.kill(topic, third) == STALE
    assert bench.ack(topic, first, second, third) == SETTLED * 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acknowledged_together_is_settled_but_for_what_is_stale(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(12):
        bench.publish(topic, number, f"k{number}")
    got = bench.got(topic)
    epochs = bench.store.epochs(topic, "g")
    settled_before = [got[1], got[7]]
    bench.ack(topic, *settled_before)
    not_mine = msgspec.structs.replace(got[4], receipt="another")
    asked = [*got[:4], not_mine, *got[5:], got[0]]
    answers = bench.store.acknowledge(topic, "g", asked, epochs)
    pairs = zip(asked, answers, strict=True)
    stale = {id(one) for one, answer in pairs if answer is Settled.STALE}
    assert stale == {id(one) for one in [*settled_before, not_mine, got[0]]}
    assert answers.count(Settled.SETTLED) == 9
    assert bench.total(topic).settled == 11
    assert bench.store.acknowledge(topic, "g", [got[4]], epochs) == SETTLED
    assert bench.store.acknowledge(topic, "g", [], epochs) == []
    assert bench.total(topic).settled == 12


@pytest.mark.promise(2)
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_behind_an_acknowledged_message_comes_next_and_a_retried_one_is_done(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "first", "a")
    bench.publish(topic, "again", "b")
    got = sorted(bench.got(topic), key=body_of)
    epochs = bench.store.epochs(topic, "g")
    assert bench.retry(topic, got[0]) == SETTLED
    [again] = bench.got(topic)
    bench.publish(topic, "alone", "c")
    bench.publish(topic, "behind", "a")
    [alone] = [one for one in bench.got(topic) if body_of(one) == "alone"]
    together = [again, got[1], alone]
    assert bench.store.acknowledge(topic, "g", together, epochs) == SETTLED * 3
    assert bench.store.acknowledge(topic, "g", together, epochs) == STALE * 3
    behind = bench.bodies(topic)
    assert behind == ([] if kind == "stream" else ["behind"])  # a stream gave it out before
    assert bench.total(topic).settled == 3


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acknowledged_under_an_epoch_that_has_passed_is_stale(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "a")
    bench.publish(topic, 2, "b")
    got = bench.got(topic)
    before = bench.store.epochs(topic, "g")
    bench.take(topic)
    assert bench.store.acknowledge(topic, "g", got, before) == STALE * 2
    assert bench.store.acknowledge(topic, "g", got, {}) == STALE * 2
    assert bench.total(topic).todo == 2


@pytest.mark.promise(6)
def test_whatever_an_error_says_its_ending_is_stored_and_told(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(2):
        bench.publish(topic, number)
    retried, killed = bench.got(topic)
    with pytest.raises(OSError, match="odd") as caught:
        raise OSError("odd \0, \x1b and " + os.fsdecode(b"report-\xff.pdf"))
    for one, most in ((retried, 16), (killed, 1)):
        ending = disposition_of(one, caught.value, max_attempts=most, backoff=Backoff(0))
        how = {"error": ending.error, "traceback": ending.traceback}
        assert bench.settle(topic, ending.verdict, one, **how) == [Settled.SETTLED]
    [dead] = bench.store.dead(topic, "g")
    assert dead.error == "OSError: odd \\x00, \x1b and report-\\udcff.pdf"
    assert dead.error in (dead.traceback or "")
    [waits] = bench.store.peek(topic, "g", states=("waiting", "todo"))
    assert waits.error == dead.error
    assert dead.error in (waits.traceback or "")


def test_what_was_taken_back_behind_others_cannot_be_acknowledged_with_them(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    epochs = bench.store.epochs(topic, "g")
    got = bench.got(topic, limit=2) + bench.got(topic, limit=2, receipt="lost")
    bench.store.revoke(topic, "g", [PullRequest(0, epochs[0], 2, 2)], "lost")
    assert bench.store.acknowledge(topic, "g", got, epochs) == SETTLED * 2 + STALE * 2
    assert bench.bodies(topic) == [2, 3]


def test_a_place_before_what_is_settled_takes_no_more_back_than_is_in_hand(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    epochs = bench.store.epochs(topic, "g")
    bench.ack(topic, *bench.got(topic)[:2])
    assert bench.store.revoke(topic, "g", [PullRequest(0, epochs[0], 2, 0)], "lost").count == 2
    assert bench.bodies(topic) == [2, 3]


def test_a_run_ends_where_another_receipt_stands(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    got = bench.got(topic)
    got[1].receipt = "another"
    assert bench.ack(topic, *got) == [*SETTLED, *STALE, *STALE]
    assert bench.total(topic).settled == 1


def test_what_was_acknowledged_as_a_run_is_not_behind_what_comes_for_its_key(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    assert bench.ack(topic, *bench.got(topic)) == SETTLED * 3
    bench.publish(topic, "new", "k")
    got = bench.got(topic)
    assert [body_of(one) for one in got] == ["new"]
    bench.ack(topic, *got)
    assert bench.got(topic) == []


@pytest.mark.promise(10)
def test_what_comes_behind_a_retry_is_counted_though_the_stores_clock_went_back(
    bench: Bench,
) -> None:
    """A head due before it was published, by that clock, was taken for one that never waited."""
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 0, "k")
    deliveries = bench.got(topic)
    bench.advance(-500)
    bench.retry(topic, *deliveries, delay_ms=100)
    for number in range(3):
        bench.publish(topic, number, "k")
    assert bench.total(topic).waiting == 4
    bench.advance(1000)
    assert bench.bodies(topic) == [0, 0, 1, 2]
    assert bench.store.verify(topic) == []
