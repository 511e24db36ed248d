"""Which slots a line may pull from: taking new ones in the store, leaving others, losing some."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from qframe.coordination.base import NOTHING, Coordinator, Membership
from qframe.errors import SlotsAway, StoreUnavailable
from qframe.events import Events
from qframe.message import Delivery
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.base import Store
from qframe.topic import Topic


class Slots:
    """A line's slots, between its membership and the store.

    Args:
        topic: the topic.
        group: the group.
        store: in which new slots are taken.
        in_flight: what is in hand.
        give_back: gives back what no handler has in hand of some slots.
        on_lost: called with what was in hand of slots that are not this worker's any more.
        on_change: called, from any thread, when the pull loop should look.
        events: told of slots that come and go.

    Attributes:
        lacks: whether some are this worker's and could not be taken, since their servers are away;
            they are tried again whenever it is asked what is open.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        store: Store,
        in_flight: InFlight,
        give_back: Callable[[Collection[int]], object],
        on_lost: Callable[[list[Delivery]], None],
        on_change: Callable[[], None],
        events: Events,
    ) -> None:
        self._topic = topic
        self._group = group
        self._store = store
        self._in_flight = in_flight
        self._give_back = give_back
        self._on_lost = on_lost
        self._on_change = on_change
        self._events = events
        self._membership: Membership | None = None
        self._share = NOTHING
        self._open: Mapping[int, str] = {}
        self.lacks = False
        self._held: dict[int, str] = {}
        self._drained: set[int] = set()
        self._guard = threading.Lock()
        self.epochs: Mapping[int, str] = {}
        """The last epoch under which each slot was taken: the store judges what is settled."""

    def join(self, coordinator: Coordinator) -> None:
        """Takes part from now on."""
        self._membership = coordinator.join(self._topic, self._group, on_change=self._changed)

    def leave(self) -> None:
        """Gives all slots up; nothing of them is in hand."""
        self._drained |= self._held.keys()
        if self._membership is not None:
            self._membership.leave()

    def fenced(self, slots: Collection[int]) -> None:
        """The store has refused the epochs of these slots."""
        if self._membership is not None:
            self._membership.fenced(slots)

    def certain(self) -> bool:
        """Whether what is in hand can be nobody else's yet; if not, it is all lost now."""
        return self._membership is None or self._membership.certain()

    @property
    def certain_until_s(self) -> float:
        """Until when, on the monotonic clock, that is so for sure."""
        return self._membership.certain_until_s if self._membership is not None else float("inf")

    def have_work(self, *, drained: bool) -> bool:
        """Whether the store has something that is due, in doing, tried again, or (drained) waits.

        Args:
            drained: whether nothing may wait for its time either.
        """
        return any(
            slot.todo or slot.doing or (slot.waiting if drained else slot.retrying)
            for slot in self._store.stats(self._topic, self._group)
        )

    def open(self) -> Mapping[int, str]:
        """The slots to pull from now, and their epochs; takes new ones. For the pull loop alone.

        From slots that are leaving nothing is pulled once this has answered without them, so what
        is in hand of them can only become less.

        Raises:
            UnknownGroup: if the group is gone. Who has slots learns that when it pulls.
        """
        membership = self._membership
        if membership is not None and not self._open and (error := membership.unknown()):
            raise error
        if membership is None or membership.paused:
            return {}
        share = membership.share()
        if share is not self._share or self.lacks:
            wanted = {
                slot: epoch for slot, epoch in share.owned.items() if slot not in share.leaving
            }
            new = {slot: epoch for slot, epoch in wanted.items() if self.epochs.get(slot) != epoch}
            if new and not self._take(membership, new, goes_on=len(new) < len(wanted)):
                return {}
            found = {
                slot: epoch for slot, epoch in wanted.items() if self.epochs.get(slot) == epoch
            }
            self.lacks = len(found) < len(wanted)
            if found != self._open:
                self._open = found
            if share is not self._share:
                self._share = share
                self._drained &= share.leaving
                self._changed()  # what was lost meanwhile
        self.drain()
        return self._open

    def forget(self) -> None:
        """The store has forgotten who has taken what: all slots are taken anew."""
        self.epochs = {}
        self._share = NOTHING
        self._open = {}
        self.lacks = False
        if self._membership is not None:
            self._membership.unknown()  # what it has met till now is mended

    def still_owned(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Those, of what was just pulled, whose slots were not lost in the meantime."""
        membership = self._membership
        if membership is None or membership.share() is self._share:
            return deliveries
        owned = membership.share().owned
        lost = {slot for slot, epoch in self._open.items() if owned.get(slot) != epoch}
        self._in_flight.remove([one for one in deliveries if one.slot in lost])
        return [one for one in deliveries if one.slot not in lost]

    def drain(self) -> None:
        """Empties the slots that are leaving, as far as it can; tells of those that are empty."""
        leaving = self._share.leaving
        if not leaving or self._membership is None:
            return
        self._give_back(leaving)
        busy = {one.slot for one in self._in_flight.all()}
        if empty := leaving - busy:
            self._drained |= empty
            self._membership.drained(empty)

    def _take(self, membership: Membership, new: dict[int, str], *, goes_on: bool) -> bool:
        """Takes slots in the store, but for those that are away; false if it has refused some.

        Args:
            membership: told of what is refused.
            new: the slots, and their epochs.
            goes_on: whether there are others, which can do without these.
        """
        away: Collection[int] = ()
        try:
            taken = set(self._store.take(self._topic, self._group, new))
        except SlotsAway as error:
            taken, away = set(error.taken), error.away
            self._tell_of_damage(error.away)
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
        self._tell("slot.taken", found)
        return True

    def _changed(self) -> None:
        """Slots have come or gone; what was in hand of those that have gone is lost at once."""
        if self._membership is None:
            return
        owned = self._membership.share().owned
        with self._guard:
            gone = {slot for slot, epoch in self._held.items() if owned.get(slot) != epoch}
            for slot in gone:
                del self._held[slot]
        if gone:
            left = gone & self._drained
            self._drained -= gone
            if in_hand := [one for one in self._in_flight.all() if one.slot in gone]:
                self._on_lost(in_hand)
            self._tell("slot.left", left)
            self._tell("slot.lost", gone - left)
        self._on_change()

    def _tell_of_damage(self, away: Mapping[int, str | None]) -> None:
        where = {"topic": self._topic.name, "group": self._group}
        for slot, why in away.items():
            if why is not None and self._events:
                self._events.emit("slot.damaged", slot=slot, error=why, **where)

    def _tell(self, name: str, slots: Collection[int]) -> None:
        if slots and self._events:
            self._events.emit(
                name, topic=self._topic.name, group=self._group, count=len(slots),
                slots=sorted(slots),
            )  # fmt: skip
