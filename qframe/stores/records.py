"""Where messages stand, for people: one by one, and counted.

The types that a worker passes to a store and gets from it are in `stores.types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from qframe.clock import as_datetime
from qframe.codec import decode_body
from qframe.stores.types import NO_EPOCH

FOREVER_MS: Final = 2**53
"""Later than anything is due."""


class DeadPlace(NamedTuple):
    """Where a dead letter stands among those of its group, the longest dead first."""

    died_at_ms: int
    slot: int
    seq: int

    def __str__(self) -> str:
        return f"{self.died_at_ms}-{self.slot}-{self.seq}"

    @classmethod
    def read(cls, text: str) -> DeadPlace:
        """The place that a text tells; the first one of all if it is empty."""
        return cls(*map(int, text.split("-"))) if text else cls(-1, 0, 0)


class HeadPlace(NamedTuple):
    """A message that stands first, by its number too: so only what was seen is changed."""

    slot: int
    subject: str
    seq: int


class TimerPlace(NamedTuple):
    """Where a timer stands among those of its topic, the first in due time first.

    `group` and `id` are "" where they do not tell timers apart. Of a moment those of Redis that
    wait stand by their slot, group and subject, which is `id` then, and `seq` is 0.
    """

    due_ms: int
    seq: int
    slot: int
    group: str
    id: str

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> TimerPlace:
        """The place that a text tells; the first one of all if it is empty."""
        return msgspec.json.decode(text, type=cls) if text else cls(0, -1, 0, "", "")


class TimerSpan(NamedTuple):
    """The timers of a page: the first ones of those that are due in `[from_ms, until_ms)`.

    Attributes:
        from_ms, until_ms: the bounds, in milliseconds since 1970.
        limit: how many at most.
        after: those up to this place are left out: that of the last one of the page before, which
            may be gone.
    """

    from_ms: int = 0
    until_ms: int = FOREVER_MS
    limit: int = 100
    after: TimerPlace | None = None

    @property
    def first_place(self) -> TimerPlace:
        """The place behind which they stand."""
        first = TimerPlace(max(0, self.from_ms), -1, 0, "", "")
        return first if self.after is None else max(first, self.after)

    def covers(self, due_ms: int | None) -> bool:
        """Whether a due time lies within its bounds."""
        return self.from_ms <= (due_ms or 0) < self.until_ms


ALL_TIMERS: Final = TimerSpan()


class ChosenDead(NamedTuple):
    """The dead letters of a group that are meant: the first ones of those that fit.

    Attributes:
        ids: the ids of their messages; None for all.
        limit: how many at most.
        after: those up to this place are left out.
        until: those behind this one too, so that a death meanwhile is left alone.
    """

    ids: Sequence[str] | None = None
    limit: int = 500
    after: DeadPlace | None = None
    until: DeadPlace | None = None

    def is_between(self, place: DeadPlace) -> bool:
        """Whether a place lies behind `after`, and not behind `until`."""
        is_behind = self.after is None or place > self.after
        return is_behind and (self.until is None or place <= self.until)

    def has(self, message_id: str, place: DeadPlace) -> bool:
        """Whether a dead letter is meant, but for the limit."""
        return (self.ids is None or message_id in self.ids) and self.is_between(place)


ALL_DEAD: Final = ChosenDead()


class Record(msgspec.Struct, kw_only=True):
    """A message where it stands, for people: peek, dead letters, timers, explain.

    `group` is None for a message that no group has seen yet; `state` is one of waiting, todo,
    doing, settled, dead, held (behind a gap in its sequence). `held_since_ms` is when one in doing
    was handed out, by the clock of its worker; in the line of a stream, when the first one was that
    is not settled. `given` is how many of its subject were handed out together, it being the first;
    `sequence` the number of one that is held; `by_subject` says that timers of its moment stand by
    their subjects, and not by `seq`.
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
    held_since_ms: int | None = None
    given: int = 0
    sequence: int | None = None
    by_subject: bool = False

    @property
    def decoded_body(self) -> Any:
        """The body as builtins, or the bytes that were published.

        Raises:
            msgspec.DecodeError: if it is not JSON.
        """
        return decode_body(self.body, self.headers)

    @property
    def published_at(self) -> datetime | None:
        """When it was published, in UTC; None beyond the year 9999, as all of these."""
        return as_datetime(self.published_at_ms)

    @property
    def due_at(self) -> datetime | None:
        """When it is due, in UTC; None for one in the line of a stream or given back to it."""
        return as_datetime(self.shown_due_ms)

    @property
    def died_at(self) -> datetime | None:
        """When it died, in UTC; None unless it is dead."""
        return as_datetime(self.died_at_ms)

    @property
    def held_since(self) -> datetime | None:
        """When it was handed out, in UTC; None unless it is in doing."""
        return as_datetime(self.held_since_ms)

    @property
    def lease_until(self) -> datetime | None:
        """When its lease ends, in UTC; None unless it is in doing."""
        return as_datetime(self.lease_until_ms)

    @property
    def shown_due_ms(self) -> int | None:
        """When it is due, for people; None for one in the line of a stream or given back to it."""
        return self.due_ms or None

    @property
    def last_words(self) -> str | None:
        """The error and its traceback as one text, as a store keeps them: see `told_apart`."""
        return f"{self.error}\n{self.traceback}" if self.traceback else self.error

    @property
    def dead_place(self) -> DeadPlace:
        """Where a dead one stands among the dead of its group."""
        return DeadPlace(self.died_at_ms or 0, self.slot, self.seq or 0)

    @property
    def head_place(self) -> HeadPlace:
        """Where one that stands first does so."""
        return HeadPlace(self.slot, self.subject or "", self.seq or 0)

    @property
    def timer_place(self) -> TimerPlace:
        """Where one that waits, or is due, stands among the timers of its topic."""
        if self.seq is None:  # it waits for a stream
            return TimerPlace(self.due_ms or 0, 0, self.slot, "", self.id)
        if self.by_subject:
            return TimerPlace(
                self.due_ms or 0, 0, self.slot, self.group or "", self.subject or ""
            )  # fmt: skip
        return TimerPlace(self.due_ms or 0, self.seq, self.slot, self.group or "", "")


class Sought(msgspec.Struct, kw_only=True, frozen=True):
    """The object of a look-up: messages by id or by key or both, or by their offset in a stream.

    Attributes:
        id: the id.
        key: the key.
        offset: the offset.
        slot: the only slot to look at; None for all.
        first_slot: the slot that a scan looks at before others; None for that of the key, if any.
        state: where it stands; a scan for what is dead, held or settled looks at nothing else.
    """

    id: str | None = None
    key: str | None = None
    offset: int | None = None
    slot: int | None = None
    first_slot: int | None = None
    state: str | None = None

    def names(self, record: Record) -> bool:
        """Whether a record is of a message with the id and the key that are sought."""
        return self.id in (None, record.id) and self.key in (None, record.key)

    def fits(self, record: Record) -> bool:
        """Whether a record is of a message that is sought."""
        return (
            self.names(record)
            and (self.offset is None or record.seq == self.offset)
            and (self.slot is None or record.slot == self.slot)
            and (self.state is None or record.state == self.state)
        )


class HistoryEntry(msgspec.Struct, kw_only=True, frozen=True):
    """The end of one attempt, or what was done to a timer, as the history of a topic keeps it.

    Attributes:
        group, slot, id: the message's.
        attempt: its number; one that was given back is counted again. Of a timer that was edited
            or cancelled, how many attempts it had until then.
        verdict: ack, retry, dead, release (given back uncounted), or lost (its lease passed, or
            another worker took its slot); of a timer also edited and cancelled.
        ended_ms: when, by the store's clock.
        began_ms: since when its worker had it: by the store's clock, of a lost one by the worker's.
            None where that is not known, as for what is lost of a stream's line.
        worker: the worker, if it is known; of a timer, who edited or cancelled it.
        error: for retry and dead, the error, shortened; for edited, what was changed.
        place: where in the code that arose.
    """

    group: str = ""
    slot: int = 0
    id: str
    attempt: int
    verdict: str
    ended_ms: int
    began_ms: int | None = None
    worker: str | None = None
    error: str | None = None
    place: str | None = None


class Remembered(NamedTuple):
    """A slot that remembers an id, and when a message was published there under it."""

    slot: int
    at_ms: int


class LogSpan(NamedTuple):
    """The part of a stream's slot that is kept.

    Attributes:
        first: its first offset.
        head: the offset behind its last one.
        since_ms: when its first message joined it; None where there is none.
    """

    first: int
    head: int
    since_ms: int | None


class Found(msgspec.Struct):
    """The result of a look-up.

    Attributes:
        records: a record for each place.
        remembered: where its id is remembered.
        kept: the part of each slot that is kept, of a stream.
    """

    records: list[Record] = []
    remembered: list[Remembered] = []
    kept: dict[int, LogSpan] = {}


class ScanPage(msgspec.Struct):
    """A part of all that a topic holds.

    Attributes:
        records: the messages, a record for each group that has one.
        looked: how many messages were looked at.
        place: where to go on; None at the end.
    """

    records: list[Record]
    looked: int
    place: str | None


class Section(NamedTuple):
    """One sort of messages of one slot; of one group, where groups have their own.

    What a slot has for all groups: `line`, the log of a stream by offset; `later`, what is delayed
    before it joins that, and the same by due time as `delayed`; `held`, what waits behind a gap.
    What a group has: `heads`, `behind` them, and `dead`. These are in the store's own order. The
    heads by their turns are `doing`, `todo` and `waiting`, each whole in one page; those of the
    last two by due time are `timers`, in the order of `TimerPlace`. `died` are the dead by their
    death, in the order of `DeadPlace`.
    """

    slot: int
    part: str
    group: str


class SectionPage(NamedTuple):
    """A part of a section: its records, how many were looked at, and where to go on, if at all."""

    records: list[Record]
    looked: int
    after: str | None


class PageAsk(NamedTuple):
    """A page that is asked for.

    Attributes:
        section: of what.
        after: where the page before has ended; an offset to begin with in a `line`; the text of a
            place in `timers`, `delayed` and `died`.
        limit: how many messages, about.
        sought: in a scan, the messages that are wanted. Others may be left out, dead ones that are
            named are looked up and not counted, and heads may come with what is behind them.
    """

    section: Section
    after: str = ""
    limit: int = 500
    sought: Sought | None = None


class LookUp(NamedTuple):
    """Messages of a section that are looked up.

    Attributes:
        section: `heads`, `behind`, `dead` or `held`.
        by: `subject` of heads and of what is behind them, `seq`, `id` or `key` of the dead, `key`
            of what is held.
        values: what leads to them; seqs as texts.
        limit: how many at most for each value.
        id: of what is behind a head, only the messages with this id.
    """

    section: Section
    by: str
    values: Sequence[str]
    limit: int = 2**31
    id: str | None = None


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
