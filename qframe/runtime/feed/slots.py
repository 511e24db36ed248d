"""The slots that a consumer may pull from: takes new ones in the store, leaves or loses others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from qframe.coordination.base import NOTHING, Coordinator, Membership
from qframe.errors import StoreUnavailable
from qframe.message import Delivery
from qframe.runtime.context import ConsumerContext
from qframe.stores.base import Groups, Inspecting, Topics
from qframe.stores.types import SlotsAway
from qframe.topic import Topic


class SlotStore(Topics, Groups, Inspecting, Protocol):
    """The roles of a store that slots use."""


class Slots:
    """The slots of one consumer, between its membership and the store.

    Args:
        context: the consumer's.
        store: takes new slots.
        busy: returns the slots with work in flight, or with a pull whose reply was lost.
        give_back: gives back, of some slots, what no handler has begun.
        on_lost: called with slots that this worker does not own any more.
        on_change: called, from any thread, when the pull loop should look.

    Attributes:
        topic: the topic, as far grown as is known here.
        membership: its part in the sharing of slots, once it has joined.
        lacks: whether the worker owns slots that could not be taken, since their servers are away;
            each `open` tries them again.
        full: the slots of which so much is parked that their lines are not read.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: SlotStore,
        busy: Callable[[], set[int]],
        give_back: Callable[[Collection[int]], object],
        on_lost: Callable[[set[int]], object],
        on_change: Callable[[], None],
    ) -> None:
        self._context = context
        self.topic: Topic = context.topic
        self._group = context.group
        self._store = store
        self._busy = busy
        self._give_back = give_back
        self._on_lost = on_lost
        self._on_change = on_change
        self.membership: Membership | None = None
        self._assignment = NOTHING
        self._open: Mapping[int, str] = {}
        self.lacks: bool = False
        self.full: frozenset[int] = frozenset()
        self._held: dict[int, str] = {}
        self._drained: set[int] = set()
        self._guard = threading.RLock()  # what is lost may show that more is in doubt
        self.epochs: Mapping[int, str] = {}
        """The last epoch under which each slot was taken: the store judges what is settled."""

    def join(self, coordinator: Coordinator) -> None:
        """Joins the group."""
        joined = self.topic
        self.membership = coordinator.join(joined, self._group, on_change=self._changed)
        with self._guard:
            if self.topic is not joined:  # it has grown meanwhile
                self.membership.share(self.topic)

    def share(self, topic: Topic, asked: Topic | None = None) -> None:
        """Shares the slots that the topic has now; from any thread.

        Args:
            topic: the topic as the store has it. Where it has grown less than is known, either the
                read took its time, and another one has told more meanwhile; or the store has failed
                over, and knows no more.
            asked: the topic as it was known when the store was asked: if it is that still, the
                store has failed over. Without it a growth is never taken back.
        """
        with self._guard:
            before = self.topic
            further = topic.growth.step - before.growth.step
            if further > 0 or (further < 0 and before is asked):
                self.topic = topic
            if self.membership is not None:  # it may have heard of more, which is forgotten since
                self.membership.share(self.topic)
            slots = self.topic.all_slots
        if slots != before.all_slots:
            self._context.emit("topic.grown", slots=list(slots))

    def retire(self) -> None:
        """Wants no slots from now on; `pass_on` is to be called until nothing is in flight."""
        if self.membership is not None:
            self.membership.retire()

    def pass_on(self) -> None:
        """Hands over those slots of which nothing is in flight, once the pull loop has ended."""
        if self.membership is not None:
            self._assignment = self.membership.assignment()
            self.drain()

    def leave(self) -> None:
        """Gives all slots up; nothing of them is in flight."""
        self._drained |= self._held.keys()
        if self.membership is not None:
            self.membership.leave()

    @property
    def joined(self) -> bool:
        """Whether it takes part in the sharing of slots, and hears the coordinator."""
        return self.membership is not None and not self.membership.paused

    def fenced(self, slots: Collection[int]) -> None:
        """The store has refused the epochs of these slots, or may take their windows back."""
        if self.membership is not None:
            self.membership.fenced(slots)

    def certain(self) -> bool:
        """Whether no other worker can own its slots yet; if not, all in flight is lost now."""
        return self.membership is None or self.membership.certain()

    @property
    def certain_until_s(self) -> float:
        """Until when, on the monotonic clock, `certain` stays true."""
        return self.membership.certain_until_s if self.membership is not None else float("inf")

    @property
    def has_unread(self) -> bool:
        """Whether there may be more than a bell tells of: it lacks slots, or some are full."""
        return self.lacks or bool(self.full)

    def have_work(self, *, drained: bool) -> bool:
        """Whether the store has messages that are due, in flight, to be retried, or (drained) wait.

        Args:
            drained: whether a message that waits for its time counts as well.
        """
        while True:
            before = self.topic
            if any(
                slot.todo or slot.doing or (slot.waiting if drained else slot.retrying)
                for slot in self._store.stats(before, self._group)
            ):
                return True
            # Where a slot was split meanwhile, its messages are in two that were not looked at.
            [found] = self._store.latest([before])
            if found is not None:
                self.share(found)
            if self.topic is before:
                return False

    def open(self) -> Mapping[int, str]:
        """The slots to pull from now, and their epochs; takes new ones. For the pull loop alone.

        Slots that are leaving are left out, so their in-flight count can only shrink.

        Raises:
            UnknownGroup: if the group is gone; whoever may pull from slots learns that by it.
        """
        membership = self.membership
        if membership is None:
            return {}
        paused = membership.paused
        if (paused or not self._open) and (error := membership.unknown()):
            raise error
        if paused:
            return {}
        assignment = membership.assignment()
        if assignment is not self._assignment or self.lacks:
            wanted = {
                slot: epoch
                for slot, epoch in assignment.owned.items()
                if slot not in assignment.leaving
            }
            new = {slot: epoch for slot, epoch in wanted.items() if self.epochs.get(slot) != epoch}
            if new:
                self._lose_gone()  # also what it had of these under earlier epochs
                if not self._take(membership, new, goes_on=len(new) < len(wanted)):
                    return {}
            found = {
                slot: epoch for slot, epoch in wanted.items() if self.epochs.get(slot) == epoch
            }
            self.lacks = len(found) < len(wanted)
            if found != self._open:
                self._open = found
            if assignment is not self._assignment:
                self._assignment = assignment
                self._changed()  # reports slots that were lost meanwhile
                self._drained &= assignment.leaving
        self.drain()
        return self._open

    def forget(self, topic: Topic | None = None) -> None:
        """The store has lost the epochs: all slots are taken anew.

        Args:
            topic: the topic, if it was declared anew, and may have grown less.
        """
        self.epochs = {}
        self._assignment = NOTHING
        self._open = {}
        self.lacks = False
        if topic is not None:
            with self._guard:
                self.topic = topic
                if self.membership is not None:
                    self.membership.share(topic)
        if self.membership is not None:
            self.membership.unknown()  # forgets the error: it is mended

    def note_full(self, asked: Collection[int], full: Collection[int]) -> None:
        """Notes which slots are full; tells once of each, and once when its line is read again."""
        if not (full or self.full):
            return
        before = self.full & self._open.keys()
        self.full = before.difference(asked).union(full)
        for slot in sorted(self.full - before):
            self._context.emit("slot.full", slot=slot)
        for slot in sorted(before - self.full):
            self._context.emit("slot.open", slot=slot)

    def still_owned(self, deliveries: list[Delivery]) -> list[Delivery]:
        """The deliveries of those just pulled whose slots were not lost in the meantime."""
        membership = self.membership
        if membership is None or membership.assignment() is self._assignment:
            return deliveries
        owned = membership.assignment().owned
        lost = {slot for slot, epoch in self._open.items() if owned.get(slot) != epoch}
        return [one for one in deliveries if one.slot not in lost]

    def drain(self) -> None:
        """Empties the slots that are leaving, as far as it can, and hands over empty ones."""
        leaving = self._assignment.leaving
        if not leaving or self.membership is None:
            return
        self._give_back(leaving)
        if empty := leaving - self._busy():
            self._drained |= empty
            self.membership.drained(empty)

    def _take(self, membership: Membership, new: dict[int, str], *, goes_on: bool) -> bool:
        """Takes slots in the store, if their servers are there; false if the store refused some.

        Args:
            membership: hears which slots were refused.
            new: the slots, and their epochs.
            goes_on: whether other slots can be pulled from without these.
        """
        away: Collection[int] = ()
        try:
            taken = set(self._store.take(self.topic, self._group, new))
        except SlotsAway as error:
            taken, away = set(error.taken), error.away
            self._report_damage(error.away)
        except StoreUnavailable:
            if not goes_on:
                raise
            taken, away = set(), new
        if refused := [slot for slot in new if slot not in taken and slot not in away]:
            membership.fenced(refused)
            return False
        found = {slot: epoch for slot, epoch in new.items() if slot in taken}
        with self._guard:
            self._held.update(found)
        self.epochs = {**self.epochs, **found}
        self._report("slot.taken", found)
        return True

    def _changed(self) -> None:
        """Handles slots that have come or gone; what is in flight of the latter is lost at once."""
        if self.membership is not None:
            self._lose_gone()
            self._on_change()

    def _lose_gone(self) -> None:
        """Loses what is in flight of slots that are not owned, or under another epoch."""
        assert self.membership is not None  # noqa: S101 - nothing is held before it has joined
        # A slot that is taken again meanwhile, under another epoch, waits here: what is pulled from
        # it then would be lost with what was pulled before.
        with self._guard:
            owned = self.membership.assignment().owned
            gone = {slot for slot, epoch in self._held.items() if owned.get(slot) != epoch}
            for slot in gone:
                del self._held[slot]
            left = gone & self._drained
            self._drained -= gone
            if gone:
                self._on_lost(gone)
        if gone:
            self._report("slot.left", left)
            self._report("slot.lost", gone - left)

    def _report_damage(self, away: Mapping[int, str | None]) -> None:
        for slot, why in away.items():
            if why is not None:
                self._context.emit("slot.damaged", slot=slot, error=why)

    def _report(self, event: str, slots: Collection[int]) -> None:
        if slots:
            self._context.emit(event, count=len(slots), slots=sorted(slots))
