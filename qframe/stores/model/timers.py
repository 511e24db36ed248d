"""Changing what is not handed out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from typing_extensions import override

from qframe.outcomes import Moved
from qframe.stores.acts import StoredTimers
from qframe.stores.history import changes_of, key_of, timer_entry
from qframe.stores.model import inspect
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import GroupCursor, QueuedHead, TopicState
from qframe.stores.records import ALL_TIMERS, HistoryEntry, Record, TimerSpan
from qframe.topic import Topic


class ModelTimers(ModelRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def edit(
        self,
        topic: Topic,
        subject: str,
        *,
        due_ms: int | None = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        if_due_ms: int | None = None,
        by: str | None = None,
    ) -> Moved:
        with self._lock:
            entry = partial(
                timer_entry, now_ms=self._now_ms(), by=by, changes=changes_of(due_ms, body)
            )
            state = self._changing(topic)
            edited = edit(state, subject, due_ms, body, headers, if_due_ms=if_due_ms, entry=entry)
        self._ring(topic)
        return edited

    @override
    def cancel(
        self, topic: Topic, subject: str, *, if_due_ms: int | None = None, by: str | None = None
    ) -> Moved:
        with self._lock:
            entry = partial(timer_entry, now_ms=self._now_ms(), by=by)
            return cancel(self._changing(topic), subject, if_due_ms=if_due_ms, entry=entry)

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


def find(state: TopicState, subject: str) -> list[tuple[str, int, GroupCursor, QueuedHead]]:
    """The heads of a subject, with group, slot and cursor."""
    return [
        (name, number, cursor, cursor.heads[subject])
        for name in sorted(state.groups)
        for number, cursor in state.cursors(name).items()
        if subject in cursor.heads
    ]


def edit(
    state: TopicState,
    subject: str,
    due_ms: int | None,
    body: bytes | None,
    headers: dict[str, str] | None,
    *,
    if_due_ms: int | None,
    entry: Callable[[str, int], HistoryEntry],
) -> Moved:
    """Makes a subject due at another time, or gives it another body, for every group."""
    result = _outcome_of(state, subject, if_due_ms)
    if result is Moved.DONE:
        for _, _, cursor, head in find(state, subject):
            if due_ms is not None:
                head.due_ms = max(0, due_ms)
            if body is not None:
                # The message itself may stand elsewhere too: behind another head, among the dead.
                head.message = msgspec.structs.replace(head.message, body=body, headers=headers)
            _keep(state, cursor, subject, head, entry)
    return result


def cancel(
    state: TopicState,
    subject: str,
    *,
    if_due_ms: int | None,
    entry: Callable[[str, int], HistoryEntry],
) -> Moved:
    """Takes a subject out with all its messages, for every group."""
    result = _outcome_of(state, subject, if_due_ms)
    if result is Moved.DONE:
        for _, _, cursor, head in find(state, subject):
            del cursor.heads[subject]
            cursor.cancelled += 1 + len(head.behind)
            _keep(state, cursor, subject, head, entry)
    return result


def _keep(
    state: TopicState,
    cursor: GroupCursor,
    subject: str,
    head: QueuedHead,
    entry: Callable[[str, int], HistoryEntry],
) -> None:
    if state.topic.history_ms:
        cursor.keep(entry(head.message.id, head.tries), key_of(state.topic, subject))


def _outcome_of(state: TopicState, subject: str, if_due_ms: int | None) -> Moved:
    found = [head for _, _, _, head in find(state, subject)]
    if any(head.in_doing for head in found):
        return Moved.DOING
    if if_due_ms is not None:
        found = [head for head in found if head.due_ms == if_due_ms]
    return Moved.DONE if found else Moved.ABSENT
