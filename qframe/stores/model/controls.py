"""The tuned settings of a group, its bucket of tokens, and what its workers report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from qframe.stores.base import Controls
from qframe.stores.bucket import DrawTerms, drawn
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import TopicState
from qframe.stores.types import (
    REPORTS_MS,
    DrawResult,
    WorkerReport,
)
from qframe.topic import Topic


class ModelControls(ModelRole, Controls):
    """Tunings and buckets."""

    @override
    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        with self._lock:
            self._group(topic, group)
            tune(self._state(topic), group, values)

    @override
    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        with self._lock:
            return [dict(self._state(topic).tunings.get(group, {})) for topic, group in asked]

    @override
    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        with self._lock:
            self._group(topic, group)
            terms = DrawTerms(tokens, rate, per_ms, burst)
            return draw(self._state(topic), group, terms, self._now_ms())

    @override
    def report(self, topic: Topic, group: str, worker: str, text: str) -> None:
        with self._lock:
            self._group(topic, group)
            report(self._state(topic), group, WorkerReport(worker, self._now_ms(), text))

    @override
    def reports(self, topic: Topic, group: str) -> list[WorkerReport]:
        with self._lock:
            self._group(topic, group)
            return sorted(self._state(topic).reports.get(group, {}).values())


def report(state: TopicState, group: str, one: WorkerReport) -> None:
    """Keeps a worker's word, and forgets old ones."""
    kept = {
        name: each
        for name, each in state.reports.get(group, {}).items()
        if each.at_ms > one.at_ms - REPORTS_MS
    }
    state.reports[group] = {**kept, one.worker: one}


def tune(state: TopicState, group: str, values: Mapping[str, str | None]) -> None:
    """Sets values by name, or takes them back."""
    tuned = {**state.tunings.get(group, {}), **values}
    state.tunings[group] = {name: text for name, text in tuned.items() if text is not None}


def draw(state: TopicState, group: str, terms: DrawTerms, now_ms: int) -> DrawResult:
    """Draws tokens, as many as there are."""
    result, after = drawn(state.buckets.get(group), terms, now_ms)
    if after is not None:
        state.buckets[group] = after
    return result
