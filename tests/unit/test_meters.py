"""Each event moves the number that is named for it, by its count, and no other."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.runtime.handler.meter import PendingRun
from qframe.runtime.handler.retry_policy import Disposition
from qframe.telemetry.histogram import Distribution
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
