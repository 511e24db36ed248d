"""Keeps the leases of what is in flight."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from qframe.clock import Clock
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.message import Delivery
from qframe.runtime.flow.in_flight import InFlight
from qframe.service import Service
from qframe.stores.base import Store
from qframe.stores.types import NO_EPOCH, LeaseRef, RenewResult
from qframe.topic import Topic


class _Held(NamedTuple):
    """What has one lease: a subject, or the window of a stream's slot."""

    slot: int
    subject: str | None
    receipt: str


class Renewal(Service):
    """Renews every third of a lease; what cannot be renewed in time is lost.

    A lease is counted from when its renewal was sent, never from when the answer came, so this
    side always sees it pass before the store does.

    Args:
        topic: the topic.
        group: the group.
        store: the store.
        in_flight: what is to be kept.
        lease_ms: the length of a lease.
        epochs: answers the epochs under which the slots are owned now.
        sending: answers the deliveries that the store is being told to settle, so that it may not
            hold them any more.
        on_lost: called with deliveries that are not this worker's any more.
        events: told when the store cannot be reached.
        clock: for the thirds.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        store: Store,
        in_flight: InFlight,
        lease_ms: int,
        epochs: Callable[[], Mapping[int, str]],
        sending: Callable[[], Iterable[Delivery]],
        on_lost: Callable[[list[Delivery]], None],
        events: Events,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"qframe.renewal.{topic.name}.{group}", on_failure)
        self._topic = topic
        self._group = group
        self._store = store
        self._in_flight = in_flight
        self._lease_ms = lease_ms
        self._epochs = epochs
        self._sending = sending
        self._on_lost = on_lost
        self._events = events
        self._clock = clock
        self._awake = threading.Event()
        self._kept_until_s: dict[Delivery, float] = {}
        self._extended_until_s: dict[_Held, float] = {}

    def wake(self) -> None:
        """Ends the wait for the next round."""
        self._awake.set()

    def run(self) -> None:
        """A round every third of a lease."""
        while not self._awake.wait(self._lease_ms / 3000):
            self.renew_all()

    def renew_all(self) -> None:
        """Renews the leases of what is in flight; what was extended keeps its longer one."""
        extended = list(self._extended_until_s)  # first: what is extended meanwhile is in flight
        present = self._in_flight.all()
        kept = self._kept_until_s
        self._kept_until_s = {one: kept[one] for one in present if one in kept}
        leases: dict[int, list[Delivery]] = {}
        for one in present:
            leases.setdefault(self._lease_of(one), []).append(one)
        for lease_ms, deliveries in leases.items():
            self.renew(deliveries, lease_ms)
        for held in set(extended).difference(map(_held, present)):
            del self._extended_until_s[held]

    def extend(self, delivery: Delivery, seconds: float) -> None:
        """Renews the lease of one, now, to end in so many seconds or later."""
        until_s = self._clock.monotonic_s() + seconds
        held = _held(delivery)
        self._extended_until_s[held] = max(until_s, self._extended_until_s.get(held, until_s))
        self.renew([delivery], self._lease_of(delivery))

    def _lease_of(self, delivery: Delivery) -> int:
        """How long it is to be held from now: a multiple of the lease, so that calls are few."""
        until_s = self._extended_until_s.get(_held(delivery)) if self._extended_until_s else None
        if until_s is None:
            return self._lease_ms
        left_ms = math.ceil((until_s - self._clock.monotonic_s()) * 1000)
        return self._lease_ms * max(1, -(-left_ms // self._lease_ms))

    def renew(self, deliveries: list[Delivery], lease_ms: int) -> None:
        """Renews the leases of these deliveries, once, and reports those that are lost."""
        if not deliveries:
            return
        epochs = self._epochs()
        holds: dict[LeaseRef, list[Delivery]] = {}
        for one in deliveries:
            hold = LeaseRef(one.slot, epochs.get(one.slot, NO_EPOCH), one.subject, one.receipt)
            holds.setdefault(hold, []).append(one)
        sent_s = self._clock.monotonic_s()
        try:
            renewed = self._store.renew(self._topic, self._group, list(holds), lease_ms)
        except UnknownGroup:  # dropped, and all that it had in hand with it
            self._on_lost(deliveries)
            return
        except StoreUnavailable as error:
            renewed = RenewResult(unreachable=list(holds))
            if self._events:
                self._events.emit("store.unavailable", part=self.name, error=str(error))
        away = [one for hold in renewed.unreachable for one in holds.pop(hold)]
        lost = [one for hold in renewed.gone for one in holds.pop(hold)]
        if lost:
            settling = set(self._sending())
            lost = [one for one in lost if one not in settling]
        for kept in holds.values():
            self._kept_until_s.update(dict.fromkeys(kept, sent_s + lease_ms / 1000))
        if lost := lost + self._expired(away, sent_s):
            self._on_lost(lost)

    def _expired(self, deliveries: list[Delivery], now_s: float) -> list[Delivery]:
        """Those whose leases have passed, so that the store will have given them up.

        What was pulled since the last round counts from this one: it may be kept too long by a
        third of a lease, but its settlement is refused by receipt all the same.
        """
        until_s = now_s + self._lease_ms / 1000
        return [one for one in deliveries if now_s >= self._kept_until_s.setdefault(one, until_s)]


def _held(delivery: Delivery) -> _Held:
    return _Held(delivery.slot, delivery.subject, delivery.receipt)
