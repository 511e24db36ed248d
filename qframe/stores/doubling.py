"""Doubling a topic's slots while others use it, over the contract of a store alone.

"Growth" in `qframe.stores` has the states of a slot. For each slot of the doubling, in order:

    0  look                 how much is queued in it, and how long it takes to copy a page of that;
                            it stays as it is where that is too much (`depth`)
    1  grow: closing        its owner hands over what it has in hand and lets it go; before the
                            first slot a moment passes until all workers look often
    2  open_slot, twice     the two that it is split into, under a token, after what may be left of
                            an earlier try was discarded; again after 5, for groups that have come
    3  marks and log        copied while messages still come; the log is numbered anew in each
    4  wait                 until no group's roster shows an owner of it
    5  close_slot           nothing comes any more, nothing is handed out; a key waits from 4 to 7
    6  the rest             what came since, what is queued, held, dead, how far groups are
    7  grow: split          the two are in use, and the next slot is closing
    8  discard              what stood in it

A lease in the growth itself (`until_ms`, `growth_lease`) keeps two from doing that at once. If one
is killed, another begins again with 2, since nothing of the two is in use before 7; if one was only
thought dead, its token is worth nothing any more. Should it discard what the other has copied, the
other is refused as well, at 7 at the latest, and begins again. So is whoever goes on after a
failover to a server that has forgotten a part of the copies, the closing, or messages that were
copied.

A message goes by the same basis as a producer would take (`codec.basis_of`). A basis of its own
(`slot_basis=`) stands in its headers; where it does not, since it was published before that was so,
the message goes to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption, UnknownTopic
from qframe.growth import Growth
from qframe.stores.base import Store
from qframe.stores.depth import check_depth
from qframe.stores.growth_lease import GrowthLease
from qframe.stores.splitting import Owned, Pause, Splitting
from qframe.stores.types import SlotsClosed
from qframe.topic import MAX_SLOTS, Topic

LEASE_MS: Final = 30_000
TRIES: Final = 3
"""How often the copying of a slot is begun, if what it has written is gone."""
MAX_PAUSE_S: Final = 1.0
HEARD_S: Final = 2.2
"""By then each worker has heard that its topic grows, and looks often how far."""

Progress = Callable[[Topic], object]


class Doubling:
    """Grows one topic.

    Args:
        store: where the topic is.
        name: its name.
        owned: returns the slots of a topic and group that have owners.
        pause: waits for so many seconds.
        on_progress: called with the topic after each slot; it may raise to stop.
        lease_ms: for how long nobody else takes over once nothing is heard.
        max_pause_s: for how long a slot may be closed at most, as far as it can be foretold; None
            for as long as it takes.
        monotonic_s: a clock.
    """

    def __init__(
        self, store: Store, name: str, *, owned: Owned, pause: Pause,
        on_progress: Progress | None = None, lease_ms: int = LEASE_MS,
        max_pause_s: float | None = None,
        monotonic_s: Callable[[], float] = SYSTEM_CLOCK.monotonic_s,
    ) -> None:  # fmt: skip
        self._store = store
        self._name = name
        self._owned = owned
        self._pause = pause
        self._on_progress = on_progress
        self._lease_ms = lease_ms
        self._max_pause_s = max_pause_s
        self._monotonic_s = monotonic_s
        self._held: GrowthLease | None = None

    def begin(self, slots: int) -> Topic:
        """Notes how many slots there are to be; returns the topic.

        Raises:
            BadOption: if it is no such number of slots that the topic can grow to.
            GrowthTaken: if somebody sees to its growth now.
        """
        topic = self._read()
        _check_target(topic, slots)
        if slots == topic.slots and not topic.growth.target:
            return topic
        return self._lease(topic).take(max(slots, topic.growth.target))

    def go_on(self) -> Topic:
        """Takes up a growth that nobody sees to; returns the topic.

        Raises:
            GrowthTaken: if somebody does.
        """
        topic = self._read()
        target = topic.growth.target
        return self._lease(topic).take(target) if target else topic

    def finish(self, topic: Topic) -> Topic:
        """Grows the topic, as `begin` or `go_on` have returned it, as far as it is to.

        Raises:
            GrowthTaken: if somebody else has taken over.
            SlotTooDeep: if too much waits in the next slot.
        """
        for slot in range(topic.growth.first + topic.growth.split):
            self._discard(topic, slot)  # what may be left of slots that were split
        if topic.growth.target and not topic.growth.closing:
            self._pause(HEARD_S)
        while topic.growth.target:
            topic = self._split_next(topic)
            if self._on_progress is not None:
                self._on_progress(topic)
        return topic

    def leave(self) -> None:
        """Gives a growth up to others at once, if its lease is still held."""
        topic = self._read()
        if self._held is None or self._held.topic.growth.until_ms == topic.growth.until_ms:
            self._store.grow(topic, topic.grown(topic.slots, topic.growth._replace(until_ms=0)))

    def _read(self) -> Topic:
        found = self._store.topic(self._name)
        if found is None:
            raise UnknownTopic(self._name)
        return found

    def _lease(self, topic: Topic) -> GrowthLease:
        self._held = GrowthLease(
            self._store, topic, lease_ms=self._lease_ms, monotonic_s=self._monotonic_s
        )
        return self._held

    def _splitting(self, lease: GrowthLease) -> Splitting:
        return Splitting(self._store, lease, owned=self._owned, pause=self._pause)

    def _discard(self, topic: Topic, slot: int) -> None:
        while not self._store.discard(topic, slot):
            pass

    def _split_next(self, topic: Topic) -> Topic:
        """Splits the next slot; returns the topic as it is then."""
        lease = self._lease(topic)
        if not lease.topic.growth.closing:
            if self._max_pause_s is not None:
                waiting = self._splitting(lease)
                check_depth(lease.topic, waiting, self._max_pause_s, self._monotonic_s)
            lease.note(lease.topic.growth._replace(closing=True))
        for left in reversed(range(TRIES)):
            splitting = self._splitting(lease)
            try:
                splitting.run()
                lease.grow(_after(lease.topic), splitting.tokens)
                break
            except SlotsClosed:  # another has taken over, or the store has forgotten something
                if not left:
                    raise
                lease.renew()
        self._discard(lease.topic, splitting.slot)
        return lease.topic


def _check_target(topic: Topic, slots: int) -> None:
    if (
        not isinstance(slots, int)
        or isinstance(slots, bool)
        or slots < topic.slots
        or slots & (slots - 1)
    ):
        raise BadOption(
            "slots", slots, f"topic {topic.name!r} has {topic.slots}, and is doubled only",
            f"give {topic.slots * 2}, or {topic.slots * 4}, and so on",
        )  # fmt: skip
    # The numbers of all slots that there have been must fit into the numbers of a topic.
    most = (MAX_SLOTS + topic.declared_slots) // 2
    if slots > most:
        raise BadOption(
            "slots", slots, f"topic {topic.name!r} was declared with {topic.declared_slots}, and "
            f"can grow up to {1 << most.bit_length() - 1}",
            "copy it to a new topic: qframe store copy",
        )  # fmt: skip


def _after(topic: Topic) -> Topic:
    """The topic once its closing slot is split."""
    growth, slots = topic.growth, topic.slots
    split = growth.split + 1
    if split < slots:
        return topic.grown(slots, growth._replace(split=split))
    if growth.target > 2 * slots:
        return topic.grown(2 * slots, growth._replace(first=growth.first + slots, split=0))
    return topic.grown(2 * slots, Growth(first=growth.first + slots))
