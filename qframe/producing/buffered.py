"""Gathering what many threads publish, so that a call to the store carries many messages.

A message that was taken is sent, whoever forgets about it: `app.close()` and the end of the
interpreter close a producer that nobody has closed, for at most 30 seconds, and log how many
messages were not sent. In the child of a fork a producer begins anew: it holds none of its parent's
messages, which the parent sends, and starts a thread of its own with its first message.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Self, Unpack
from weakref import WeakSet

from qframe.batching.batcher import EXIT_S, LONGEST_WAIT_S
from qframe.clock import Clock
from qframe.durations import with_unit
from qframe.errors import ProducerClosed, PublishUnknown, StoreUnavailable, TopicFull
from qframe.forks import Forks
from qframe.locks import is_held_here
from qframe.outcomes import Outcome, Published
from qframe.producing.outgoing import MessageOptions, outgoing
from qframe.producing.producer import Producer
from qframe.service import Service
from qframe.stores.types import Entry
from qframe.topic import Body, Topic, checked_count, duration_ms

CAPACITY: Final = 10_000
LOGGER: Final = "qframe.buffered"
_LOSS: Final = (
    "%d messages of a buffered producer were not sent (%s); close it, and check its futures"
)


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
        # Taken by itself: a signal that ends a call in the condition's `__enter__` leaves it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._taken = self._settled = self._failed = 0
        self._error: BaseException | None = None
        Forks.add(self._begin_anew)
        # It holds on to the producer: what was taken is sent, whoever has forgotten about it.
        atexit.register(self.finish)

    def publish(
        self, topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
    ) -> Future[Published]:
        """Takes a message; its future has the outcome, or the error that `Producer.publish` raises.

        In a future's callback it does not wait for room, which has to come from there.

        Raises:
            BadInput: if anything about it is wrong; at once, and nothing was taken.
            ProducerClosed: if it is closed.
        """
        found, entry = self._producer.prepared(topic, outgoing(body, options))
        future: Future[Published] = Future()
        with self._lock:
            is_callback = threading.current_thread() is self._thread
            while len(self._waiting) >= self._capacity and not (self.stopping or is_callback):
                self._changed.wait()
            if self.stopping:
                raise ProducerClosed
            if self._thread is None:
                self.start()
            self._taken += 1
            self._waiting.append(_Item(found, entry, future))
            if len(self._waiting) in (1, self._batch):
                self._changed.notify_all()
        return future

    @with_unit("timeout_s")
    def close(self, timeout_s: float | str | None = None) -> bool:
        """Sends what waits, and takes nothing more; returns whether all was sent in time.

        In a signal's handler that has interrupted `publish` it does not wait, and returns false.

        Args:
            timeout_s: how long it waits: a text such as "30s", or by keyword a number of seconds;
                without one, as long as it takes.

        Raises:
            BadOption: if the time is none.
        """
        if timeout_s is not None:
            timeout_s = min(duration_ms(timeout_s, "timeout_s") / 1000, threading.TIMEOUT_MAX)
        if is_held_here(self._changed):
            self.ask_to_stop()
            return False
        if ended := self.stop(timeout_s):
            atexit.unregister(self.finish)
        return ended

    def finish(self) -> None:
        """Closes it for whoever has forgotten to, and logs how many messages that could not send.

        Their futures tell the same, but nobody may be there to look at them.
        """
        failed = self._failed
        ended = self.close(timeout_s=EXIT_S)
        if lost := self._failed - failed:
            self._log(_LOSS, lost, self._error)
        if not ended and (lost := self._taken - self._settled):
            self._log(_LOSS, lost, f"it took longer than {EXIT_S:g} s")

    def _begin_anew(self) -> None:
        """Holds nothing in the child of a fork; what its parent holds, its parent sends."""
        Forks.keep(self._waiting)
        self.lose_thread()
        self._waiting, self._lock = deque(), threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._taken = self._settled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Ends all waits."""
        with self._lock:
            self._changed.notify_all()

    def run(self) -> None:
        """Gathers and sends until it is closed and nothing waits."""
        while items := self._next():
            by_topic: dict[str, list[_Item]] = {}
            for item in items:
                # One whose user has cancelled it is not sent; from now on nobody can.
                if item.future.set_running_or_notify_cancel():
                    by_topic.setdefault(item.topic.name, []).append(item)
                else:
                    self._settled += 1
            for share in by_topic.values():
                self._send(share)

    def _next(self) -> list[_Item]:
        """The next batch; empty when there is nothing and nothing will come."""
        with self._lock:
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
        except BaseException as error:  # whatever it is: who waits for a future has no end else
            if len(items) > 1 and not isinstance(error, (StoreUnavailable, PublishUnknown)):
                self._send_each(items)
            else:
                self._fail(items, error)
            return
        for item, each in zip(items, published, strict=True):
            if each.outcome is Outcome.FULL:
                self._settle(item.future.set_exception, TopicFull(topic.name, [each]))
            else:
                self._settle(item.future.set_result, each)

    def _send_each(self, items: list[_Item]) -> None:
        """Sends each by itself, so that the one at fault fails alone.

        Each has its id from the first try, and by it a slot knows what it has taken already.
        """
        for item in items:
            item.entry.mark = item.entry.id
            self._send([item])

    def _fail(self, items: list[_Item], error: BaseException) -> None:
        self._failed += len(items)
        self._error = error
        for item in items:
            self._settle(item.future.set_exception, error)

    def _settle(self, settle: Callable[[Any], None], outcome: object) -> None:
        """Tells a future its outcome; what a user's callback raises harms nobody else."""
        self._settled += 1
        try:
            settle(outcome)
        except BaseException as error:
            self._log("a callback of a future raised: %s", error)

    def _log(self, what: str, *facts: object) -> None:
        logging.getLogger(LOGGER).error(what, *facts)


class Buffers:
    """The buffered producers of an app, so that it can close them when it is closed.

    Args:
        clock: for the linger.
        on_failure: called when one ends by an error of qframe's own.
    """

    def __init__(self, clock: Clock, on_failure: Callable[[str, BaseException], None]) -> None:
        self._clock = clock
        self._on_failure = on_failure
        self._open: WeakSet[BufferedProducer] = WeakSet()

    def open(
        self, producer: Producer, *, linger: float | str, batch: int, capacity: int
    ) -> BufferedProducer:
        """Makes one, and starts it.

        Raises:
            BadOption: if a number is none from 1, or `linger` is no duration.
        """
        buffered = BufferedProducer(
            producer, linger_ms=duration_ms(linger, "linger"), clock=self._clock,
            batch=checked_count("batch", batch), capacity=checked_count("capacity", capacity),
            on_failure=self._on_failure,
        )  # fmt: skip
        buffered.start()
        self._open.add(buffered)
        return buffered

    def close(self) -> None:
        """Closes all of them, and logs how many messages could not be sent."""
        for buffered in list(self._open):
            self._open.discard(buffered)
            buffered.finish()
