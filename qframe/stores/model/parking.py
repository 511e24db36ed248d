"""Parked keys: what left a stream's line, under its key where the group keeps order."""

from __future__ import annotations

import msgspec

from qframe.stores import rules
from qframe.stores.model.state import GroupCursor, QueuedHead, StoredMessage


def subject_of(cursor: GroupCursor, message: StoredMessage, offset: int) -> str:
    """The subject of a message of the log, once it leaves the line."""
    return rules.subject_of_parked(message.key if cursor.max_parked else None, offset)


def leave(
    cursor: GroupCursor, message: StoredMessage, offset: int, due_ms: int, *, tries: int,
    lost: int = 0, error: str | None = None,
) -> bool:  # fmt: skip
    """Takes a message out of the line; returns whether it is the head of its subject."""
    cursor.settle(offset)
    return park(cursor, QueuedHead(message, due_ms, offset, tries, lost, error=error))


def park(cursor: GroupCursor, coming: QueuedHead, *, stays: bool = False) -> bool:
    """Queues a message that left the line by its offset; returns whether it is the head.

    It takes back a head that is handed out and comes after it; where that `stays`, it stands
    behind.
    """
    subject = subject_of(cursor, coming.message, coming.seq)
    head = cursor.heads.get(subject)
    if head is None:
        cursor.heads[subject] = coming
        return True
    line = [head.message, *head.behind]
    place, first = len(line), min(1, head.given) if stays else 0
    while place > first and line[place - 1].seq > coming.seq:
        place -= 1
    message = msgspec.structs.replace(coming.message, due_ms=rules.FRONT)
    if place > 0:
        head.behind.insert(place - 1, message)
        head.given = min(head.given, place)
        return False
    line[0] = msgspec.structs.replace(head.message, due_ms=rules.FRONT)
    coming.behind = line
    cursor.heads[subject] = coming
    return True
