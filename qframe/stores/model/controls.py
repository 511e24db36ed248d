"""What is tuned of a group, and its bucket of tokens."""

from __future__ import annotations

from collections.abc import Mapping

from qframe.stores.bucket import Terms, drawn
from qframe.stores.model.state import TopicState
from qframe.stores.types import DrawResult


def tune(state: TopicState, group: str, values: Mapping[str, str | None]) -> None:
    """Sets values by name, or takes them back."""
    tuned = {**state.tunings.get(group, {}), **values}
    state.tunings[group] = {name: text for name, text in tuned.items() if text is not None}


def draw(state: TopicState, group: str, terms: Terms, now_ms: int) -> DrawResult:
    """Draws tokens, as many as there are."""
    answer, after = drawn(state.buckets.get(group), terms, now_ms)
    if after is not None:
        state.buckets[group] = after
    return answer
