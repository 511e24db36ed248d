"""Changes of what is not handed out: what is asked, where it may stand, and what comes of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from qframe.codec import KEYLESS
from qframe.outcomes import Moved
from qframe.topic import Topic


class TimerChange(NamedTuple):
    """A change of a subject that is not handed out: it is edited, or taken out.

    In `ordered` it is the head that is edited, and all messages of the key that are taken out.

    Attributes:
        subject: the key, or the `subject` of a message without one.
        cancels: whether it is taken out, counted as cancelled.
        due_ms: when it is due, in milliseconds since 1970; None leaves that as it is.
        body: its new body; None leaves body and headers as they are.
        headers: its headers from now on, where a body is given.
        if_due_ms: only if a group has it due at this moment.
        slot: where it was seen, of one without a key: it is looked for there alone.
    """

    subject: str
    cancels: bool = False
    due_ms: int | None = None
    body: bytes | None = None
    headers: dict[str, str] | None = None
    if_due_ms: int | None = None
    slot: int | None = None


def slots_of(topic: Topic, subject: str, seen: int | None = None) -> Sequence[int]:
    """Where a subject may stand: one that is no key does not tell, but where it was seen does."""
    if not subject.startswith(KEYLESS):
        return (topic.slot_of(subject.encode()),)
    return topic.all_slots if seen is None or seen not in topic.all_slots else (seen,)


def outcome_of(change: TimerChange, due: Collection[int], *, is_held: bool) -> Moved:
    """The outcome of changing a subject whose heads are `due`; `is_held`: one is handed out."""
    if is_held:
        return Moved.DOING
    is_meant = bool(due) if change.if_due_ms is None else change.if_due_ms in due
    return Moved.DONE if is_meant else Moved.ABSENT
