"""Renews the leases of what is in flight."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.message import Delivery
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.renewal import renewed_in_s
from qframe.service import SteppedService
from qframe.stores.base import Pulling
from qframe.stores.types import NO_EPOCH, LeaseRef, RenewResult


class _LeaseKey(NamedTuple):
    """Names one lease: of a subject, or of the window of a stream's slot."""

    slot: int
    subject: str | None
    receipt: str


class LeaseRenewer(SteppedService):
    """Renews in time, as `renewal` has it; a delivery that cannot be renewed is lost.

    A lease is counted from when its renewal was sent, never from when the reply came, so that it
    expires here before it expires in the store.

    Args:
        context: the consumer's.
        store: the store.
        in_flight: has the deliveries whose leases are renewed.
        slots: says under which epochs slots are owned, and hears before `on_lost` of which streams
            some deliveries are lost. A key's messages have several leases there: what follows a
            lost one may be held still, here or by the store's reckoning, and under the same epoch
            it would be handled first.
        sending: returns the deliveries that the settler is sending, or has tried to send: the store
            may have settled them already, so that they have no lease.
        on_lost: called with deliveries that this worker does not own any more.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: Pulling,
        in_flight: InFlight,
        slots: Slots,
        sending: Callable[[], Iterable[Delivery]],
        on_lost: Callable[[list[Delivery]], None],
    ) -> None:
        super().__init__(context.name_of("renewal"), context.fail, context.clock)
        self._context = context
        self._store = store
        self._in_flight = in_flight
        self._lease_ms = context.options.lease_ms
        self._slots = slots
        self._sending = sending
        self._on_lost = on_lost
        self._awake = threading.Event()
        self._was_answered = True
        self._kept_until_s: dict[Delivery, float] = {}
        self._extended_until_s: dict[_LeaseKey, float] = {}

    def wake(self) -> None:
        """Ends the wait for the next round: deliveries may have been taken away."""
        self._awake.set()

    def run(self) -> None:
        """A round whenever one is due."""
        while True:
            self._awake.wait(renewed_in_s(self._lease_ms, was_answered=self._was_answered))
            self._awake.clear()
            if self.stopping:
                return
            self._was_answered = True
            self.renew_all()
            self._steps.rest()

    def renew_all(self) -> None:
        """Renews the leases of what is in flight; an extended one keeps its greater length."""
        extended = list(self._extended_until_s)  # first: what is extended meanwhile is in flight
        present = self._in_flight.all()
        kept = self._kept_until_s
        self._kept_until_s = {one: kept[one] for one in present if one in kept}
        leases: dict[int, list[Delivery]] = {}
        for one in present:
            leases.setdefault(self._lease_ms_of(one), []).append(one)
        for lease_ms, deliveries in leases.items():
            self._steps.begin()
            self.renew(deliveries, lease_ms)
        for gone in set(extended).difference(map(_lease_of, present)):
            del self._extended_until_s[gone]

    def extend(self, delivery: Delivery, seconds: float) -> None:
        """Renews one lease, now, to end in so many seconds or later."""
        until_s = self._clock.monotonic_s() + seconds
        lease = _lease_of(delivery)
        self._extended_until_s[lease] = max(until_s, self._extended_until_s.get(lease, until_s))
        self.renew([delivery], self._lease_ms_of(delivery))

    def _lease_ms_of(self, delivery: Delivery) -> int:
        """The length to renew for: a multiple of the usual lease, so that calls are few."""
        until_s = (
            self._extended_until_s.get(_lease_of(delivery)) if self._extended_until_s else None
        )
        if until_s is None:
            return self._lease_ms
        left_ms = math.ceil((until_s - self._clock.monotonic_s()) * 1000)
        return self._lease_ms * max(1, -(-left_ms // self._lease_ms))

    def renew(self, deliveries: list[Delivery], lease_ms: int) -> None:
        """Renews the leases of these deliveries, once, and reports lost ones."""
        if not deliveries:
            return
        epochs = self._slots.epochs
        holds: dict[LeaseRef, list[Delivery]] = {}
        for one in deliveries:
            hold = LeaseRef(one.slot, epochs.get(one.slot, NO_EPOCH), one.subject, one.receipt)
            holds.setdefault(hold, []).append(one)
        sent_s = self._clock.monotonic_s()
        try:
            renewed = self._store.renew(
                self._context.topic, self._context.group, list(holds), lease_ms
            )
        except UnknownGroup:  # dropped, and all that it had in hand with it
            self._on_lost(deliveries)
            return
        except StoreUnavailable as error:
            renewed = RenewResult(unreachable=list(holds))
            self._context.unavailable(self.name, error)
        if renewed.unreachable:
            self._was_answered = False
        away = [one for hold in renewed.unreachable for one in holds.pop(hold)]
        lost = [one for hold in renewed.gone for one in holds.pop(hold)]
        if lost:
            lost += self._pulled_meanwhile(lost)
            settling = set(self._sending())
            lost = [one for one in lost if one not in settling]
        for kept in holds.values():
            self._kept_until_s.update(dict.fromkeys(kept, sent_s + lease_ms / 1000))
        if lost := lost + self._expired(away, sent_s):
            if not self._context.topic.has_subjects:
                # What is held anew, a window after a seek, or a key's head when an operator has
                # retried the dead message before it, comes before what is lost. What is held behind
                # that, under a receipt of before a failover, may not go on first.
                first = _first_of(holds.values())
                slots = {
                    one.slot
                    for one in lost
                    if one in self._in_flight
                    and one.seq < first.get((one.slot, one.subject), math.inf)
                }
                if slots:
                    self._slots.fenced(slots)
            self._on_lost(lost)

    def _pulled_meanwhile(self, lost: list[Delivery]) -> list[Delivery]:
        """Returns the others in flight under leases that are gone: such a one never comes back.

        A stream's slot is read on under the lease of its window while that is being renewed.
        """
        gone, known = set(map(_lease_of, lost)), set(lost)
        present = self._in_flight.all()
        return [one for one in present if _lease_of(one) in gone and one not in known]

    def _expired(self, deliveries: list[Delivery], now_s: float) -> list[Delivery]:
        """The deliveries whose leases have expired, so that the store may hand them out again.

        A delivery that was pulled since the last round counts from this one: it may be kept too
        long by a third of a lease, but then its settlement is refused by receipt.
        """
        until_s = now_s + self._lease_ms / 1000
        return [one for one in deliveries if now_s >= self._kept_until_s.setdefault(one, until_s)]


def _lease_of(delivery: Delivery) -> _LeaseKey:
    return _LeaseKey(delivery.slot, delivery.subject, delivery.receipt)


def _first_of(held: Iterable[list[Delivery]]) -> dict[tuple[int, str | None], int]:
    """The lowest number of what is held of each slot's line, and of each subject there."""
    first: dict[tuple[int, str | None], int] = {}
    for one in chain.from_iterable(held):
        place = one.slot, one.subject
        first[place] = min(one.seq, first.get(place, one.seq))
    return first
