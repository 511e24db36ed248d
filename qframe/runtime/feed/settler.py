"""Sends settlements to the store, many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.retry import Backoff
from qframe.runtime.context import ConsumerContext
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.retry_policy import Disposition, summary
from qframe.service import Service
from qframe.stores.base import Settling
from qframe.stores.types import NO_EPOCH, Settlement, acks

LINGER_S: Final = 0.01
FLUSH_AT: Final = 256
MAX_FLUSH: Final = 2048


class Leak(NamedTuple):
    """A delivery whose message was dropped unsettled."""

    delivery: Delivery


One = Delivery | Disposition
Item = list[Delivery] | Disposition | Leak | None


class Settler(Service):
    """Gathers settlements for up to 10 ms or 256 deliveries, whichever is first, and sends them.

    When nothing else is in flight there is nothing to wait for, and they are sent at once. An
    item that cannot be sent is kept and sent again, with growing pauses, until `abandon`; one that
    comes meanwhile waits behind it if it is of the same slot, else it is sent.

    A settlement that the store cannot take ends its own message: it becomes a dead letter, with the
    reason.

    Args:
        context: the consumer's.
        store: the store.
        in_flight: from which settled deliveries are removed.
        epochs: returns the epochs under which the slots are owned now.
        on_settled: called, from its thread, after each flush.
        on_leaked: called, from its thread, for a message that was dropped unsettled.

    Attributes:
        settled: how many settlements the store has replied to.
        sending: the deliveries that are being sent now, and may be settled in the store already.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: Settling,
        in_flight: InFlight,
        epochs: Callable[[], Mapping[int, str]],
        on_settled: Callable[[], None],
        on_leaked: Callable[[Delivery], None],
    ) -> None:
        super().__init__(context.name_of("settler"), context.fail)
        self._context = context
        self._topic = context.topic
        self._group = context.group
        self._store = store
        self._in_flight = in_flight
        self._epochs = epochs
        self._on_settled = on_settled
        self._on_leaked = on_leaked
        self._clock = context.clock
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._abandoned = threading.Event()
        self._backoff = Backoff(0.05, cap=2)
        self._kept: list[One] = []
        self._tries = 0
        self._again_s = 0.0
        self.settled: int = 0
        self.sending: list[Delivery] = []

    def put(self, item: list[Delivery] | Disposition | Leak) -> None:
        """Takes deliveries that were acknowledged, or one that ended otherwise.

        It never blocks, and may be called by the garbage collector, whatever lock is held.
        """
        self._inbox.put(item)

    def settle_now(self, deliveries: list[Delivery]) -> list[Settled]:
        """Acknowledges in the caller's thread, ahead of the queue; returns the result of each.

        The deliveries stay in flight; the caller repeats what could not reach its server.
        """
        results = self._results([*deliveries])
        if reached := len(results) - results.count(Settled.AWAY):
            self._report(reached, results.count(Settled.STALE))
        return results

    @property
    def holds(self) -> set[Delivery]:
        """The deliveries that it is sending, or has tried to send and will send again."""
        return {*self.sending, *[_delivery(one) for one in list(self._kept)]}

    def wake(self) -> None:
        """Ends a wait for settlements."""
        self._inbox.put(None)

    def abandon(self) -> None:
        """Stops sending what the store does not take; its leases will expire."""
        self._abandoned.set()
        self.wake()

    def run(self) -> None:
        """Gathers and sends until it is stopped and has nothing left."""
        while True:
            batch: list[One] = []
            item = self._first()
            until_s = self._clock.monotonic_s() + LINGER_S
            while True:
                if isinstance(item, list):
                    batch += item
                elif isinstance(item, Leak):
                    self._on_leaked(item.delivery)
                elif item is not None:
                    batch.append(item)
                item = self._next(batch, until_s)
                if item is None:
                    break
            if sendable := self._sendable(batch):
                self._send(sendable)
            is_done = not self._kept or self._abandoned.is_set()
            if self.stopping and is_done and self._inbox.empty():
                return

    def _first(self) -> Item:
        """The next item, however long it takes; None once what is kept is to be sent again."""
        if not self._kept:
            return self._inbox.get()
        try:
            return self._inbox.get(timeout=max(0.0, self._again_s - self._clock.monotonic_s()))
        except Empty:
            return None

    def _next(self, batch: list[One], until_s: float) -> Item:
        """The next item to send with the batch; None if the batch is to be sent now."""
        if len(batch) >= MAX_FLUSH:
            return None
        in_hand = len(batch) + len(self._kept)
        waits = not (self.stopping or len(batch) >= FLUSH_AT or len(self._in_flight) <= in_hand)
        left_s = until_s - self._clock.monotonic_s()
        try:
            if waits and left_s > 0:
                return self._inbox.get(timeout=left_s)
            return self._inbox.get_nowait()
        except Empty:
            return None

    def _sendable(self, batch: list[One]) -> list[One]:
        """The items that may be sent now, each slot's in order; kept ones wait for the next try."""
        if not self._kept:
            return batch
        if self._clock.monotonic_s() >= self._again_s:
            kept, self._kept = self._kept, []
            return kept + batch
        slots = {_delivery(one).slot for one in self._kept}
        self._kept += [one for one in batch if _delivery(one).slot in slots]
        return [one for one in batch if _delivery(one).slot not in slots]

    def _send(self, batch: list[One]) -> None:
        """Sends a batch, and keeps what cannot be sent."""
        self.sending = [_delivery(one) for one in batch]
        results = self._results(batch)
        if Settled.AWAY in results:
            pairs = list(zip(batch, results, strict=True))
            self._kept += [one for one, result in pairs if result is Settled.AWAY]
            batch = [one for one, result in pairs if result is not Settled.AWAY]
            self._tries += 1
            self._again_s = self._clock.monotonic_s() + self._backoff.bound_ms(self._tries) / 1000
        elif not self._kept:
            self._tries = 0
        if batch:
            self.settled += len(batch)
            self._in_flight.remove([_delivery(one) for one in batch])
            self._report(len(batch), results.count(Settled.STALE))
            self._on_settled()
        self.sending = []

    def _results(self, batch: list[One]) -> list[Settled]:
        """Sends a batch; returns the result of each, also if the store did not reply."""
        try:
            return self._ask(batch)
        except UnknownGroup:  # dropped, with all that was in flight
            return [Settled.STALE] * len(batch)
        except StoreUnavailable as error:
            self._context.unavailable(self.name, error)
            return [Settled.AWAY] * len(batch)
        except Exception as error:
            # The store cannot take one of them: the others are settled without it. An
            # acknowledgement carries no text, so a failure of those alone is no message's fault.
            if all(isinstance(one, Delivery) for one in batch):
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
        epochs = self._epochs()
        acked = [one for one in batch if isinstance(one, Delivery)]
        if len(acked) == len(batch):
            return self._store.acknowledge(self._topic, self._group, acked, epochs)
        # Together and in order: what is acknowledged in a subject's run may follow another end.
        settlements = [_settlement(one, epochs) for one in batch]
        return self._store.settle(self._topic, self._group, settlements)


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
