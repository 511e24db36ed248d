"""Buckets: the tokens that the workers of a group share."""

from __future__ import annotations

import random

import pytest
from bench import Bench

from qframe.errors import UnknownGroup
from qframe.stores.types import DrawResult
from qframe.topic import Topic

YEAR_MS = 366 * 86_400_000
SECOND = {"rate": 10, "per_ms": 1000, "burst": 20}


def draw(bench: Bench, topic: Topic, tokens: int, **terms: int) -> DrawResult:
    return bench.store.draw(topic, "g", tokens, **(SECOND | terms))


def test_each_group_of_each_namespace_has_its_own(bench: Bench) -> None:
    topic = bench.topic("stream", "g", "h")
    other = bench.beside("other")
    other.declare(topic)
    other.subscribe(topic, "g")
    assert draw(bench, topic, 20).granted == 20
    assert bench.store.draw(topic, "h", 20, **SECOND).granted == 20
    assert other.draw(topic, "g", 20, **SECOND).granted == 20
    with pytest.raises(UnknownGroup, match="nobody"):
        bench.store.draw(topic, "nobody", 1, **SECOND)


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_group_that_was_dropped_leaves_no_empty_bucket_to_the_next(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", "h", slots=2)
    for group in ("g", "h"):
        assert bench.store.draw(topic, group, 20, **SECOND).granted == 20
    bench.store.drop_group(topic, "g")
    with pytest.raises(UnknownGroup):
        draw(bench, topic, 1)
    bench.store.subscribe(topic, "g")
    assert draw(bench, topic, 20).granted == 20
    assert bench.store.draw(topic, "h", 1, **SECOND).granted == 0


def test_a_bucket_is_full_at_first_and_fills_at_its_rate(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    assert draw(bench, topic, 15) == DrawResult(15, 0)
    assert draw(bench, topic, 15) == DrawResult(5, 100)
    assert draw(bench, topic, 1) == DrawResult(0, 100)
    bench.advance(99)
    assert draw(bench, topic, 1) == DrawResult(0, 1)
    bench.advance(1)
    assert draw(bench, topic, 3) == DrawResult(1, 100)
    bench.advance(1000)
    assert draw(bench, topic, 10) == DrawResult(10, 0)
    assert draw(bench, topic, 1) == DrawResult(0, 100)
    bench.advance(86_400_000)
    assert draw(bench, topic, 1_000_000) == DrawResult(20, 100)


def test_asking_often_earns_no_less_than_asking_seldom(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    slow = {"rate": 1, "per_ms": 3_600_000, "burst": 1}
    assert draw(bench, topic, 1, **slow) == DrawResult(1, 0)
    for _ in range(40):
        assert draw(bench, topic, 1, **slow).granted == 0
        bench.advance(90_000 - 1)
    answer = draw(bench, topic, 1, **slow)
    assert answer == DrawResult(0, 40)
    bench.advance(40)
    assert draw(bench, topic, 1, **slow) == DrawResult(1, 0)


def test_who_waits_as_long_as_was_said_gets_a_token_and_not_a_millisecond_before(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for rate, per_ms, burst in (
        (7, 1000, 1),
        (3, 60_000, 2),
        (999_983, 86_400_000, 1),
        (1, YEAR_MS, 1),
    ):
        terms = {"rate": rate, "per_ms": per_ms, "burst": burst}
        draw(bench, topic, burst, **terms)
        for _ in range(5):
            wait_ms = draw(bench, topic, 1, **terms).wait_ms
            if wait_ms == 0:
                continue
            bench.advance(wait_ms - 1)
            assert draw(bench, topic, 1, **terms) == DrawResult(0, 1)
            bench.advance(1)
            assert draw(bench, topic, 1, **terms).granted == 1


def test_another_rate_or_burst_counts_at_once(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    draw(bench, topic, 20)
    assert draw(bench, topic, 1, rate=1000) == DrawResult(0, 1)
    assert draw(bench, topic, 1, rate=1) == DrawResult(0, 1000)
    bench.advance(500)
    assert draw(bench, topic, 9) == DrawResult(5, 100)
    bench.advance(2000)
    assert draw(bench, topic, 20, burst=3) == DrawResult(3, 100)
    assert draw(bench, topic, 20, burst=1000) == DrawResult(0, 100)
    bench.advance(60_000)
    assert draw(bench, topic, 1000, burst=1000).granted == 600


def test_a_clock_that_goes_back_an_hour_costs_no_more_than_the_time_until_the_next_token(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    draw(bench, topic, 20)
    bench.advance(-3_600_000)
    assert draw(bench, topic, 1) == DrawResult(0, 100)
    bench.advance(99)
    assert draw(bench, topic, 1) == DrawResult(0, 1)
    bench.advance(1)
    assert draw(bench, topic, 1) == DrawResult(1, 0)
    bench.advance(3_600_000)
    assert draw(bench, topic, 100).granted == 20


@pytest.mark.parametrize("seed", range(2))
def test_no_window_of_time_has_more_than_burst_and_rate_allow(bench: Bench, seed: int) -> None:
    topic, dice = bench.topic("stream", "g"), random.Random(seed)
    rate, per_ms, burst = dice.choice([(3, 1000, 1), (50, 1000, 20), (7, 90, 40)])
    now_ms, granted = 0, []
    for _ in range(60):
        asked = dice.choice([1, 2, burst, 10 * burst])
        answer = draw(bench, topic, asked, rate=rate, per_ms=per_ms, burst=burst)
        assert 0 <= answer.granted <= asked
        assert (answer.wait_ms == 0) == (answer.granted == asked)
        granted.append((now_ms, answer.granted))
        step_ms = dice.choice([0, 1, answer.wait_ms, 400])
        bench.advance(step_ms)
        now_ms += step_ms
    for number, (since_ms, _) in enumerate(granted):
        had = 0
        for at_ms, count in granted[number:]:
            had += count
            assert had * per_ms <= burst * per_ms + rate * (at_ms - since_ms)
    assert sum(count for _, count in granted) >= burst
