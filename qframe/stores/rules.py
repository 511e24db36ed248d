"""The rules of a subject's head, as pure functions: `qframe.stores` says why they are so.

The model and the SQL stores apply them to heads of their own, which have the fields of `Head` here.
A script of Redis can share no Python: `redis/scripts/parts/places.lua`, `arrive.lua` and
`head.lua` say the same in Lua, and the conformance suite holds them to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from qframe.codec import KEYLESS
from qframe.stores.types import Entry, Settlement
from qframe.topic import MAX_KEY_BYTES, Kind, Topic

RANKED: Final = (Kind.ORDERED, Kind.PRIORITY)
"""The kinds whose priority orders due heads before their due times do."""

BACKLOGGED: Final = (Kind.STREAM, Kind.ORDERED)
"""The kinds in which messages wait behind a head in their order; elsewhere a next round does."""

FRONT: Final = 0
"""The due time of what left a stream's line by a release or a loss: before everything else."""


_LIKE_AN_OFFSET: Final = re.compile("#*[0-9]+")


class Head(Protocol):
    """How a head stands, whatever message it bears."""

    due_ms: int
    seq: int
    tries: int
    lost: int
    given: int
    receipt: str | None
    error: str | None


def rank_of(kind: Kind, priority: int) -> int:
    """Returns what orders a due head before its due time does; the lowest goes first."""
    return -priority if kind in RANKED else 0


def due_of(entry: Entry, now_ms: int, merges: bool) -> int:
    """Returns when an entry is due, in milliseconds since 1970."""
    if entry.at_ms is not None:
        return entry.at_ms
    if entry.delay_ms is not None:
        return now_ms + entry.delay_ms
    return now_ms + entry.within_ms if merges else now_ms


def subject_of_parked(key: str | None, offset: int) -> str:
    """Returns the subject of a message that leaves the line of a stream whose group keeps order.

    It is the key, behind one more `#` if it is digits behind any number of `#`, so that it is no
    offset's text; that is the subject of one without a key, and of all where no order is kept.
    """
    if key is None:
        return str(offset)
    # A key of the full length has no room for it, and may share the subject of a shorter one.
    return KEYLESS + key if _LIKE_AN_OFFSET.fullmatch(key) and len(key) < MAX_KEY_BYTES else key


def slots_of(topic: Topic, subject: str, seen: int | None = None) -> Sequence[int]:
    """Where a subject may stand: one that is no key does not tell, but where it was seen does."""
    if not subject.startswith(KEYLESS):
        return (topic.slot_of(subject.encode()),)
    return topic.all_slots if seen is None or seen not in topic.all_slots else (seen,)


def replaced_due(kind: Kind, old_ms: int, new_ms: int, now_ms: int) -> int:
    """Returns when a head is due after an equal subject was published again."""
    if kind is Kind.MERGE:
        return old_ms
    if kind is Kind.PRIORITY and new_ms <= now_ms:
        return min(old_ms, new_ms)
    return new_ms


def promoted_due(kind: Kind, due_ms: int, now_ms: int) -> int:
    """Returns when the next message is due as the head; a subject with a backlog queues anew."""
    return max(now_ms, due_ms) if kind in BACKLOGGED else due_ms


def retry_due(settlement: Settlement, now_ms: int) -> int:
    """Returns when a retried delivery is due."""
    return now_ms + settlement.delay_ms if settlement.at_ms is None else settlement.at_ms


def replace(head: Head, kind: Kind, due_ms: int, now_ms: int) -> None:
    """Schedules a head for the newer message that replaces its own; attempts start over."""
    head.due_ms = replaced_due(kind, head.due_ms, due_ms, now_ms)
    head.tries = head.lost = 0
    head.error = None


def promote_next(
    head: Head, kind: Kind, *, seq: int, due_ms: int, now_ms: int, keeps: int = 0
) -> None:
    """Schedules a head for the message behind it, once its own is settled.

    `keeps` counts the messages of the run that are still in doing; the new head is one of them.
    """
    head.seq, head.due_ms = seq, promoted_due(kind, due_ms, now_ms)
    head.tries, head.lost, head.error, head.given = int(keeps > 0), 0, None, keeps
    if not keeps:
        head.receipt = None


def retry(head: Head, settlement: Settlement, now_ms: int) -> None:
    """Schedules a head for its retry; the losses of before are forgotten."""
    head.due_ms, head.lost = retry_due(settlement, now_ms), 0
    head.error = settlement.last_words


def release(head: Head, kind: Kind) -> None:
    """Takes a head's last attempt back."""
    head.tries -= 1
    _to_front(head, kind)


def lose(head: Head, kind: Kind) -> None:
    """Notes that the worker of a head is gone."""
    head.lost += 1
    _to_front(head, kind)


def end_lease(head: Head) -> None:
    """Takes a head, and its run, out of doing."""
    head.receipt = None
    head.given = 0


def _to_front(head: Head, kind: Kind) -> None:
    """In a stream, a message that comes back uncounted or lost goes before everything else."""
    if kind is Kind.STREAM:
        head.due_ms = FRONT
