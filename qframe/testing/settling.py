"""Settlements that reach the store at once."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty
from typing import Any

from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.settler import Leak, Settler
from qframe.runtime.handler.retry_policy import Disposition
from qframe.testing.crashes import Point, WorkerLife


class DirectSettler(Settler):
    """A settler without a thread: whoever settles tells the store.

    Args:
        life: the worker's; once it is over the store hears nothing more.
        context: the consumer's.
        settler: the arguments of `Settler`.
    """

    def __init__(self, context: ConsumerContext, *, life: WorkerLife, **settler: Any) -> None:
        super().__init__(context, **settler)
        self._life = life
        self._telling = threading.RLock()

    def start(self) -> None:
        """Has no thread."""

    def put(self, item: list[Delivery] | Disposition | Leak) -> None:
        """Tells the store, unless the worker is lost before that.

        A message that was let go is heard later: the garbage collector tells of it, whatever lock
        is held.
        """
        if isinstance(item, Leak):
            self._inbox.put(item)
            self._life.wake()
            return
        try:
            self._tell_store(item)
        finally:
            self._life.wake()

    def settle_now(self, deliveries: list[Delivery]) -> list[Settled]:
        """Tells the store, unless the worker is lost before that."""
        where = (self._topic.name, self._group)
        if self._life.over or not self._life.goes_on(Point.COMMIT, *where):
            return [Settled.STALE] * len(deliveries)
        with self._telling:
            results = super().settle_now(deliveries)
        self._life.goes_on(Point.SETTLE, *where)
        return results

    def _tell_store(self, item: list[Delivery] | Disposition) -> None:
        if self._life.over:
            return
        where = (self._topic.name, self._group)
        if isinstance(item, list) and not self._life.goes_on(Point.COMMIT, *where):
            return
        with self._telling:
            self._send([*item] if isinstance(item, list) else [item])
        self._life.goes_on(Point.SETTLE, *where)

    def hear_of_leaks(self) -> bool:
        """Hands back what was let go unsettled; returns whether there was any."""
        heard = False
        with suppress(Empty):
            while True:
                item = self._inbox.get_nowait()
                if isinstance(item, Leak):
                    self._on_leaked(item.delivery)
                    heard = True
        return heard
