"""Several messages of one ordered subject under one receipt."""

from __future__ import annotations

import pytest
from bench import SETTLED, STALE, Bench, body_of

from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.stores.types import Settlement
from qframe.topic import Topic


def run_of(bench: Bench, count: int, **options: int) -> tuple[Topic, list[Delivery]]:
    topic = bench.topic("ordered", "g")
    for number in range(count):
        bench.publish(topic, number, "k")
    return topic, bench.got(topic, **options)


def test_a_run_is_as_long_as_the_limit_and_run_allow(bench: Bench) -> None:
    topic, got = run_of(bench, 6, run=4)
    assert [(body_of(one), one.attempt) for one in got] == [(n, 1) for n in range(4)]
    assert len({one.receipt for one in got}) == 1
    total = bench.total(topic)
    assert (total.doing, total.todo) == (4, 2)
    _, got = run_of(bench, 6, limit=2)
    assert len(got) == 2


def test_a_run_is_not_cut_short_by_what_is_not_due_behind_another_head(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for key in "abc":
        for number in range(4):
            bench.publish(topic, f"{key}{number}", key, delay_ms=100 if number else None)
            bench.advance(1)
    for number in range(4):
        bench.publish(topic, f"d{number}", "d")
    expected = ["a0", "b0", "c0", "d0", "d1", "d2"]
    assert bench.bodies(topic, limit=6) == expected


@pytest.mark.promise(3)
def test_a_run_is_settled_in_order_and_the_next_head_stays_in_doing(bench: Bench) -> None:
    topic, (first, second, third) = run_of(bench, 3)
    assert bench.ack(topic, second) == STALE
    assert bench.ack(topic, first) == SETTLED
    assert bench.got(topic) == []
    assert bench.ack(topic, second, third) == SETTLED * 2
    assert bench.total(topic).settled == 3
    assert bench.ack(topic, first, second, third) == STALE * 3


@pytest.mark.promise(3, 6)
def test_retrying_the_head_gives_the_rest_back_uncounted(bench: Bench) -> None:
    topic, (first, second, third) = run_of(bench, 3)
    bench.ack(topic, first)
    bench.retry(topic, second, delay_ms=50)
    assert bench.ack(topic, third) == STALE
    bench.advance(50)
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [(1, 2), (2, 1)]


def test_releasing_behind_the_head_cuts_the_run_off_there(bench: Bench) -> None:
    topic, (first, second, third, fourth) = run_of(bench, 4)
    assert bench.release(topic, third) == SETTLED
    assert bench.ack(topic, fourth) == STALE
    assert bench.total(topic).doing == 2
    assert bench.ack(topic, first, second) == SETTLED * 2
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [(2, 1), (3, 1)]


@pytest.mark.parametrize("first", [Verdict.ACK, Verdict.DEAD])
def test_one_call_may_end_the_head_of_a_run_and_cut_its_tail_off(
    bench: Bench, first: Verdict
) -> None:
    topic, got = run_of(bench, 5)
    own = bench.store.epochs(topic, "g")[0]
    verdicts = {0: first, 1: Verdict.DEAD, 3: Verdict.RELEASE}
    settlements = [
        Settlement(0, one.subject, one.seq, one.receipt, one.attempt, own, verdicts[number])
        for number, one in enumerate(got)
        if number in verdicts
    ]
    assert bench.store.settle(topic, "g", settlements) == SETTLED * 3
    assert bench.total(topic).doing == 1
    assert bench.ack(topic, got[3]) == STALE
    assert bench.ack(topic, got[2]) == SETTLED
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [(3, 1), (4, 1)]


@pytest.mark.promise(6, 9)
def test_releasing_the_head_gives_the_whole_run_back_uncounted(bench: Bench) -> None:
    topic, (first, *_) = run_of(bench, 3)
    assert bench.release(topic, first) == SETTLED
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.promise(1, 6)
def test_a_run_that_is_lost_counts_for_its_head_only_which_is_then_handed_out_alone(
    bench: Bench,
) -> None:
    topic, got = run_of(bench, 3, lease_ms=100)
    bench.advance(100)
    pulled = bench.pull(topic)
    assert pulled.lost == 1
    [alone] = pulled.deliveries
    assert (body_of(alone), alone.attempt, alone.lost) == (0, 2, 1)
    assert bench.ack(topic, got[0]) == STALE
    assert bench.ack(topic, alone) == SETTLED
    assert [(body_of(one), one.attempt, one.lost) for one in bench.got(topic)] == [
        (1, 1, 0), (2, 1, 0),
    ]  # fmt: skip


def test_a_subject_whose_run_is_done_goes_behind_the_others(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "a")
    bench.publish(topic, "b", "b")
    bench.advance(5)
    [first] = bench.got(topic, limit=1)
    bench.ack(topic, first)
    assert bench.bodies(topic, run=1) == ["b", 1]
