"""The buckets of tokens of groups."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.bucket import Buckets, DrawTerms, drawn
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import TopicState
from qframe.stores.types import DrawResult
from qframe.topic import Topic


class ModelBuckets(ModelRole, Buckets):
    """Buckets by group."""

    @override
    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        with self._lock:
            self._group(topic, group)
            terms = DrawTerms(tokens, rate, per_ms, burst)
            return draw(self._state(topic), group, terms, self._now_ms())


def draw(state: TopicState, group: str, terms: DrawTerms, now_ms: int) -> DrawResult:
    """Draws tokens, as many as there are."""
    result, after = drawn(state.buckets.get(group), terms, now_ms)
    if after is not None:
        state.buckets[group] = after
    return result
