"""Where messages stand, for people: one by one, and counted.

The types that a worker passes to a store and gets from it are in `stores.types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from qframe.stores.types import NO_EPOCH


class DeadPlace(NamedTuple):
    """Where a dead letter stands among those of its group, the longest dead first."""

    died_at_ms: int
    slot: int
    seq: int

    def __str__(self) -> str:
        return f"{self.died_at_ms}-{self.slot}-{self.seq}"


class ChosenDead(NamedTuple):
    """The dead letters of a group that are meant, as `acts.DeadLetters` chooses them."""

    ids: Sequence[str] | None = None
    limit: int = 2**31
    after: DeadPlace | None = None
    until: DeadPlace | None = None


class Record(msgspec.Struct, kw_only=True):
    """A message where it stands, for people: peek, dead letters, timers, explain.

    `group` is None for a message that no group has seen yet; `state` is one of waiting, todo,
    doing, settled, dead, held (behind a gap in its sequence).
    """

    topic: str
    group: str | None
    slot: int
    state: str
    subject: str | None
    seq: int | None
    id: str
    key: str | None
    headers: dict[str, str] | None
    body: bytes
    published_at_ms: int
    due_ms: int | None = None
    priority: int = 0
    attempts: int = 0
    lost: int = 0
    lease_until_ms: int | None = None
    error: str | None = None
    traceback: str | None = None
    died_at_ms: int | None = None

    @property
    def dead_place(self) -> DeadPlace:
        """Where a dead one stands among the dead of its group."""
        return DeadPlace(self.died_at_ms or 0, self.slot, self.seq or 0)


def told_apart(last_words: str | None) -> tuple[str | None, str | None]:
    """The error and its traceback, from the text that a store keeps with what waits for a retry.

    The error is the first line; `Settlement.last_words` has put them together.
    """
    if not last_words:
        return None, None
    error, _, traceback = last_words.partition("\n")
    return error, traceback or None


class Stats(msgspec.Struct, kw_only=True):
    """Where the messages of one slot stand for one group; counts of messages, not of subjects.

    Messages behind a head count as the head does; behind a head in doing, those of its run are
    doing too, and the rest is todo. A message that is held behind a gap, or delayed before it joins
    a stream, is waiting.

    `published = waiting + todo + doing + settled + dead + cancelled`, always. For a stream,
    `published` counts from where the group started or was last moved to. `retrying` are those of
    the waiting that were handed out before: they wait for a retry. `next_ms` is since when
    the message is due that has waited longest of those that may be handed out: a head since it
    could first be handed out, a message of a stream's line since it joined the log, or could have.
    A delayed message is not late before its time, and a low priority whose turn never comes shows.

    The group is `""` where none has subscribed: what is kept for the first one. Of a stream that is
    its log, which a group reads that begins at `earliest`.
    """

    slot: int
    group: str
    epoch: str = NO_EPOCH
    published: int = 0
    waiting: int = 0
    retrying: int = 0
    todo: int = 0
    doing: int = 0
    settled: int = 0
    dead: int = 0
    cancelled: int = 0
    head: int = 0
    floor: int | None = None
    next_ms: int | None = None


def unclaimed(slot: int, *, head: int, first: int, waiting: int) -> Stats:
    """The counts of a stream's slot that no group reads yet.

    Args:
        slot: the slot.
        head: its next offset.
        first: the first offset that is kept.
        waiting: how many messages are to join it later.
    """
    kept = head - first
    return Stats(
        slot=slot, group="", published=kept + waiting, waiting=waiting, todo=kept, head=head
    )
