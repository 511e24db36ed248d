"""Gathers settlements, and has them sent to the store many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.settlement_sender import One, SettlementSender
from qframe.runtime.handler.retry_policy import Disposition
from qframe.service import SteppedService

LINGER_S: Final = 0.01
FLUSH_AT: Final = 256
MAX_FLUSH: Final = 4096


Settlements = list[Delivery] | Disposition | Callable[[], object]


class SettlementReceiver(Protocol):
    """Takes a consumer's settlements: a `Settler`, or what a harness has in its place."""

    @property
    def alive(self) -> bool:
        """Whether it has a thread, which may have some in hand."""

    def start(self) -> None:
        """Begins."""

    def put(self, item: Settlements) -> None:
        """Takes deliveries that were acknowledged, one that ended otherwise, or what to call.

        It never blocks, and may be called by the garbage collector, whatever lock is held.
        """

    def settle_now(self, deliveries: list[Delivery]) -> list[Settled]:
        """Acknowledges in the caller's thread, ahead of the queue; returns the result of each."""

    def stop(self, timeout_s: float | None = None, /) -> bool:
        """Sends what it has; returns whether it has ended in time."""

    def abandon(self) -> None:
        """Stops sending what the store does not take; its leases will expire."""


class Settler(SteppedService):
    """Gathers settlements for up to 10 ms or 256 deliveries, whichever is first, and sends them.

    When nothing else is in flight there is nothing to wait for, and they are sent at once. An
    item that cannot be sent is kept and sent again until `abandon`.

    Args:
        context: the consumer's.
        sender: sends them, from its thread.
    """

    def __init__(self, context: ConsumerContext, sender: SettlementSender) -> None:
        super().__init__(context.name_of("settler"), context.fail, context.clock)
        self._sender = sender
        self._inbox: SimpleQueue[Settlements | None] = SimpleQueue()
        self._abandoned = threading.Event()

    def put(self, item: Settlements) -> None:
        """Takes deliveries that were acknowledged, one that ended otherwise, or what to call.

        It never blocks, and may be called by the garbage collector, whatever lock is held.
        """
        self._inbox.put(item)

    def settle_now(self, deliveries: list[Delivery]) -> list[Settled]:
        """Acknowledges in the caller's thread, ahead of the queue; returns the result of each."""
        return self._sender.settle_now(deliveries)

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
            self._steps.rest()
            item = self._first()
            until_s = self._steps.begin() + LINGER_S
            while True:
                if isinstance(item, list):
                    batch += item
                elif isinstance(item, Disposition):
                    batch.append(item)
                elif item is not None:
                    item()
                item = self._next(batch, until_s)
                if item is None:
                    break
            if sendable := self._sender.sendable(batch):
                self._sender.send(sendable)
            is_done = not self._sender.unsent or self._abandoned.is_set()
            if self.stopping and is_done and self._inbox.empty():
                return

    def _first(self) -> Settlements | None:
        """The next item, however long it takes; None once what is kept is to be sent again."""
        if not self._sender.unsent:
            return self._inbox.get()
        try:
            left_s = self._sender.again_s - self._clock.monotonic_s()
            return self._inbox.get(timeout=max(0.0, left_s))
        except Empty:
            return None

    def _next(self, batch: list[One], until_s: float) -> Settlements | None:
        """The next item to send with the batch; None if the batch is to be sent now."""
        if len(batch) >= MAX_FLUSH:
            return None
        is_full = len(batch) >= FLUSH_AT
        waits = not (self.stopping or is_full or self._sender.is_all(len(batch)))
        left_s = until_s - self._clock.monotonic_s()
        try:
            if waits and left_s > 0:
                return self._inbox.get(timeout=left_s)
            return self._inbox.get_nowait()
        except Empty:
            return None
