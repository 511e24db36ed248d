"""Tokens: in no span of time do more handlers begin than burst and rate allow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.clock import VirtualClock
from qframe.errors import BadOption, UndecodableBody
from qframe.options.flow import Breaker, RateLimit
from qframe.retry import Reject
from qframe.runtime.flow.shared_token_bucket import SharedTokenBucket
from qframe.runtime.flow.token_bucket import LocalTokenBucket
from qframe.stores.bucket import Bucket, DrawTerms, drawn
from qframe.stores.types import DrawResult

rates = st.sampled_from(["100/s", "7/s", "1/s", "6000/m", "50/h", "3/10ms", "1000/s"])
steps = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=60)


def assert_within(starts_ms: Sequence[int], limit: RateLimit) -> None:
    """Between the first and the last of any `n` starts, `n - burst` tokens have come."""
    burst = limit.burst
    for count in range(burst + 1, len(starts_ms) + 1):
        for first, last in zip(starts_ms, starts_ms[count - 1 :], strict=False):
            came = (last - first) * limit.tokens / limit.per_ms
            assert count <= burst + came + 1e-6, (count, first, last)


@given(rate=rates, burst=st.integers(1, 40), steps=steps)
def test_a_local_bucket_never_gives_more_than_burst_and_rate_in_any_span(
    rate: str, burst: int, steps: list[tuple[int, int]]
) -> None:
    limit, clock = RateLimit(rate, burst=burst), VirtualClock()
    bucket = LocalTokenBucket(limit, clock)
    starts = []
    for ms, takes in steps:
        clock.advance(ms)
        room = bucket.room(0)
        taken = sum(bucket.take() == 0 for _ in range(takes))
        assert taken == min(takes, room)
        starts += [clock.now_ms()] * taken
    assert_within(starts, limit)


@given(rate=rates, burst=st.integers(1, 40))
def test_after_the_time_that_a_local_bucket_names_there_is_a_token(rate: str, burst: int) -> None:
    clock = VirtualClock()
    bucket = LocalTokenBucket(RateLimit(rate, burst=burst), clock)
    while bucket.take() == 0:
        pass
    assert bucket.room(0) == 0
    clock.advance(round(bucket.again_s(0) * 1000) + 1)
    while (wait_s := bucket.take()) > 0:  # it names at most a minute
        assert bucket.room(0) == 0
        clock.advance(round(wait_s * 1000) + 1)


def test_tokens_for_which_messages_are_ready_are_no_room() -> None:
    bucket = LocalTokenBucket(RateLimit("10/s", burst=5), VirtualClock())
    assert [bucket.room(ready) for ready in (0, 2, 5, 9)] == [5, 3, 0, 0]
    assert bucket.again_s(5) == pytest.approx(0.1)


class Group:
    """The bucket of a group in a store, and workers that draw from it."""

    def __init__(self, limit: RateLimit, workers: int) -> None:
        self.limit = limit
        self.clock = VirtualClock()
        self.bucket: Bucket | None = None
        self.draws = 0
        self.woken = 0
        self.workers = [
            SharedTokenBucket(limit, draw=self.draw, wake=self.wake, clock=self.clock)
            for _ in range(workers)
        ]

    def wake(self) -> None:
        self.woken += 1

    def draw(self, tokens: int, burst: int) -> DrawResult:
        self.draws += 1
        terms = DrawTerms(tokens, self.limit.tokens, self.limit.per_ms, burst)
        answer, after = drawn(self.bucket, terms, self.clock.now_ms())
        self.bucket = self.bucket if after is None else after
        return answer


shared = st.sampled_from(
    [RateLimit("100/s", over="group"), RateLimit("100/s", burst=20, over="group"),
     RateLimit("1000/s", over="group"), RateLimit("7/s", burst=3, over="group"),
     RateLimit("12/s", over="group")]
)  # fmt: skip


@given(
    limit=shared,
    steps=st.lists(
        st.tuples(st.integers(0, 250), st.integers(0, 2), st.booleans(), st.integers(0, 50)),
        max_size=80,
    ),
)
def test_workers_that_share_a_bucket_never_begin_more_than_burst_and_rate_in_any_span(
    limit: RateLimit, steps: list[tuple[int, int, bool, int]]
) -> None:
    group = Group(limit, 3)
    starts = []
    for ms, worker, looks, takes in steps:
        group.clock.advance(ms)
        bucket = group.workers[worker]
        if looks:
            bucket.prefetch(bucket.room(0))
        starts += [group.clock.now_ms()] * sum(bucket.take() == 0 for _ in range(takes))
    assert_within(starts, limit)


@pytest.mark.parametrize("rate", ["5/s", "20/s", "100/s", "2000/s"])
def test_busy_workers_reach_the_rate_together_with_few_draws(rate: str) -> None:
    limit = RateLimit(rate, over="group")
    group = Group(limit, 3)
    begun, again = 0, [0.0, 0.0, 0.0]
    for now_ms in range(0, 30_000, 10):
        for number, bucket in enumerate(group.workers):
            while now_ms / 1000 >= again[number]:
                room = bucket.room(0)
                bucket.prefetch(room)
                begun += sum(bucket.take() == 0 for _ in range(room))
                if not room:
                    again[number] = now_ms / 1000 + bucket.again_s(0)
        group.clock.advance(10)
    assert begun == pytest.approx(30 * limit.per_s, rel=0.05)
    assert group.draws / 30 / 3 <= 25


def test_a_worker_that_finds_nothing_draws_nothing() -> None:
    group = Group(RateLimit("50/h", over="group"), 3)
    for _ in range(100):
        for bucket in group.workers:
            assert bucket.room(0) == 1
            bucket.prefetch(0)
        group.clock.advance(5000)
    assert group.draws == 0


def test_tokens_that_were_not_used_in_time_are_gone() -> None:
    group = Group(RateLimit("10/s", over="group"), 1)
    [bucket] = group.workers
    bucket.prefetch(bucket.room(0))
    group.clock.advance(150)
    assert bucket.take() > 0
    assert group.woken == 1


def test_for_messages_that_wait_for_threads_nothing_is_drawn_until_they_ask() -> None:
    group = Group(RateLimit("100/s", over="group"), 1)
    [bucket] = group.workers
    bucket.prefetch(bucket.room(0))
    assert bucket.room(1) == 0
    assert group.draws == 1
    group.clock.advance(200)
    assert bucket.room(1) == 0
    assert group.draws == 1
    assert bucket.take() > 0
    assert bucket.room(1) == 0
    assert group.draws == 2
    assert bucket.take() == 0


@pytest.mark.parametrize(
    ("rate", "tokens", "per_ms", "burst"),
    [("100/s", 100, 1000, 30), ("6000/m", 6000, 60_000, 30), ("50/h", 50, 3_600_000, 1),
     ("1 / 500ms", 1, 500, 1), ("5/d", 5, 86_400_000, 1)],
)  # fmt: skip
def test_a_rate_is_so_many_times_in_so_long(
    rate: str, tokens: int, per_ms: int, burst: int
) -> None:
    limit = RateLimit(rate)
    assert (limit.tokens, limit.per_ms, limit.burst, limit.over) == (
        tokens, per_ms, burst, "worker"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "more"),
    [("fast", {}), ("0/s", {}), ("-1/s", {}), ("100", {}), ("1.5/s", {}), ("100/", {}),
     ("1/7d", {}), ("1000001/s", {}), (100, {}), (None, {}), ("1/0s", {}),
     ("1/s", {"burst": 0}), ("1/s", {"burst": True}), ("1/s", {"burst": 1.5}),
     ("1/s", {"burst": 1_000_001}), ("1/s", {"over": "host"}),
     ("100/s", {"burst": 19, "over": "group"})],
)  # fmt: skip
def test_a_rate_that_is_none_is_refused(rate: object, more: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        RateLimit(rate, **more)  # type: ignore[arg-type] # that is what is tested


@pytest.mark.parametrize("rate", ["10/s", "11/s", "100/s", "300/s", "700/s", "999999/s"])
def test_a_group_burst_is_at_least_what_two_tenths_of_a_second_allow(rate: str) -> None:
    least = RateLimit(rate).tokens / 5
    shared = RateLimit(rate, over="group")
    assert shared.burst > shared.meanwhile
    for burst in range(1, shared.burst):
        if burst + 2 < least:
            with pytest.raises(BadOption):
                RateLimit(rate, burst=burst, over="group")
            break
    assert RateLimit(rate, burst=int(least) + 2, over="group").burst == int(least) + 2


def test_another_rate_has_a_burst_that_grows_with_it() -> None:
    limit = RateLimit("100/s", burst=50, over="group")
    assert limit.at("10/s") == RateLimit("10/s", burst=5, over="group")
    assert limit.at("1/m").burst == 1
    assert limit.at("900000/s").burst == 450_000
    never_reached = RateLimit("1000000/ms", over="group")
    assert limit.at("1000000/ms").burst >= 2 * never_reached.meanwhile
    assert never_reached.at("100/s").rate == "100/s"
    for one, other in pairwise([limit, RateLimit("100/s"), RateLimit("100/s", burst=2)]):
        assert one != other


@pytest.mark.parametrize(
    "options",
    [{"failures": 0}, {"failures": True}, {"failures": "3"}, {"pause": "soon"}, {"pause": 0},
     {"pause": "8d"}, {"pause": "1m", "longest": "30s"}, {"longest": "x"}, {"on": "errors"},
     {"on": (ValueError, 3)}, {"on": int}, {"on": ()}, {"on": Reject},
     {"on": (Reject, UndecodableBody)}],
)  # fmt: skip
def test_a_breaker_that_is_none_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        Breaker(**options)  # type: ignore[arg-type] # that is what is tested
