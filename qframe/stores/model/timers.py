"""Changing what is not handed out."""

from __future__ import annotations

import msgspec

from qframe.outcomes import Moved
from qframe.stores.model.state import Cursor, Head, TopicState


def find(state: TopicState, subject: str) -> list[tuple[str, Cursor, Head]]:
    """The heads of a subject, with group and cursor."""
    return [
        (name, cursor, cursor.heads[subject])
        for name, cursors in sorted(state.groups.items())
        for cursor in cursors
        if subject in cursor.heads
    ]


def move(state: TopicState, subject: str, at_ms: int) -> Moved:
    """Makes a subject due at another time, for every group."""
    answer = _answer(state, subject)
    if answer is Moved.DONE:
        for _, _, head in find(state, subject):
            head.due_ms = at_ms
    return answer


def change(state: TopicState, subject: str, body: bytes, headers: dict[str, str] | None) -> Moved:
    """Gives a subject another body and headers, for every group."""
    answer = _answer(state, subject)
    if answer is Moved.DONE:
        for _, _, head in find(state, subject):
            # The letter itself may stand elsewhere too: behind another head, or among the dead.
            head.letter = msgspec.structs.replace(head.letter, body=body, headers=headers)
    return answer


def cancel(state: TopicState, subject: str) -> Moved:
    """Takes a subject out with all its messages, for every group."""
    answer = _answer(state, subject)
    if answer is Moved.DONE:
        for _, cursor, head in find(state, subject):
            del cursor.heads[subject]
            cursor.cancelled += 1 + len(head.behind)
    return answer


def _answer(state: TopicState, subject: str) -> Moved:
    found = find(state, subject)
    if not found:
        return Moved.ABSENT
    return Moved.DOING if any(head.in_doing for _, _, head in found) else Moved.DONE
