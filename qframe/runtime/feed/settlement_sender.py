"""Sends settlements to the store, and keeps those that it cannot send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.retry import Backoff
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.meter import Meter
from qframe.runtime.handler.retry_policy import Disposition, summary
from qframe.runtime.handler.spec import OnSettled
from qframe.stores.base import Settling
from qframe.stores.types import NO_EPOCH, Settlement, acks

One = Delivery | Disposition


class SettlementSender:
    """Sends settlements in its caller's thread, for one thread at a time.

    It keeps a settlement that it cannot send, and tries again after growing pauses. Later ones of
    the same slot wait behind it; those of other slots are sent.

    A settlement that the store cannot take ends its own message: it becomes a dead letter, with the
    reason.

    Args:
        context: the consumer's.
        store: the store.
        in_flight: from which settled deliveries are removed.
        slots: says under which epochs slots are owned, and hands over after each flush what leaves.
        on_results: called with deliveries and what the store has said of each, if somebody waits
            for that; never with those that are unsent.
        meter: counts how messages end, if somebody wants to know.

    Attributes:
        sending: the deliveries that are being sent now, and may be settled in the store already.
        unsent: the settlements that could not be sent.
        again_s: when they are to be tried again.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: Settling,
        in_flight: InFlight,
        slots: Slots,
        on_results: OnSettled | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._name = context.name_of("settler")
        self._context = context
        self._topic = context.topic
        self._group = context.group
        self._store = store
        self._in_flight = in_flight
        self._slots = slots
        self._on_results = on_results
        self._clock = context.clock
        self._meter = meter
        self._backoff = Backoff(first=0.05, cap=2)
        self._tries = 0
        self.sending: list[Delivery] = []
        self.unsent: list[One] = []
        self.again_s: float = 0.0

    def settle_now(self, deliveries: list[Delivery]) -> list[Settled]:
        """Acknowledges ahead of what waits, from any thread; returns the result of each.

        The deliveries stay in flight; the caller repeats what could not reach its server.
        """
        results = self._results([*deliveries])
        if reached := len(results) - results.count(Settled.AWAY):
            self._report(reached, results.count(Settled.STALE))
            if self._meter is not None:
                self._meter.settled(deliveries, results)
        return results

    @property
    def holds(self) -> set[Delivery]:
        """The deliveries that it is sending, or has tried to send and will send again.

        From any thread: one may go from either to the other meanwhile, so `unsent` is asked twice.
        """
        unsent, sending = list(self.unsent), self.sending
        return {*sending, *[_delivery(one) for one in unsent + self.unsent]}

    def is_all(self, count: int) -> bool:
        """Whether so many settlements, with those that are unsent, end all that is in flight."""
        return len(self._in_flight) <= count + len(self.unsent)

    def sendable(self, batch: list[One]) -> list[One]:
        """The items that may be sent now, each slot's in order; kept ones wait for the next try."""
        if not self.unsent:
            return batch
        if self._clock.monotonic_s() >= self.again_s:
            unsent = self.unsent
            self.sending = _deliveries(unsent)  # `holds` misses none of them
            self.unsent = []
            return unsent + batch
        slots = {_delivery(one).slot for one in self.unsent}
        self.unsent += [one for one in batch if _delivery(one).slot in slots]
        return [one for one in batch if _delivery(one).slot not in slots]

    def send(self, batch: list[One]) -> None:
        """Sends a batch, and keeps what cannot be sent."""
        deliveries = self.sending = _deliveries(batch)
        results = self._results(batch)
        if self._meter is not None:
            self._meter.settled(batch, results)
        if Settled.AWAY in results:
            pairs = list(zip(batch, results, strict=True))
            self.unsent += [one for one, result in pairs if result is Settled.AWAY]
            batch = [one for one, result in pairs if result is not Settled.AWAY]
            results = [result for result in results if result is not Settled.AWAY]
            deliveries = _deliveries(batch)
            self._tries += 1
            self.again_s = self._clock.monotonic_s() + self._backoff.bound_ms(self._tries) / 1000
        elif not self.unsent:
            self._tries = 0
        if batch:
            self._in_flight.remove(deliveries)
            if self._on_results is not None:
                self._on_results(deliveries, results)
            self._report(len(batch), results.count(Settled.STALE))
            self._slots.drain()
        self.sending = []

    def _results(self, batch: list[One]) -> list[Settled]:
        """Sends a batch; returns the result of each, also if the store did not reply."""
        try:
            return self._ask(batch)
        except UnknownGroup:  # dropped, with all that was in flight
            return [Settled.STALE] * len(batch)
        except StoreUnavailable as error:
            self._context.unavailable(self._name, error)
            return [Settled.AWAY] * len(batch)
        except Exception as error:
            # The store cannot take one of them: the others are settled without it. An
            # acknowledgement carries no text, so a failure of those alone is no message's fault.
            if _are_acks(batch):
                raise
            if len(batch) == 1:
                return [self._dead_letter(batch[0], error)]
            half = len(batch) // 2
            return self._results(batch[:half]) + self._results(batch[half:])

    def _dead_letter(self, one: One, error: Exception) -> Settled:
        """Makes a dead letter of a delivery whose settlement the store cannot take.

        This settlement has only plain text in it: an error now is not the delivery's fault, and is
        raised.
        """
        delivery = _delivery(one)
        why = f"its settlement was refused: {summary(error)}"
        disposition = Disposition(delivery, Verdict.DEAD, error=why)
        try:
            [result] = self._ask([disposition])
        except UnknownGroup:
            return Settled.STALE
        except StoreUnavailable:
            return Settled.AWAY
        self._context.emit("settlement.refused", id=delivery.id, key=delivery.key, error=error)
        return result

    def _report(self, count: int, stale: int) -> None:
        if stale:
            self._context.emit("delivery.stale", count=stale)
        self._context.emit("delivery.settled", count=count - stale)

    def _ask(self, batch: list[One]) -> list[Settled]:
        """Sends a batch; returns the result of each."""
        epochs = self._slots.epochs
        if self._topic.history_ms:
            settlements = [self._noted(one, epochs) for one in batch]
            return self._store.settle(self._topic, self._group, settlements)
        if _are_acks(batch):
            return self._store.acknowledge(self._topic, self._group, batch, epochs)
        # Together and in order: what is acknowledged in a subject's run may follow another end.
        settlements = [_settlement(one, epochs) for one in batch]
        return self._store.settle(self._topic, self._group, settlements)

    def _noted(self, one: One, epochs: Mapping[int, str]) -> Settlement:
        """A settlement with what a history wants to know."""
        settlement, delivery = _settlement(one, epochs), _delivery(one)
        settlement.id = delivery.id
        if delivery.taken_s:
            took_s = self._clock.monotonic_s() - delivery.taken_s
            settlement.took_ms = round(took_s * 1000)
        return settlement


def _are_acks(items: list[One]) -> TypeGuard[list[Delivery]]:
    return Disposition not in set(map(type, items))


def _deliveries(items: list[One]) -> list[Delivery]:
    if _are_acks(items):
        return items
    return [one.delivery if isinstance(one, Disposition) else one for one in items]


def _delivery(one: One) -> Delivery:
    return one.delivery if isinstance(one, Disposition) else one


def _settlement(item: One, epochs: Mapping[int, str]) -> Settlement:
    if isinstance(item, Disposition):
        one = item.delivery
        return Settlement(
            one.slot, one.subject, one.seq, one.receipt, one.attempt,
            epochs.get(one.slot, NO_EPOCH),
            item.verdict, item.delay_ms, item.at_ms, item.error, item.traceback,
        )  # fmt: skip
    return acks([item], epochs)[0]
