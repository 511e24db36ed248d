"""Changing what is not handed out."""

from __future__ import annotations

import msgspec
from typing_extensions import override

from qframe.outcomes import Moved
from qframe.stores.base import StoredTimers
from qframe.stores.model import inspect
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import GroupCursor, QueuedHead, TopicState
from qframe.stores.records import Record
from qframe.topic import Topic


class ModelTimers(ModelRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        with self._lock:
            moved = move(self._state(topic), subject, at_ms)
        self._ring()
        return moved

    @override
    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        with self._lock:
            return change(self._state(topic), subject, body, headers)

    @override
    def cancel(self, topic: Topic, subject: str) -> Moved:
        with self._lock:
            return cancel(self._state(topic), subject)

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        with self._lock:
            state = self._state(topic)
            return [
                inspect.record_of_head(
                    state, name, state.groups[name].index(cursor), subject, head, self._now_ms()
                )
                for name, cursor, head in find(state, subject)
            ]

    @override
    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        with self._lock:
            found = inspect.waiting(self._state(topic), from_ms, until_ms, self._now_ms())
        return found[:limit]


def find(state: TopicState, subject: str) -> list[tuple[str, GroupCursor, QueuedHead]]:
    """The heads of a subject, with group and cursor."""
    return [
        (name, cursor, cursor.heads[subject])
        for name, cursors in sorted(state.groups.items())
        for cursor in cursors
        if subject in cursor.heads
    ]


def move(state: TopicState, subject: str, at_ms: int) -> Moved:
    """Makes a subject due at another time, for every group."""
    result = _outcome_of(state, subject)
    if result is Moved.DONE:
        for _, _, head in find(state, subject):
            head.due_ms = at_ms
    return result


def change(state: TopicState, subject: str, body: bytes, headers: dict[str, str] | None) -> Moved:
    """Gives a subject another body and headers, for every group."""
    result = _outcome_of(state, subject)
    if result is Moved.DONE:
        for _, _, head in find(state, subject):
            # The message itself may stand elsewhere too: behind another head, or among the dead.
            head.message = msgspec.structs.replace(head.message, body=body, headers=headers)
    return result


def cancel(state: TopicState, subject: str) -> Moved:
    """Takes a subject out with all its messages, for every group."""
    result = _outcome_of(state, subject)
    if result is Moved.DONE:
        for _, cursor, head in find(state, subject):
            del cursor.heads[subject]
            cursor.cancelled += 1 + len(head.behind)
    return result


def _outcome_of(state: TopicState, subject: str) -> Moved:
    found = find(state, subject)
    if not found:
        return Moved.ABSENT
    return Moved.DOING if any(head.in_doing for _, _, head in found) else Moved.DONE
