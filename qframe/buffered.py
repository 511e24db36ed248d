"""Gathering what many threads publish, so that a call to the store carries many messages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Self, Unpack

from qframe.clock import Clock
from qframe.errors import ProducerClosed, TopicFull
from qframe.outcomes import Outcome, Published
from qframe.outgoing import MessageOptions, outgoing
from qframe.producer import Producer
from qframe.service import Service
from qframe.stores.exchange import Entry
from qframe.topic import Topic, duration_ms

CAPACITY: Final = 10_000
LONGEST_WAIT_S: Final = 3600.0  # a lock refuses to wait for centuries; who waits looks again


class _Item(NamedTuple):
    """A message that waits, and who waits for it."""

    topic: Topic
    entry: Entry
    future: Future[Published]


class BufferedProducer(Service):
    """Publishes for many threads; a batch leaves when it is full, or its first has lingered.

    Each message is checked and encoded in the thread that publishes it, and goes to the store from
    one other thread, so that what one thread publishes keeps its order. Nothing is published until
    its future says so.

    Args:
        producer: what checks and sends.
        linger_ms: how long the first message of a batch waits for others, in milliseconds.
        batch: how many messages a batch has at most.
        capacity: how many may wait; who publishes one more waits for room.
        clock: for the linger.
        on_failure: called when it ends by an error of qframe's own.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        linger_ms: int,
        batch: int,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
        capacity: int = CAPACITY,
    ) -> None:
        super().__init__("qframe.buffered", on_failure)
        self._producer = producer
        self._linger_s = linger_ms / 1000
        self._batch = batch
        self._capacity = capacity
        self._clock = clock
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()

    def publish(
        self, topic: Topic | str, body: Any, **options: Unpack[MessageOptions]
    ) -> Future[Published]:
        """Takes a message; its future has the outcome, or the error that `Producer.publish` raises.

        Raises:
            BadInput: if anything about it is wrong; at once, and nothing was taken.
            ProducerClosed: if it is closed.
        """
        found, entry = self._producer.prepared(topic, outgoing(body, options))
        future: Future[Published] = Future()
        with self._changed:
            while len(self._waiting) >= self._capacity and not self.stopping:
                self._changed.wait()
            if self.stopping:
                raise ProducerClosed
            self._waiting.append(_Item(found, entry, future))
            if len(self._waiting) in (1, self._batch):
                self._changed.notify_all()
        return future

    def close(self, timeout_s: float | None = None) -> bool:
        """Sends what waits, and takes nothing more; answers whether all was sent in time.

        Raises:
            BadOption: if the time is none.
        """
        if timeout_s is not None:
            timeout_s = min(duration_ms(timeout_s, "timeout_s") / 1000, threading.TIMEOUT_MAX)
        return self.stop(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Ends all waits."""
        with self._changed:
            self._changed.notify_all()

    def run(self) -> None:
        """Gathers and sends until it is closed and nothing waits."""
        while items := self._next():
            by_topic: dict[str, list[_Item]] = {}
            for item in items:
                # One whose user has cancelled it is not sent; from now on nobody can.
                if item.future.set_running_or_notify_cancel():
                    by_topic.setdefault(item.topic.name, []).append(item)
            for share in by_topic.values():
                self._send(share)

    def _next(self) -> list[_Item]:
        """The next batch; empty when there is nothing and nothing will come."""
        with self._changed:
            while not self._waiting and not self.stopping:
                self._changed.wait()
            until_s = self._clock.monotonic_s() + self._linger_s
            while len(self._waiting) < self._batch and not self.stopping:
                left_s = until_s - self._clock.monotonic_s()
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, LONGEST_WAIT_S))
            count = min(self._batch, len(self._waiting))
            items = [self._waiting.popleft() for _ in range(count)]
            self._changed.notify_all()
        return items

    def _send(self, items: list[_Item]) -> None:
        topic = items[0].topic
        try:
            published = self._producer.send(topic, [item.entry for item in items])
        except Exception as error:  # whatever it is: who waits for a future has no end else
            for item in items:
                item.future.set_exception(error)
            return
        for item, each in zip(items, published, strict=True):
            if each.outcome is Outcome.FULL:
                item.future.set_exception(TopicFull(topic.name, [each]))
            else:
                item.future.set_result(each)
