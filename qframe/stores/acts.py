"""The roles of a store by which a person mends, copies, grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from qframe.stores.positions import MemoryPage, Position
from qframe.stores.records import (
    Record,
    Section,
)
from qframe.topic import Topic


class Repairing(Protocol):
    """Mending what somebody or something has damaged."""

    def repair(self, topic: Topic) -> list[str]:
        """Mends what `verify` finds and can be mended without a guess; returns what was done.

        `qframe.stores.faults` says what that is. Others may work meanwhile: each place is looked at
        again at one moment, and what is right is left alone. A healthy topic is not changed.
        """


class Copying(Protocol):
    """Writing a topic down elsewhere as it stands, section by section; how far groups are.

    Numbers, offsets, due times and counts stay what they are. The caller sees to it that nobody
    else works on the topic, or the slot, meanwhile. All that writes is idempotent: what stands
    there already is written over with the same, so that who was interrupted begins again.

    With a `token` it is refused in a slot that is not open under it (`Growing.open_slot`), and uses
    it up: from then on the slot is open under the `next_token`. So whoever writes page after page
    is refused if the store has forgotten one of them since. The same call may come twice.

    Raises:
        SlotsClosed: if a slot is not open under the token.
    """

    def restore(
        self, topic: Topic, section: Section, records: Sequence[Record], token: str | None = None
    ) -> None:
        """Writes down messages of a section, in the order in which that was read.

        Heads go before what is behind them. A log takes them from its next offset on only, and they
        join it when they were published. A head in doing gets a lease that has passed, so the next
        pull takes it back as lost, as it would have been where it was.
        """

    def positions(self, topic: Topic, group: str) -> list[Position]:
        """How far a group is, for each slot that has it; `""` names what no group has claimed."""

    def restore_positions(
        self, topic: Topic, group: str, positions: Sequence[Position], token: str | None = None
    ) -> None:
        """Writes down how far a group is; the lease of a stream's window has passed."""

    def remembered(
        self, topic: Topic, slot: int, what: str, after: str = "", limit: int = 1000
    ) -> MemoryPage:
        """A part of what a slot remembers, `marks` or `sequences`."""

    def remember(
        self, topic: Topic, slot: int, *, marks: Mapping[str, int] | None = None,
        sequences: Mapping[str, int] | None = None, head: int = 0, token: str | None = None,
    ) -> None:  # fmt: skip
        """Writes down marks with their times, next numbers of keys, and the slot's next number.

        That number is only raised.
        """


class Growing(Protocol):
    """Splitting slots in two while others use the topic: see "Growth" in `qframe.stores`."""

    def grow(self, topic: Topic, following: Topic, tokens: Mapping[int, str] | None = None) -> bool:
        """Notes that a topic has grown so far, in one step; False if it stands elsewhere by now.

        Args:
            topic: the topic as it was read; its growth is compared.
            following: the same topic, further grown.
            tokens: under which the slots are open that come into use by that, if some do.

        Raises:
            SlotsClosed: if one of these is not open under its token, or the slot that they come
                from is not closed: another has discarded it, or the store has forgotten something.
        """

    def open_slot(
        self, topic: Topic, slot: int, like: int, token: str, *, again: bool = False
    ) -> None:
        """Makes a slot that is in use by nobody yet, with just the groups that another one has.

        Each group begins there unowned, at the start, with the terms of its subscription in
        `like`. Until somebody discards the slot, only who has the token may write there, and each
        write uses it up: see `Copying`.

        Args:
            topic: the topic.
            slot: the slot.
            like: the other one.
            token: what says who has opened it.
            again: a write under this token: adds the groups that have come, and removes those that
                are gone.

        Raises:
            SlotsClosed: if the slot is in use by now, or open under another token; with `again`,
                if it was discarded, else if it was not.
        """

    def close_slot(self, topic: Topic, slot: int) -> None:
        """Has a slot take nothing any more, and hand nothing out; idempotent.

        Each change of it is refused with `SlotsClosed`. All its groups' owners are fenced,
        and what they had in doing comes back, as if the slot was taken under a new epoch.

        Raises:
            SlotsClosed: if the slot is not in use.
        """

    def discard(self, topic: Topic, slot: int, limit: int = 500) -> bool:
        """Removes a part of what stands in a slot that is no longer, or not yet, in use.

        True once nothing is left. A slot that was split stays closed, and keeps its history. The
        token of one that was opened is worth nothing from the first part on.

        Raises:
            SlotsClosed: if the slot is in use by now.
        """
