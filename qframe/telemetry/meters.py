"""The numbers of an app's workers."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, MutableSequence
from importlib import import_module
from typing import Any, Final

from qframe.clock import Clock
from qframe.stores.base import Store
from qframe.telemetry.consumer_meter import OUTCOMES, ConsumerMeter
from qframe.telemetry.families import Family
from qframe.telemetry.histogram import Distribution
from qframe.telemetry.timed_store import StoreTimes

CellMaker = Callable[[str, str], MutableSequence[int]]

BEHIND_TOLD_S: Final = 90.0
_WHERE: Final = ("topic", "group")
_TICKS: Final = {
    f"schedule.{what}": what for what in ("fired", "missed", "skipped", "dropped")
}  # fmt: skip


def cells_in_memory(_topic: str, _group: str) -> MutableSequence[int]:
    """Places for the outcomes of a consumer, which end with the process."""
    return [0] * len(OUTCOMES)


class Meters:
    """Counts what the workers of one app do, from the moment that it is given to them.

    It is a listener of the app's events, and has a meter for each topic and group.

    Args:
        clock: the app's.
        make_cells: makes the places for the outcomes of a consumer.
    """

    def __init__(self, clock: Clock, make_cells: CellMaker = cells_in_memory) -> None:
        self._clock = clock
        self._make_cells = make_cells
        self._guard = threading.Lock()
        self._meters: dict[tuple[str, str], ConsumerMeter] = {}
        self._times = StoreTimes(clock)
        self._ticks = dict.fromkeys(_TICKS.values(), 0)
        self._behind: dict[str, tuple[int, float]] = {}

    def __call__(self, name: str, facts: dict[str, Any]) -> None:
        """Hears an event."""
        if name in _TICKS:
            self._ticks[_TICKS[name]] += facts["count"]
        if name == "sweep.behind":
            told = facts["for_s"], self._clock.monotonic_s()
            self._behind.update(dict.fromkeys(facts["topics"], told))
        meter = self._meters.get((facts.get("topic", ""), facts.get("group", "")))
        if meter is not None:
            meter.hear(name, facts)

    def of(self, topic: str, group: str) -> ConsumerMeter:
        """The meter of a consumer, from one worker of the app to the next."""
        with self._guard:
            meter = self._meters.get((topic, group))
            if meter is None:
                cells = self._make_cells(topic, group)
                meter = ConsumerMeter(topic, group, clock=self._clock, cells=cells)
                self._meters[topic, group] = meter
            return meter

    def forget(self, topic: str, group: str) -> None:
        """Shows a consumer no more that has ended, and that nobody may ever have again."""
        with self._guard:
            self._meters.pop((topic, group), None)

    def timed(self, store: Store) -> Store:
        """The store, with its operations timed."""
        return self._times.around(store)

    def families(self) -> list[Family]:
        """All numbers, as they are now."""
        with self._guard:
            meters = list(self._meters.values())
        return [
            *_of_consumers(meters),
            *self._of_store(),
            self._of_schedules(),
            self._of_sweeping(),
            _build_info(),
        ]

    def _of_schedules(self) -> Family:
        ticks = [((what,), float(count)) for what, count in self._ticks.items()]
        return Family(
            "qframe_schedule_ticks", "counter", "Ticks of schedules, by what became of them.",
            ("outcome",), ticks,
        )  # fmt: skip

    def _of_sweeping(self) -> Family:
        """The sweeper tells each minute that it is behind, until it is not."""
        now_s = self._clock.monotonic_s()
        told = [
            ((topic,), float(for_s if now_s - at_s < BEHIND_TOLD_S else 0))
            for topic, (for_s, at_s) in self._behind.items()
        ]
        return Family(
            "qframe_sweep_behind_seconds", "gauge",
            "For how long the worker is behind with sweeping a topic, once that is over a minute.",
            ("topic",), told,
        )  # fmt: skip

    def _of_store(self) -> list[Family]:
        times = self._times
        read = {name: each.read() for name, each in times.seconds.items()}
        used = {name: each for name, each in read.items() if each.counts[-1]}
        return [
            Family(
                "qframe_store_seconds", "histogram", "Duration of the store's operations.", ("op",),
                [((name,), each) for name, each in used.items()],
            ),
            Family(
                "qframe_store_errors", "counter", "Calls that could not reach the store.", ("op",),
                [((name,), times.errors[name]) for name in used],
            ),
        ]  # fmt: skip


def _of_consumers(meters: list[ConsumerMeter]) -> list[Family]:
    def by_group(
        name: str, kind: Any, text: str, read: Callable[[ConsumerMeter], float | Distribution]
    ) -> Family:
        values = [((each.topic, each.group), read(each)) for each in meters]
        return Family(name, kind, text, _WHERE, values)

    outcomes = [
        ((each.topic, each.group, outcome), count)
        for each in meters
        for outcome, count in each.outcomes
    ]
    changes = [
        ((each.topic, each.group, change), each.counts[name])
        for each in meters
        for change, name in (("taken", "taken"), ("left", "left"), ("lost", "slots_lost"))
    ]
    return [
        Family(
            "qframe_handled", "counter", "Messages whose end the store has confirmed or refused.",
            (*_WHERE, "outcome"), outcomes,
        ),
        by_group(
            "qframe_handle_seconds", "histogram", "Duration of a message's handler.",
            lambda one: one.handle.read(),
        ),
        by_group(
            "qframe_wait_seconds", "histogram", "From a message's due time to its handler.",
            lambda one: one.wait.read(),
        ),
        by_group(
            "qframe_end_to_end_seconds", "histogram",
            "From a message's publishing to its acknowledgement.",
            lambda one: one.end_to_end.read(),
        ),
        by_group(
            "qframe_lateness_seconds", "histogram",
            "From the due time of a message that was due later than it was published to its "
            "acknowledgement.",
            lambda one: one.lateness.read(),
        ),
        by_group(
            "qframe_in_flight", "gauge", "Messages pulled, and neither settled nor lost.",
            lambda one: one.in_flight,
        ),
        by_group(
            "qframe_longest_running_seconds", "gauge",
            "Duration so far of the handler call that runs for longest.",
            lambda one: one.longest_running_s,
        ),
        by_group(
            "qframe_lease_lost", "counter",
            "Messages handed out again, since their worker had not settled them in time.",
            lambda one: one.counts["lost"],
        ),
        Family(
            "qframe_slot_changes", "counter", "Slots that workers took, left or lost.",
            (*_WHERE, "change"), changes,
        ),
        by_group(
            "qframe_breaker_open", "gauge", "1 while the circuit breaker is open.",
            lambda one: float(one.is_open),
        ),
        by_group(
            "qframe_slots_full", "gauge",
            "Slots with so much parked that their lines are not read.",
            lambda one: float(one.full_slots),
        ),
        by_group(
            "qframe_limited_seconds", "counter",
            "Time in which the rate limit let no message through.",
            lambda one: one.limited_s,
        ),
        by_group(
            "qframe_progress_age_seconds", "gauge",
            "Time that the pull loop has spent on its present step; 0 while it is idle.",
            lambda one: one.progress_age_s,
        ),
    ]  # fmt: skip


def _build_info() -> Family:
    version = import_module("importlib.metadata").version  # loads a parser of emails as well
    return Family(
        "qframe_build_info", "gauge", "1, with the versions of qframe and Python as labels.",
        ("version", "python"), [((version("qframe"), platform.python_version()), 1.0)],
    )  # fmt: skip
