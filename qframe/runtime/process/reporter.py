"""Reports what stands in a worker's memory alone, so that `explain` knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from qframe.clock import Clock
from qframe.errors import QFrameError
from qframe.options.report import ConsumerReport
from qframe.options.tuning import STACKS_S, Tuning
from qframe.runtime.consume.consumer import Consumer
from qframe.stores.base import Inspecting, Topics
from qframe.stores.controls import Controls

EVERY_S: Final = 10.0


class SettingsStore(Topics, Controls, Inspecting, Protocol):
    """The roles of a store that has topics and settings, and keeps reports."""


class Reporter:
    """Writes a report of each consumer into the store: when it changes, and every 10 s.

    While a group's settings ask for stacks it reports each time that it is asked to, with where the
    handlers are in their code. The store's clock says until when; it is read once for each request.

    Args:
        worker: the worker's id.
        consumers: the worker's consumers.
        store: keeps the reports.
        clock: the clock.
        behind_s: for how long the worker has been behind with sweeping topics, by their names.
    """

    def __init__(
        self,
        *,
        worker: str,
        consumers: Sequence[Consumer],
        store: SettingsStore,
        clock: Clock,
        behind_s: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._worker = worker
        self._behind_s = behind_s
        self._consumers = consumers
        self._store = store
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._started_ms: int | None = None
        self._last: dict[int, tuple[ConsumerReport, float]] = {}
        self._asked: dict[int, tuple[int, float]] = {}

    def report(self, tunings: Sequence[Tuning]) -> None:
        """Writes the reports that are due; one that cannot be written now is due the next time.

        Args:
            tunings: the settings of each consumer's group, in the consumers' order.
        """
        for number, tuning in enumerate(tunings):
            with suppress(QFrameError):  # who needs the store tells of it; a report can wait
                self._report(number, tuning)

    def _report(self, number: int, tuning: Tuning) -> None:
        consumer = self._consumers[number]
        is_asked = self._is_asked(number, tuning.stacks_until_ms)
        report = msgspec.structs.replace(
            consumer.report(with_stacks=is_asked),
            started_ms=self._started(),
            behind_s=self._behind_s.get(consumer.context.topic.name, 0),
        )
        now_s = self._clock.monotonic_s()
        before, at_s = self._last.get(number, (None, 0.0))
        is_known = before is not None and _same(before, report) and now_s < at_s + EVERY_S
        if is_asked or not is_known:
            self._store.report(
                consumer.context.topic, consumer.group, self._worker, report.to_json()
            )
            self._last[number] = report, now_s

    def _started(self) -> int:
        """When the worker started, by the store's clock, which is read once."""
        if self._started_ms is None:
            ran_s = self._clock.monotonic_s() - self._began_s
            self._started_ms = self._store.now_ms() - round(ran_s * 1000)
        return self._started_ms

    def _is_asked(self, number: int, until_ms: int | None) -> bool:
        """Whether somebody wants to see stacks until a moment of the store's clock."""
        if until_ms is None:
            return False
        if self._asked.get(number, (None, 0.0))[0] != until_ms:
            left_s = (until_ms - self._store.now_ms()) / 1000
            self._asked[number] = until_ms, self._clock.monotonic_s() + min(left_s, STACKS_S)
        return self._clock.monotonic_s() < self._asked[number][1]


def _same(before: ConsumerReport, report: ConsumerReport) -> bool:
    """Whether they differ by the passing of time alone."""
    return _timeless(before) == _timeless(report)


def _timeless(report: ConsumerReport) -> ConsumerReport:
    return msgspec.structs.replace(report, pause_ms=min(1, report.pause_ms or 0))
