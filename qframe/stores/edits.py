"""Edits: what people change of messages that wait, and of dead letters.

An edit says which messages it is for, and what becomes of them. It is for the heads of a subject,
in one group or in all that have it, or for one dead letter of a group. A store makes each edit in
one atomic step, and leaves what differs from what was seen: a head with another number, a timer
that is due at another moment, a dead letter that somebody else has retried.

    head ──DUE or EDITED──► head            dead ──RETRIED──► head
      ├────CANCELLED──────► gone             └────DROPPED──► gone
      └────DEAD───────────► dead

`Rewriting.rewrite` is the one operation of a store; `Edits` has on it what callers ask for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from qframe.clock import moment
from qframe.outcomes import Moved
from qframe.stores.reads import Reads
from qframe.stores.records import ALL_DEAD, ChosenDead, HeadPlace
from qframe.stores.rules import slots_of
from qframe.topic import Topic


class Becomes(IntEnum):
    """What becomes of a message.

    Attributes:
        DUE: it is due now; one that is due already stays as it is.
        EDITED: it gets another due time, or body and headers, or both.
        CANCELLED: it goes, with all that is behind it, and counts as cancelled.
        DEAD: it is dead, and its subject goes on.
        RETRIED: a dead letter is due again at once, attempts from zero.
        DROPPED: a dead letter goes, and counts as cancelled.
    """

    DUE = 1
    EDITED = 2
    CANCELLED = 3
    DEAD = 4
    RETRIED = 5
    DROPPED = 6


_OF_DEAD: Final = (Becomes.RETRIED, Becomes.DROPPED)


class Edit(NamedTuple):
    """A change of the heads of a subject that are not handed out, or of a dead letter.

    Attributes:
        becomes: what becomes of them.
        subject: the key, or the `subject` of a message without one; "" for a dead letter.
        group: the group; None for all that have the subject.
        slot: where it was seen; None looks wherever the subject may stand. A dead letter has one.
        seq: only a message of this number. A dead letter has one.
        if_due_ms: only if a group has it due at this moment.
        due_ms: when it is due, in milliseconds since 1970; None leaves that as it is.
        body: its new body; None leaves body and headers as they are.
        headers: its headers from now on, where a body is given.
        error: why it is dead. Its traceback is what it failed with before.
        force: also one that a worker has, which cannot settle it any more; the rest of its run is
            given back.
    """

    becomes: Becomes
    subject: str = ""
    group: str | None = None
    slot: int | None = None
    seq: int | None = None
    if_due_ms: int | None = None
    due_ms: int | None = None
    body: bytes | None = None
    headers: dict[str, str] | None = None
    error: str = ""
    force: bool = False

    @property
    def is_of_dead(self) -> bool:
        """Whether it is for a dead letter."""
        return self.becomes in _OF_DEAD

    def slots_in(self, topic: Topic) -> Sequence[int]:
        """The slots in use in which its messages may stand: none if they were seen in another."""
        if topic.has_subjects and not self.is_of_dead:
            return slots_of(topic, self.subject, self.slot)
        if self.slot is None and not self.is_of_dead:
            return topic.all_slots
        return [slot for slot in topic.all_slots if slot == self.slot]

    @property
    def changes(self) -> str | None:
        """The words that the history keeps of it; None of a cancellation."""
        if self.becomes is Becomes.CANCELLED:
            return None
        due = None if self.due_ms is None else f"due {moment(self.due_ms)}"
        return ", ".join(each for each in (due, None if self.body is None else "body") if each)

    def outcome(self, due: Collection[int], *, is_held: bool) -> Moved:
        """What comes of it where the heads that it is for are `due`; one is handed out: `is_held`.

        Redis asks the same in `rewrite.lua`.
        """
        if is_held and not self.force:
            return Moved.DOING
        is_meant = bool(due) if self.if_due_ms is None else self.if_due_ms in due
        return Moved.DONE if is_meant else Moved.ABSENT


class Rewriting(Protocol):
    """Changing what stands in a store."""

    def rewrite(self, topic: Topic, edits: Sequence[Edit], *, by: str | None = None) -> list[Moved]:
        """Makes edits in order, each in one step over all groups that it is for.

        In a topic with `history=` what is edited or cancelled gets an entry in the history of the
        message in each group, and under "" before there is a group.

        In a stream a retried letter comes back alone, as a retry does; where the group keeps order,
        in its key's place, but behind a head that is handed out. Where subjects are queued, it is
        published to this group anew: appended in `ordered`; elsewhere it replaces or merges with an
        equal subject as any message does, but gives way to one that was published since.

        Args:
            topic: the topic.
            edits: the edits; the same message may come again.
            by: who asks, for the history.

        Returns:
            For each `done`; `doing`, and nothing is changed, if a group has it in doing now;
            `absent` if no group has it as it was seen.

        Raises:
            UnknownGroup: if there is no such group as one is for; nothing is changed.
        """


class Edits(Reads, Rewriting, Protocol):
    """Freeing keys, and settling the dead."""

    def hasten(self, topic: Topic, group: str, place: HeadPlace) -> Moved:
        """Makes a message due now; one that is due already stays as it is.

        `doing`, and nothing is changed, if a worker has it; `absent` if it is not there any more.
        """
        return self.rewrite(topic, [_of_head(Becomes.DUE, group, place)])[0]

    def skip(
        self, topic: Topic, group: str, place: HeadPlace, error: str, *, force: bool = False
    ) -> Moved:
        """Writes a message among the dead, and lets its subject go on; returns as `hasten`."""
        edit = _of_head(Becomes.DEAD, group, place)._replace(error=error, force=force)
        return self.rewrite(topic, [edit])[0]

    def retry_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        """Makes dead messages due again at once, the longest dead first; returns how many."""
        return _settle(self, topic, group, chosen, Becomes.RETRIED)

    def drop_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        """Removes dead messages for good, counted as cancelled; returns how many."""
        return _settle(self, topic, group, chosen, Becomes.DROPPED)


def _of_head(becomes: Becomes, group: str, place: HeadPlace) -> Edit:
    return Edit(becomes, place.subject, group, place.slot, place.seq)


def _settle(store: Edits, topic: Topic, group: str, chosen: ChosenDead, becomes: Becomes) -> int:
    """Retries or drops dead letters; returns how many.

    What another one has taken meanwhile is made up for by others that are chosen, and what stands
    in another slot by now is met there.
    """
    done = 0
    while records := store.dead(topic, group, chosen._replace(limit=chosen.limit - done)):
        letters = [Edit(becomes, group=group, slot=one.slot, seq=one.seq) for one in records]
        outcomes = store.rewrite(topic, letters)
        changed = outcomes.count(Moved.DONE)
        done += changed
        if changed in (0, len(outcomes)):
            break
    return done
