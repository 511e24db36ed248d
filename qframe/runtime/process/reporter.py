"""Reports what stands in a worker's memory alone, so that `explain` knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from qframe.clock import Clock
from qframe.errors import QFrameError
from qframe.options.report import ConsumerReport
from qframe.runtime.consume.consumer import Consumer
from qframe.stores.base import Controls
from qframe.topic import Topic

EVERY_S: Final = 10.0


class Reporter:
    """Writes a report of each consumer into the store: when it changes, and every 10 s.

    Args:
        worker: the worker's id.
        consumers: the worker's consumers, each with its topic.
        store: keeps the reports.
        clock: the clock.
    """

    def __init__(
        self,
        *,
        worker: str,
        consumers: Sequence[tuple[Topic, Consumer]],
        store: Controls,
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._consumers = consumers
        self._store = store
        self._clock = clock
        self._last: dict[int, tuple[ConsumerReport, float]] = {}

    def report(self) -> None:
        """Writes the reports that are due; one that cannot be written now is due the next time."""
        for number, (topic, consumer) in enumerate(self._consumers):
            report, now_s = consumer.report(), self._clock.monotonic_s()
            before, at_s = self._last.get(number, (None, 0.0))
            if before is not None and _same(before, report) and now_s < at_s + EVERY_S:
                continue
            try:
                self._store.report(topic, consumer.group, self._worker, report.to_json())
            except QFrameError:
                continue  # who needs the store tells of it; nobody waits for a report
            self._last[number] = report, now_s


def _same(before: ConsumerReport, report: ConsumerReport) -> bool:
    """Whether they differ by the passing of time alone."""
    return _timeless(before) == _timeless(report)


def _timeless(report: ConsumerReport) -> ConsumerReport:
    return msgspec.structs.replace(report, pause_ms=min(1, report.pause_ms or 0))
