"""Sharing slots out by leases that the store keeps, where there is no ZooKeeper.

Members, and which slot is whose, are rows of the store; what reads and changes them is atomic, and
time is the store's. Everybody sees the same roster and computes the same assignment from it, with
what each owns now as its start; a slot can be claimed only while it is nobody's. The epoch under
which one claims lies above all that the store has checked for this group, and ends in 24 random
bits: should the store lose its last writes in a failover, two epochs of the same number still
differ, and only one is in force.

A topic may grow, and members hear of that at different moments. So a member reads how far it has
grown before it claims, and when it sees an owner of a slot that it does not know.

A store is away longer than an ensemble of servers, and nobody can take slots over meanwhile, so a
lease is three times as long as a ZooKeeper session. A worker that was killed need not be waited
for by its neighbours on the same machine: they can see that its process is gone.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import structs

from qframe.clock import Clock
from qframe.coordination.assignment import assign
from qframe.coordination.base import CERTAIN, LeaseStore, OnFailure, RosterBell, SessionView
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.member import Expiry, MembershipService
from qframe.events import Events
from qframe.identity import is_dead, is_neighbour
from qframe.roster import Owner, Roster
from qframe.topic import Topic

LONGER: Final = 3
HEARTBEATS: Final = 6
LOOK_EVERY_S: Final = 0.2
LOOK_OFTEN_S: Final = 0.05
LOOK_EVERY_WITH_BELL_S: Final = 2.0
_RANDOM_BITS: Final = 24
_NEVER: Final = Roster(-1, [], {})


class LeaseCoordinator:
    """Coordinates through the store.

    Args:
        store: the store.
        worker: this worker's id.
        session_s: how long a worker may be silent; leases are three times as long.
        events: hears what happens.
        clock: for what is certain until when.
        on_failure: called with a part's name and an error after which the worker must end.
    """

    def __init__(
        self,
        store: LeaseStore,
        *,
        worker: str,
        session_s: float,
        events: Events,
        clock: Clock,
        on_failure: OnFailure,
    ) -> None:
        self._store = store
        self._worker = worker
        self._lease_s = session_s * LONGER
        self._events = events
        self._clock = clock
        self._on_failure = on_failure
        self._expiry = Expiry(self._lease_s, on_failure)

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> MembershipService:
        """Takes part."""
        session = LeaseSession(
            self._store, topic, group, worker=self._worker, lease_s=self._lease_s,
            clock=self._clock,
        )  # fmt: skip
        member = MembershipService(
            topic=topic, group=group, session=session, on_change=on_change, events=self._events,
            clock=self._clock, on_failure=self._on_failure, on_left=self._expiry.forget,
        )  # fmt: skip
        self._expiry.watch(member)
        member.start()
        return member

    def roster(self, topic: Topic, group: str) -> Roster:
        """The members, and the slots that each owns."""
        roster = self._store.roster(topic, group)
        assert roster is not None  # noqa: S101 - it is None only where a version was named
        return roster

    def check(self) -> None:
        """Has nothing to reach but the store."""

    def close(self) -> None:
        """Ends its thread; the app closes the store."""
        self._expiry.stop()


class LeaseSession:
    """A member's rows in the store.

    Attributes:
        heard: always true: a member that cannot reach the store cannot pull from it either.
    """

    heard: bool = True

    def __init__(
        self,
        store: LeaseStore,
        topic: Topic,
        group: str,
        *,
        worker: str,
        lease_s: float,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topic = KnownTopic(topic, lambda: store.latest([topic])[0])
        self._viewed: Topic | None = None  # that of the last view, while its roster is the last
        self._group = group
        self._worker = worker
        self._lease_s = lease_s
        self._clock = clock
        self._roster = _NEVER
        self._heartbeat_s = float("-inf")
        self._bell: RosterBell | None = store.roster_bell(topic, group)
        self._rung = True
        self._had: dict[int, str] = {}
        self._lacks = False
        self._awake = threading.Event()

    @property
    def certain_until_s(self) -> float:
        """Two thirds of a lease after the last renewal that was answered had been sent."""
        return self._heartbeat_s + CERTAIN * self._lease_s

    def look(self, owned: Mapping[int, str]) -> SessionView | None:
        """Renews the lease where that is due, and reads the roster if it has changed."""
        now_s, topic = self._clock.monotonic_s(), self._topic.now
        beats = now_s >= self._heartbeat_s + self._lease_s / HEARTBEATS
        version = seen = self._roster.version
        if beats:
            lease_ms = round(self._lease_s * 1000)
            version = self._store.heartbeat(topic, self._group, self._worker, lease_ms)
        # What was claimed since is not in the roster that it knows: another topic wants a new look.
        has_changed = self._evict_dead() or self._rung or version != seen
        has_changed = has_changed or topic is not self._viewed
        if not (beats or has_changed):
            return None
        roster = None
        if has_changed:
            roster = self._store.roster(topic, self._group, seen=seen)
        if roster is not None:
            self._roster, self._viewed = roster, None
            if not roster.owners.keys() <= set(topic.all_slots):
                topic = self._topic.ask()
        if beats:
            # Only now: had the lease passed before, the roster has told what was lost by that.
            self._heartbeat_s = now_s
        self._free_unknown(topic, owned)
        if topic is self._viewed:
            return None
        view, self._viewed = self._view(topic, owned), topic
        return view

    def claim(self, slots: Sequence[int]) -> dict[int, str]:
        """Claims those that are nobody's, under an epoch above all there have been.

        Slots that are still its own under an epoch that it had before, and took for lost, are freed
        first: it does not know what was handed out since, and a new owner takes that back.
        """
        claimed = self._claim(slots)
        self._had |= claimed
        return claimed

    def _claim(self, slots: Sequence[int]) -> dict[int, str]:
        mine = {
            slot: owner.epoch for slot, owner in self._roster.owners.items()
            if owner.member == self._worker and slot in slots
        }  # fmt: skip
        if again := {slot: epoch for slot, epoch in mine.items() if self._had.get(slot) == epoch}:
            self.let_go(again)
            mine = {slot: epoch for slot, epoch in mine.items() if slot not in again}
        owners = self._roster.owners  # of `mine` the reply was lost
        free = [slot for slot in slots if slot not in owners]
        if not free:
            return mine
        topic = self._topic.ask()
        shared = set(topic.shared_slots)
        free = [slot for slot in free if slot in shared]
        if not free:
            return mine
        epochs = self._store.epochs(topic, self._group)
        if not epochs:  # the only slot is being split since
            return mine
        latest = max(int(epoch, 16) for epoch in epochs.values())
        following = (latest >> _RANDOM_BITS) + 1 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        epoch = f"{following:016x}"
        claimed = self._store.claim(topic, self._group, self._worker, dict.fromkeys(free, epoch))
        self._now_knows(owners)
        return mine | dict.fromkeys(claimed, epoch)

    def refused(self, slots: Collection[int]) -> None:
        """No-op: a claim reads the latest epochs first."""

    def let_go(self, slots: Mapping[int, str]) -> None:
        """Frees slots."""
        self._store.release_slots(self._topic.now, self._group, self._worker, list(slots))
        owners = self._roster.owners
        left = {slot: owner for slot, owner in owners.items() if slot not in slots}
        self._now_knows(left)

    def _now_knows(self, owners: dict[int, Owner]) -> None:
        """Knows other owners than those of its version, which a failover could bring back."""
        self._roster = structs.replace(self._roster, version=_NEVER.version, owners=owners)

    def share(self, topic: Topic) -> bool:
        """Assigns the topic's slots from the next look on; whether it went by another topic."""
        return self._topic.replace(topic)

    def retire(self) -> None:
        """Marks its row."""
        self._store.retire(self._topic.now, self._group, self._worker)

    def leave(self) -> None:
        """Takes its rows away."""
        try:
            self._store.leave(self._topic.now, self._group, self._worker)
        finally:
            if self._bell is not None:
                self._bell.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for the roster's bell where there is one, else for as long as may be unseen."""
        if self._viewed is not None and self._topic.now is not self._viewed:
            return  # the topic has grown since the last look
        longest_s = LOOK_EVERY_WITH_BELL_S
        if self._bell is None:
            longest_s = LOOK_OFTEN_S if self._lacks else LOOK_EVERY_S
        longest_s = min(longest_s, self._lease_s / HEARTBEATS, timeout_s or longest_s)
        if self._bell is None:
            self._awake.wait(longest_s)
            self._awake.clear()
        else:
            self._rung = self._wait(self._bell, self._clock.monotonic_s() + longest_s)

    def _wait(self, bell: RosterBell, until_s: float) -> bool:
        """Waits for the bell, and for the end of a neighbour; returns whether it rang."""
        neighbours = [one.id for one in self._roster.members if is_neighbour(one.id)]
        while True:
            left_s = until_s - self._clock.monotonic_s()
            slice_s = min(left_s, LOOK_EVERY_S) if neighbours else left_s
            if bell.wait(slice_s):
                return True
            if slice_s == left_s or any(map(is_dead, neighbours)):
                return False

    def wake(self) -> None:
        """Ends a wait."""
        if self._bell is None:
            self._awake.set()
        else:
            self._bell.ring()

    def _evict_dead(self) -> bool:
        """Makes members depart whose processes on this machine are gone; whether there were any."""
        dead = [member.id for member in self._roster.members if is_dead(member.id)]
        for member in dead:
            self._store.leave(self._topic.now, self._group, member)
        return bool(dead)

    def _free_unknown(self, topic: Topic, owned: Mapping[int, str]) -> None:
        """Frees its slots of which it does not know, and that it should not have any more.

        The reply to their claim was lost, and others have joined since.
        """
        unknown = {
            slot: owner.epoch for slot, owner in self._roster.owners.items()
            if owner.member == self._worker and slot not in owned
        }  # fmt: skip
        if unknown:
            wanted = self._view(topic, owned).wanted
            if orphans := {slot: unknown[slot] for slot in unknown if slot not in wanted}:
                self.let_go(orphans)

    def _view(self, topic: Topic, owned: Mapping[int, str]) -> SessionView:
        roster = self._roster
        current = {slot: owner.member for slot, owner in roster.owners.items()}
        assignment = assign(
            topic.shared_slots, [member.id for member in roster.members if not member.retiring],
            current, f"{topic.name}/{self._group}",
        )  # fmt: skip
        mine = {
            slot: owner.epoch for slot, owner in roster.owners.items()
            if owner.member == self._worker
        }  # fmt: skip
        wanted = frozenset(slot for slot, member in assignment.items() if member == self._worker)
        self._lacks = any(slot in current and slot not in mine for slot in wanted)
        return SessionView(
            wanted,
            frozenset(slot for slot, epoch in owned.items() if mine.get(slot) != epoch),
        )
