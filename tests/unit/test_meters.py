"""Each event moves the number that is named for it, by its count, and no other."""

from __future__ import annotations

import pytest

from qframe.clock import VirtualClock
from qframe.telemetry.histogram import Distribution
from qframe.telemetry.meters import Meters

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
