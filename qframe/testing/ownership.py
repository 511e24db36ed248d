"""A coordinator for one worker, which owns everything."""

from __future__ import annotations

from collections.abc import Callable, Collection

from qframe.coordination.base import NOTHING, Assignment
from qframe.errors import UnknownGroup
from qframe.roster import Member, Owner, Roster
from qframe.stores.base import Store
from qframe.topic import Topic


class SoleMembership:
    """A membership that owns all slots, under epochs above all that the store has seen.

    Args:
        store: where the epochs are.
        topic: the topic.
        group: the group.
        on_change: called when epochs are others.
    """

    paused: bool = False
    certain_until_s: float = float("inf")

    def __init__(
        self, store: Store, topic: Topic, group: str, on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._topic = topic
        self._group = group
        self._on_change = on_change
        self._assignment = self._fresh()

    def certain(self) -> bool:
        """Nobody else is here."""
        return True

    def assignment(self) -> Assignment:
        """All slots."""
        return self._assignment

    def drained(self, slots: Collection[int]) -> None:
        """Gives up slots that its topic has no more."""
        owned, leaving = self._assignment
        if gone := leaving.intersection(slots):
            left = {slot: epoch for slot, epoch in owned.items() if slot not in gone}
            self._assignment = Assignment(left, leaving - gone)
            self._on_change()

    def hear(self) -> None:
        """Reads how far the topic has grown, and owns the slots that it has now."""
        [found] = self._store.latest([self._topic])
        if found is not None and found.growth.step > self._topic.growth.step:
            self.share(found)

    def share(self, topic: Topic) -> None:
        """Owns the slots that the topic has now; others are leaving."""
        if topic is self._topic:
            return
        self._topic = topic
        owned = self._assignment.owned
        fresh = self._fresh().owned
        self._assignment = Assignment(
            {**fresh, **owned}, frozenset(slot for slot in owned if slot not in fresh)
        )
        self._on_change()

    def fenced(self, slots: Collection[int]) -> None:  # noqa: ARG002 - takes all of them anew
        """Takes greater epochs."""
        self._assignment = self._fresh()
        self._on_change()

    def unknown(self) -> UnknownGroup | None:
        """Never asks for the group."""
        return None

    def retire(self) -> None:
        """Has nobody to give slots to."""

    def leave(self) -> None:
        """Gives all slots up."""
        self._assignment = NOTHING

    def _fresh(self) -> Assignment:
        epochs = self._store.epochs(self._topic, self._group)
        return Assignment(
            {slot: f"{int(epoch, 16) + 1:016x}" for slot, epoch in epochs.items()}, frozenset()
        )


class SoleOwner:
    """A coordinator whose one worker owns every slot.

    Args:
        store: where the epochs are.
        worker: the worker's id.
    """

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._memberships: dict[tuple[str, str], SoleMembership] = {}

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> SoleMembership:
        """Takes part."""
        joined = SoleMembership(self._store, topic, group, on_change)
        self._memberships[topic.name, group] = joined
        return joined

    def roster(self, topic: Topic, group: str) -> Roster:
        """The one worker, and all slots as its own.

        It hears first how far the topic has grown, as whoever asks may be the one who grows it, in
        the worker's own thread. A slot that is leaving is nobody's: nothing runs meanwhile.
        """
        now_ms = self._store.now_ms()
        joined = self._memberships.get((topic.name, group))
        if joined is None:
            return Roster(1, [], {})
        joined.hear()
        owned, leaving = joined.assignment()
        owners = {
            slot: Owner(slot, self._worker, epoch, now_ms)
            for slot, epoch in owned.items()
            if slot not in leaving
        }
        return Roster(1, [Member(self._worker, now_ms, now_ms)], owners)

    def check(self) -> None:
        """Can always be reached."""

    def close(self) -> None:
        """Has no connections."""
