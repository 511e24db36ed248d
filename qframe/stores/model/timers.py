"""Changing what is not handed out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from typing_extensions import override

from qframe.outcomes import Moved
from qframe.stores.acts import StoredTimers
from qframe.stores.history import changes_of, key_of, timer_entry
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import GroupCursor, QueuedHead, TopicState
from qframe.stores.timer_change import TimerChange, outcome_of, slots_of
from qframe.topic import Topic


class ModelTimers(ModelRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def change_timers(
        self, topic: Topic, changes: Sequence[TimerChange], *, by: str | None = None
    ) -> list[Moved]:
        with self._lock:
            state = self._changing(topic)
            outcomes = [change_timer(state, each, self._now_ms(), by) for each in changes]
        self._ring(topic)
        return outcomes


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


def change_timer(state: TopicState, change: TimerChange, now_ms: int, by: str | None) -> Moved:
    """Edits a subject, or takes it out, for every group."""
    found = find(state, change.subject, change.slot)
    is_held = any(head.in_doing for *_, head in found)
    outcome = outcome_of(change, [head.due_ms for *_, head in found], is_held=is_held)
    if outcome is not Moved.DONE:
        return outcome
    words = None if change.cancels else changes_of(change.due_ms, change.body)
    for _, _, cursor, head in found:
        if change.cancels:
            del cursor.heads[change.subject]
            cursor.cancelled += 1 + len(head.behind)
        if change.due_ms is not None:
            head.due_ms = max(0, change.due_ms)
        if change.body is not None:
            # The message itself may stand elsewhere too: behind another head, among the dead.
            head.message = replace(head.message, body=change.body, headers=change.headers)
        if state.topic.history_ms:
            entry = timer_entry(head.message.id, head.tries, now_ms, by=by, changes=words)
            cursor.keep(entry, key_of(state.topic, change.subject))
    return outcome
