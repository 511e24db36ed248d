"""What is not handed out."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.acts import StoredTimers
from qframe.stores.edits import slots_of
from qframe.stores.model import inspect
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import GroupCursor, QueuedHead, TopicState
from qframe.stores.records import ALL_TIMERS, Record, TimerSpan
from qframe.topic import Topic


class ModelTimers(ModelRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        with self._lock:
            state = self._state(topic)
            return [
                inspect.record_of_head(state, name, number, subject, head, self._now_ms())
                for name, number, _, head in find(state, subject)
            ]

    @override
    def timers(self, topic: Topic, span: TimerSpan = ALL_TIMERS) -> list[Record]:
        with self._lock:
            found = inspect.timers(self._state(topic), span, self._now_ms())
        return [each for each in found if span.is_behind(each.timer_place)][: span.limit]


def find(
    state: TopicState, subject: str, seen: int | None = None
) -> list[tuple[str, int, GroupCursor, QueuedHead]]:
    """The heads of a subject, with group, slot and cursor."""
    slots = slots_of(state.topic, subject, seen)
    return [
        (name, number, cursor, cursor.heads[subject])
        for name in sorted(state.groups)
        for number, cursor in state.cursors(name).items()
        if number in slots and subject in cursor.heads
    ]
