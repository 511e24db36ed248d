"""Edits of heads and of dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from typing_extensions import override

from qframe.outcomes import Moved
from qframe.stores import rules
from qframe.stores.edits import Becomes, Edit, Rewriting
from qframe.stores.history import key_of, timer_entry
from qframe.stores.model.parking import park
from qframe.stores.model.queues import add_dead_letter, advance, queue
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import (
    DeadLetter,
    GroupCursor,
    QueuedHead,
    StoredMessage,
    TopicState,
)
from qframe.topic import Kind, Topic


class ModelRewriting(ModelRole, Rewriting):
    """Heads and dead letters of cursors."""

    @override
    def rewrite(self, topic: Topic, edits: Sequence[Edit], *, by: str | None = None) -> list[Moved]:
        with self._lock:
            for group in {edit.group for edit in edits} - {None}:
                self._group(topic, group or "")
            state = self._changing(topic)
            outcomes = [_rewrite(state, edit, self._now_ms(), by) for edit in edits]
        self._ring(topic)
        return outcomes


def _rewrite(state: TopicState, edit: Edit, now_ms: int, by: str | None) -> Moved:
    if edit.is_of_dead:
        return _settle_dead(state, edit, now_ms)
    found = _heads_of(state, edit)
    is_held = any(head.in_doing for _, head in found)
    outcome = edit.outcome([head.due_ms for _, head in found], is_held=is_held)
    if outcome is Moved.DONE:
        for cursor, head in found:
            _change(state, cursor, head, edit, now_ms, by)
    return outcome


def _cursors_of(state: TopicState, edit: Edit) -> list[tuple[int, GroupCursor]]:
    """The cursors that an edit is for, with their slots."""
    slots = edit.slots_in(state.topic)
    names = sorted(state.groups) if edit.group is None else [edit.group]
    return [(slot, state.groups[name][slot]) for name in names for slot in slots]


def _heads_of(state: TopicState, edit: Edit) -> list[tuple[GroupCursor, QueuedHead]]:
    return [
        (cursor, head)
        for _, cursor in _cursors_of(state, edit)
        if (head := cursor.heads.get(edit.subject)) is not None and edit.seq in (None, head.seq)
    ]


def _change(
    state: TopicState, cursor: GroupCursor, head: QueuedHead, edit: Edit, now_ms: int,
    by: str | None,
) -> None:  # fmt: skip
    match edit.becomes:
        case Becomes.DUE:
            head.due_ms = min(head.due_ms, now_ms)
        case Becomes.DEAD:
            rules.end_lease(head)
            add_dead_letter(cursor, head, now_ms, edit.error, head.error)
            advance(cursor, state.topic.kind, head, now_ms)
        case Becomes.EDITED:
            _edit(head, edit)
            _remember(state, cursor, head, edit, now_ms, by)
        case _:
            del cursor.heads[edit.subject]
            cursor.cancelled += 1 + len(head.behind)
            _remember(state, cursor, head, edit, now_ms, by)


def _edit(head: QueuedHead, edit: Edit) -> None:
    if edit.due_ms is not None:
        head.due_ms = max(0, edit.due_ms)
    if edit.body is not None:
        # The message itself may stand elsewhere too: behind another head, among the dead.
        head.message = replace(head.message, body=edit.body, headers=edit.headers)


def _remember(
    state: TopicState, cursor: GroupCursor, head: QueuedHead, edit: Edit, now_ms: int,
    by: str | None,
) -> None:  # fmt: skip
    if state.topic.history_ms:
        entry = timer_entry(head.message.id, head.tries, now_ms, by=by, changes=edit.changes)
        cursor.keep(entry, key_of(state.topic, edit.subject))


def _settle_dead(state: TopicState, edit: Edit, now_ms: int) -> Moved:
    """Retries a dead letter, or drops it."""
    for slot, cursor in _cursors_of(state, edit):
        for letter in [each for each in cursor.dead if each.seq == edit.seq]:
            cursor.dead.remove(letter)
            if edit.becomes is Becomes.DROPPED:
                cursor.cancelled += 1
            else:
                _retry(state, slot, cursor, letter, now_ms)
            return Moved.DONE
    return Moved.ABSENT


def _retry(
    state: TopicState, slot: int, cursor: GroupCursor, letter: DeadLetter, now_ms: int
) -> None:
    if not state.topic.has_subjects:
        park(cursor, QueuedHead(letter.message, now_ms, letter.seq), stays=True)
        return
    cursor.published -= 1
    message = letter.message
    if state.topic.kind is Kind.ORDERED or _is_newest(cursor, message):
        again = replace(message, due_ms=now_ms, seq=state.slots[slot].take_number())
        queue(cursor, state.topic.kind, again, now_ms)


def _is_newest(cursor: GroupCursor, message: StoredMessage) -> bool:
    """Whether no message of its subject was published since."""
    head = cursor.heads.get(message.subject)
    if head is None:
        return True
    return message.published_at_ms > [head.message, *head.behind][-1].published_at_ms
