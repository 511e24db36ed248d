"""Each event moves the number that is named for it, by its count, and no other."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.runtime.handler.meter import PendingRun
from qframe.runtime.handler.retry_policy import Disposition
from qframe.telemetry.histogram import Distribution, Histogram
from qframe.telemetry.meters import Meters
from qframe.telemetry.timed_store import OPERATIONS

WHERE = ("orders", "billing")
NUMBERS = {
    "delivery.lost": ("qframe_lease_lost", WHERE),
    "slot.taken": ("qframe_slot_changes", (*WHERE, "taken")),
    "slot.left": ("qframe_slot_changes", (*WHERE, "left")),
    "slot.lost": ("qframe_slot_changes", (*WHERE, "lost")),
    "schedule.fired": ("qframe_schedule_ticks", ("fired",)),
    "schedule.missed": ("qframe_schedule_ticks", ("missed",)),
    "schedule.skipped": ("qframe_schedule_ticks", ("skipped",)),
    "schedule.dropped": ("qframe_schedule_ticks", ("dropped",)),
}


def numbers(meters: Meters) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (family.name, tuple(labels)): value
        for family in meters.families()
        for labels, value in family.values
        if not isinstance(value, Distribution)
    }


@pytest.mark.parametrize("event", NUMBERS)
def test_an_event_counts_under_its_own_name_alone(event: str) -> None:
    meters = Meters(VirtualClock())
    for topic, group in (WHERE, ("orders", "audit"), ("bills", "billing")):
        meters.of(topic, group)
    before = numbers(meters)
    meters(event, {"topic": WHERE[0], "group": WHERE[1], "count": 3})
    after = numbers(meters)
    assert {each: after[each] - before[each] for each in after if after[each] != before[each]} == {
        NUMBERS[event]: 3
    }


def test_a_sweeper_is_behind_for_as_long_as_it_says_so() -> None:
    clock = VirtualClock()
    meters = Meters(clock)
    name = "qframe_sweep_behind_seconds"
    for seconds in (60, 120):
        meters("sweep.behind", {"topics": ["orders"], "for_s": seconds})
        clock.advance(60_000)
        assert numbers(meters)[name, ("orders",)] == seconds
    clock.advance(31_000)
    assert numbers(meters)[name, ("orders",)] == 0


def test_each_call_of_a_handler_counts_once_the_slow_ones_for_themselves() -> None:
    meter = Meters(VirtualClock()).of(*WHERE)
    meter.handled(3, 10.0, [8.0])
    found = meter.handle.read()
    assert (found.counts[-1], found.total) == (3, 10.0)
    meter.handled(1, 4.0, [4.0])
    assert meter.handle.read().counts[-1] == 4


def test_of_a_large_run_a_part_that_is_begun_counts_however_small_it_is() -> None:
    meter = Meters(VirtualClock()).of(*WHERE)
    run = PendingRun(16, [5, 7], 10)  # one in eight is looked at
    meter.begun(run, 1)
    assert meter.wait.read().counts[-1] == 1


def test_calls_are_counted_though_none_has_ever_reached_the_store() -> None:
    def refuse() -> None:
        raise StoreUnavailable("store", "away")

    meters = Meters(VirtualClock())
    store: Any = SimpleNamespace(**dict.fromkeys(OPERATIONS, refuse))
    timed: Any = meters.timed(store)
    with suppress(StoreUnavailable):
        timed.pull()
    assert numbers(meters)["qframe_store_errors", ("pull",)] == 1


def test_time_under_a_limit_adds_up_from_one_worker_of_an_app_to_the_next() -> None:
    meter = Meters(VirtualClock()).of(*WHERE)
    for limited_s in (3.0, 0.5):
        consumer: Any = SimpleNamespace(flow=SimpleNamespace(limited_s=limited_s))
        meter.watch(consumer)
    assert meter.limited_s == 3.5


def test_each_end_counts_by_what_the_store_has_said_of_it() -> None:
    """What the store has not answered yet is sent again, and counts then."""
    meter = Meters(VirtualClock()).of(*WHERE)
    one = Delivery("m", None, None, b"1", 0, 0, None, 0, "r", 1)
    batch = [
        one, one, one,
        Disposition(one, Verdict.RETRY), Disposition(one, Verdict.RELEASE),
        Disposition(one, Verdict.DEAD), Disposition(one, Verdict.DEAD, is_rejected=True),
        Disposition(one, Verdict.DEAD),
    ]  # fmt: skip
    results = [Settled.SETTLED] * 7 + [Settled.STALE]
    results[1:3] = [Settled.STALE, Settled.AWAY]
    meter.settled(batch, results)
    counted = {name: count for name, count in meter.outcomes if count}
    assert counted == {"ack": 1, "retry": 1, "dead": 1, "reject": 1, "stale": 2}


# A histogram: values by upper bounds, one by one or many at once.

BOUNDS = (0.001, 0.01, 1.0)


@given(st.lists(st.integers(-50, 2000), max_size=60))
def test_many_values_at_once_are_counted_as_each_by_itself(values: list[int]) -> None:
    at_once, one_by_one = Histogram(BOUNDS, 1000), Histogram(BOUNDS, 1000)
    at_once.add_since([5000 - value for value in values], 5000, len(values))
    for value in values:
        one_by_one.add(max(0, value))
    assert at_once.read() == one_by_one.read()


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=9), st.integers(0, 7))
def test_a_sample_stands_for_all(values: list[int], more: int) -> None:
    sampled = Histogram(BOUNDS, 1000)
    times = len(values) * 8 + more
    sampled.add_since([5000 - value for value in values], 5000, times)
    exact = Histogram(BOUNDS, 1000)
    exact.add_since([5000 - value for value in values], 5000, len(values))
    read, one = sampled.read(), exact.read()
    assert read.counts[-1] == times
    assert all(
        0 <= many - 8 * few <= more for many, few in zip(read.counts, one.counts, strict=True)
    )
    assert read.total == pytest.approx(one.total / len(values) * times)


def test_a_count_includes_all_values_that_are_not_above_its_bound() -> None:
    histogram = Histogram(BOUNDS, 1000)
    for value in (0, 1, 2, 10, 11, 1000, 1001):
        histogram.add(value)
    assert histogram.read() == (BOUNDS, (2, 4, 6, 7), 2.025)


def test_a_run_is_so_many_values_that_are_equal() -> None:
    histogram = Histogram(BOUNDS)
    histogram.add(0.5, 10)
    assert histogram.read() == (BOUNDS, (0, 0, 10, 10), 5.0)
