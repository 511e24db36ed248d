"""Sends settlements to the store, many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from qframe.clock import Clock
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.retry import Backoff
from qframe.runtime.handling import Ending
from qframe.runtime.limits import InFlight
from qframe.service import Service
from qframe.stores.base import NO_EPOCH, Settlement, Store, acks
from qframe.topic import Topic

LINGER_S: Final = 0.01
FLUSH_AT: Final = 256
MAX_FLUSH: Final = 2048


class Leak(NamedTuple):
    """A delivery whose message was let go unsettled."""

    delivery: Delivery


Item = list[Delivery] | Ending | Leak | None


class Settler(Service):
    """Gathers settlements for up to 10 ms or 256 deliveries, whichever is first, and sends them.

    When nothing else is in flight there is nothing to wait for, and they are sent at once. What
    cannot be sent is sent again until it can, or until `abandon`.

    Args:
        topic: the topic.
        group: the group.
        store: the store.
        in_flight: from which settled deliveries are removed.
        epochs: answers the epochs under which the slots are owned now.
        on_leaked: called, from its thread, for a message that was let go unsettled.
        events: told of what was settled and what was refused.
        clock: for the 10 ms.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        store: Store,
        in_flight: InFlight,
        epochs: Callable[[], Mapping[int, str]],
        on_leaked: Callable[[Delivery], None],
        events: Events,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"qframe.settler.{topic.name}.{group}", on_failure)
        self._topic = topic
        self._group = group
        self._store = store
        self._in_flight = in_flight
        self._epochs = epochs
        self._on_leaked = on_leaked
        self._events = events
        self._clock = clock
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._abandoned = threading.Event()
        self._backoff = Backoff(0.05, cap=2)
        self.settled = 0

    def put(self, item: list[Delivery] | Ending | Leak) -> None:
        """Takes deliveries that were acknowledged, or one that ended otherwise.

        It never blocks, and may be called by the garbage collector, whatever lock is held.
        """
        self._inbox.put(item)

    def wake(self) -> None:
        """Ends a wait for settlements."""
        self._inbox.put(None)

    def abandon(self) -> None:
        """Gives up sending what the store does not take; its leases will pass."""
        self._abandoned.set()

    def run(self) -> None:
        """Gathers and sends until it is stopped and has nothing left."""
        while True:
            batch: list[Delivery | Ending] = []
            item = self._inbox.get()
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
            if batch:
                self._send(batch)
            if self.stopping and self._inbox.empty():
                return

    def _next(self, batch: list[Delivery | Ending], until_s: float) -> Item:
        """What is to be sent along with the batch; None if it is to be sent now."""
        if len(batch) >= MAX_FLUSH:
            return None
        waits = not (self.stopping or len(batch) >= FLUSH_AT or len(self._in_flight) <= len(batch))
        left_s = until_s - self._clock.monotonic_s()
        try:
            if waits and left_s > 0:
                return self._inbox.get(timeout=left_s)
            return self._inbox.get_nowait()
        except Empty:
            return None

    def _send(self, batch: list[Delivery | Ending]) -> None:
        epochs = self._epochs()
        tries = 0
        while True:
            try:
                stale = self._ask(batch, epochs)
                break
            except UnknownGroup:  # dropped, and all that was in doing with it
                stale = len(batch)
                break
            except StoreUnavailable as error:
                tries += 1
                if self._events:
                    self._events.emit("store.unavailable", part=self.name, error=str(error))
                if self._abandoned.wait(self._backoff.bound_ms(tries) / 1000):
                    return
        self.settled += len(batch)
        self._in_flight.remove(
            [item.delivery if isinstance(item, Ending) else item for item in batch]
        )
        if self._events:
            where = {"topic": self._topic.name, "group": self._group}
            if stale:
                self._events.emit("delivery.stale", count=stale, **where)
            self._events.emit("delivery.settled", count=len(batch) - stale, **where)

    def _ask(self, batch: list[Delivery | Ending], epochs: Mapping[int, str]) -> int:
        """Sends a batch; answers how many were stale."""
        acked = [item for item in batch if isinstance(item, Delivery)]
        if len(acked) == len(batch):
            return len(self._store.acknowledge(self._topic, self._group, acked, epochs))
        # Together and in order: what is acknowledged in a subject's run may follow another end.
        settlements = [_settlement(item, epochs) for item in batch]
        return self._store.settle(self._topic, self._group, settlements).count(Settled.STALE)


def _settlement(item: Delivery | Ending, epochs: Mapping[int, str]) -> Settlement:
    if isinstance(item, Ending):
        one = item.delivery
        return Settlement(
            one.slot, one.subject, one.seq, one.receipt, one.attempt,
            epochs.get(one.slot, NO_EPOCH),
            item.verdict, item.delay_ms, item.at_ms, item.error, item.traceback,
        )  # fmt: skip
    return acks([item], epochs)[0]
