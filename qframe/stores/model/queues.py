"""The head of a subject: queued, replaced, requeued, advanced, by `qframe.stores.rules`."""

from __future__ import annotations

import msgspec

from qframe.outcomes import Outcome
from qframe.stores import rules
from qframe.stores.model.state import DeadLetter, GroupCursor, QueuedHead, StoredMessage
from qframe.topic import Kind


def queue(cursor: GroupCursor, kind: Kind, message: StoredMessage, now_ms: int) -> Outcome:
    """Queues a message for a group; returns what became of it."""
    head = cursor.heads.get(message.subject)
    outcome = Outcome.MERGED if kind is Kind.MERGE else Outcome.REPLACED
    if head is None:
        cursor.heads[message.subject] = QueuedHead(message, message.due_ms, message.seq)
        outcome = Outcome.STORED
    elif kind is Kind.ORDERED:
        head.behind.append(message)
        outcome = Outcome.STORED
    elif not head.in_doing:
        replace(head, kind, message, now_ms)
    elif not head.behind:
        head.behind.append(message)
        outcome = Outcome.STORED
    else:
        first = head.behind[0]
        due_ms = rules.replaced_due(kind, first.due_ms, message.due_ms, now_ms)
        following = msgspec.structs.replace(message, due_ms=due_ms, seq=first.seq)
        head.behind = [following]
    cursor.published += outcome is Outcome.STORED
    return outcome


def replace(head: QueuedHead, kind: Kind, message: StoredMessage, now_ms: int) -> None:
    """Puts a newer message of an equal subject in place of a head."""
    rules.replace(head, kind, message.due_ms, now_ms)
    head.message = message


def requeue(cursor: GroupCursor, kind: Kind, head: QueuedHead, now_ms: int) -> None:
    """Takes a head out of doing; a next round behind it replaces it."""
    rules.end_lease(head)
    if head.behind and kind not in rules.BACKLOGGED:
        replace(head, kind, head.behind.pop(), now_ms)
        cursor.published -= 1


def advance(
    cursor: GroupCursor, kind: Kind, head: QueuedHead, now_ms: int, *, keeps: int = 0
) -> None:
    """Puts the next message in place of a head that is settled, or removes the subject.

    `keeps` is how many messages of its run are still in doing; the new head is one of them.
    """
    if not head.behind:
        del cursor.heads[_name(cursor, head)]
        return
    head.message = message = head.behind.pop(0)
    rules.promote_next(
        head, kind, seq=message.seq, due_ms=message.due_ms, now_ms=now_ms, keeps=keeps
    )


def add_dead_letter(
    cursor: GroupCursor, head: QueuedHead, now_ms: int, error: str | None, traceback: str | None
) -> None:
    """Writes a head among the dead; the caller lets the subject advance."""
    cursor.dead.append(DeadLetter(head.message, head.seq, head.tries, error, traceback, now_ms))


def _name(cursor: GroupCursor, head: QueuedHead) -> str:
    return next(name for name, each in cursor.heads.items() if each is head)
