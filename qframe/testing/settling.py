"""Settlements that reach the store at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.settlement_sender import SettlementSender
from qframe.runtime.feed.settler import Settlements
from qframe.testing.crashes import Point, WorkerLife


class DirectSettler:
    """Stands in place of a settler, without a thread: whoever settles tells the store.

    Args:
        context: the consumer's.
        sender: tells the store.
        life: the worker's; once it is over the store hears nothing more.
    """

    def __init__(
        self, context: ConsumerContext, sender: SettlementSender, life: WorkerLife
    ) -> None:
        self._where = (context.topic.name, context.group)
        self._sender = sender
        self._life = life
        self._telling = threading.RLock()
        self._leaks: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.alive: bool = False

    def start(self) -> None:
        """Has no thread."""

    def stop(self, _timeout_s: float | None = None, /) -> bool:
        """Has nothing to send."""
        return True

    def abandon(self) -> None:
        """Keeps nothing."""

    def put(self, item: Settlements) -> None:
        """Tells the store, unless the worker is lost before that.

        A message that was let go is heard later: the garbage collector tells of it, whatever lock
        is held.
        """
        if callable(item):
            self._leaks.put(item)
            self._life.wake()
            return
        try:
            if self._life.over:
                return
            if isinstance(item, list) and not self._life.goes_on(Point.COMMIT, *self._where):
                return
            with self._telling:
                self._sender.send([*item] if isinstance(item, list) else [item])
            self._life.goes_on(Point.SETTLE, *self._where)
        finally:
            self._life.wake()

    def settle_now(self, deliveries: list[Delivery]) -> list[Settled]:
        """Tells the store, unless the worker is lost before that."""
        if self._life.over or not self._life.goes_on(Point.COMMIT, *self._where):
            return [Settled.STALE] * len(deliveries)
        with self._telling:
            results = self._sender.settle_now(deliveries)
        self._life.goes_on(Point.SETTLE, *self._where)
        return results

    def hear_of_leaks(self) -> bool:
        """Hands back what was let go unsettled; returns whether there was any."""
        heard = False
        with suppress(Empty):
            while True:
                self._leaks.get_nowait()()
                heard = True
        return heard
