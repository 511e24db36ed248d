"""The base of all batchers: the lock, the threads, and closing."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, Self, TypeVar

from qframe.batching.gathering import Channel, Gathering
from qframe.batching.settling import ItemSettler
from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.durations import refuse_bare, with_unit
from qframe.errors import BadOption, BatcherClosed, BatcherForked, NotProcessed, QueueFull
from qframe.hooks import check_result, is_async, takes
from qframe.locks import is_held_here
from qframe.service import new_thread
from qframe.topic import checked_count, checked_name, duration_ms

T = TypeVar("T")

EXIT_S: Final = 30.0
LONGEST_WAIT_S: Final = 3600.0  # a lock refuses to wait for centuries; who waits looks again


class Batcher(Generic[T]):
    """Takes items from any thread, and hands them on in batches in threads of its own.

    This is what `BatchExecutor`, `Flusher` and `MultipleQueueFlusher` can all do; make one of them.

    Args:
        name: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`; threads are `qframe.batch.<name>`.
        run: given a channel's number and a batch.
        channels: how many lines of items there are.
        batch_size: how many items a batch has at most.
        interval: how old a batch's first item becomes before the batch leaves, full or not: a text
            such as "50ms", or a number of seconds.
        queue_size: how many items may wait in a channel.
        threads: how many batches run at a time at most.
        serial: whether a channel's batches run one after the other.
        on_error: given the items of a batch that failed, and the error.
        clock: for the interval and all timeouts.

    Raises:
        BadOption: if one of these is not as described.
    """

    def __init__(
        self,
        name: str,
        *,
        run: Callable[[int, list[T]], object],
        channels: int = 1,
        batch_size: int,
        interval: float | str,
        queue_size: int,
        threads: int,
        serial: bool = False,
        on_error: Callable[[list[T], BaseException], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name: str = checked_name(name, "batcher")
        self._clock = SYSTEM_CLOCK if clock is None else clock
        checked_count("threads", threads)
        if checked_count("queue_size", queue_size) < checked_count("batch_size", batch_size):
            raise BadOption(
                "queue_size", queue_size, f"a batch of {batch_size} items could never be full",
                f"use {batch_size} or more, preferably several times as many",
            )  # fmt: skip
        self._gathering: Gathering[T] = Gathering(
            channels=checked_count("channels", channels), batch_size=batch_size,
            interval_s=duration_ms(interval, "interval") / 1000, serial=serial,
            clock=self._clock,
        )  # fmt: skip
        self._run = run
        self._queue_size = queue_size
        self._full_at = -(-queue_size // batch_size)  # with fewer batches there is room
        self._settler: ItemSettler[T] = ItemSettler(
            name,
            None if on_error is None else checked_function("on_error", on_error, "items", "error"),
        )
        self._closing = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._rooms = [threading.Condition(self._lock) for _ in range(channels)]
        self._ended = threading.Condition(self._lock)
        self._serving = threads
        self._threads = [new_thread(f"qframe.batch.{name}", self._serve) for _ in range(threads)]
        self._start()

    @property
    def waiting(self) -> int:
        """How many items wait for a thread; nearly, while others put."""
        return self._gathering.size

    @property
    def running(self) -> int:
        """How many items are in the hands of `process` now."""
        return self._gathering.running

    @property
    def closed(self) -> bool:
        """Whether it was closed, and takes nothing more."""
        return self._closing

    def put(self, item: T, *by_position: str, timeout: float | str | None = None) -> None:
        """Takes an item; where there is no room, waits for it.

        Inside `process` it does not wait, since the room may have to come from there.

        Args:
            item: what to process, of any type.
            by_position: the timeout, as a text such as "500ms".
            timeout: how long to wait for room: a text, or a number of seconds; without one, as long
                as it takes.

        Raises:
            QueueFull: if there was no room in time; the item was not taken.
            BatcherClosed: if it is closed; the item was not taken.
            BatcherForked: if it was made before a fork, in the parent.
        """
        if by_position:  # a wrapper would make a fifth of what a put costs
            [timeout] = by_position
            refuse_bare("timeout", timeout)
        timeout_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        if os.getpid() != self._pid:
            raise BatcherForked(self.name)
        channel = self._channel_of(item)
        with self._lock:
            if len(channel.batches) >= self._full_at and not self._closing:
                self._wait_for_room(channel, timeout_s)
            if self._closing:
                raise BatcherClosed(self.name)
            try:
                if self._gathering.add(channel, item):
                    self._work.notify()
            except BaseException:
                self._mend(channel)
                raise

    def add(self, item: T) -> bool:
        """Takes an item if there is room, without waiting; returns whether it was taken.

        Raises:
            BatcherClosed: if it is closed; the item was not taken.
            BatcherForked: if it was made before a fork, in the parent.
        """
        if os.getpid() != self._pid:
            raise BatcherForked(self.name)
        channel = self._channel_of(item)
        with self._lock:
            if self._closing:
                raise BatcherClosed(self.name)
            if channel.size >= self._queue_size:
                return False
            try:
                if self._gathering.add(channel, item):
                    self._work.notify()
            except BaseException:
                self._mend(channel)
                raise
        return True

    @with_unit("timeout")
    def close(self, timeout: float | str | None = None) -> list[T]:
        """Takes nothing more, processes what waits at once, and waits until that is done.

        Items that are being processed at the timeout are not returned: their batch ends as usual.
        Inside `process`, and in a signal's handler that has interrupted `put` or `add`, it does not
        wait, and the threads finish the rest. It may be called again. In the child of a fork it
        does nothing.

        Args:
            timeout: how long to wait: a text such as "30s", or by keyword a number of seconds;
                without one, as long as it takes.

        Returns:
            The items that no thread had begun with in time, each reported once, in order; the
            caller is to decide about them. Empty when all were processed, or failed.
        """
        timeout_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        if os.getpid() != self._pid:
            return []
        may_wait = threading.current_thread() not in self._threads and not is_held_here(self._work)
        with self._lock:
            self._closing = True
            self._work.notify_all()
            for room in self._rooms:
                room.notify_all()
        if not may_wait:
            return []
        if self._join(timeout_s):
            atexit.unregister(self._at_exit)
        with self._lock:
            left = self._gathering.clear()
            self._work.notify_all()
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closing else "open"
        kind = type(self).__name__
        return f"<{kind} {self.name} {state} waiting={self.waiting} running={self.running}>"

    def _channel_of(self, item: T) -> Channel[T]:  # noqa: ARG002 - a hook, for those with several
        return self._gathering.channels[0]

    def _start(self) -> None:
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            with self._lock:
                self._closing = True
                self._work.notify_all()
            raise
        # It holds on to the batcher: what was put is processed, whoever has forgotten about it.
        atexit.register(self._at_exit)

    def _mend(self, channel: Channel[T]) -> None:
        """Has threads look, after a signal struck while an item came in; the lock is held."""
        self._gathering.let_go(channel)
        self._work.notify_all()

    def _wait_for_room(self, channel: Channel[T], timeout_s: float | None) -> None:
        """Returns when there is room, or it is closed; the lock is held before and after."""
        if channel.size < self._queue_size:
            return
        if threading.current_thread() in self._threads:
            raise QueueFull(
                self.name, self._queue_size, "process called put itself, and must not wait"
            )
        room = self._rooms[channel.index]
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        try:
            while channel.size >= self._queue_size and not self._closing:
                room.wait(self._left_s(until_s))
        except BaseException:
            # The word that there is room may have been for this one: it goes to the next.
            room.notify()
            raise

    def _left_s(self, until_s: float | None) -> float:
        """How long a put may still wait; raises if it may not."""
        if until_s is None:
            return LONGEST_WAIT_S
        left_s = until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise QueueFull(self.name, self._queue_size, "no room within the timeout")
        return min(left_s, LONGEST_WAIT_S)

    def _join(self, timeout_s: float | None) -> bool:
        """Waits for the threads; returns whether all have ended in time."""
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        with self._lock:
            # Not `Thread.join` alone: an interrupt there makes Python 3.11 take a thread for ended.
            while self._serving:
                left_s = LONGEST_WAIT_S
                if until_s is not None:
                    left_s = min(left_s, until_s - self._clock.monotonic_s())
                    if left_s <= 0:
                        return False
                self._ended.wait(left_s)
        for thread in self._threads:
            thread.join()
        return True

    def _at_exit(self) -> None:
        if left := self.close(timeout=EXIT_S):
            self._settler.failed(left, NotProcessed(self.name, EXIT_S))

    # What the threads do.

    def _serve(self) -> None:
        try:
            while self._serve_batch():
                pass
        finally:
            with self._lock:
                self._serving -= 1
                self._ended.notify_all()

    def _serve_batch(self) -> bool:
        """Processes the next batch; returns whether there may be another."""
        taken = self._next()
        if taken is None:
            return False
        channel, items = taken
        try:
            self._process(channel.index, items)
        finally:
            with self._lock:
                self._gathering.done(channel, len(items))
                if self._gathering.has_more:
                    self._work.notify()
        return True

    def _next(self) -> tuple[Channel[T], list[T]] | None:
        """The next batch, when there is one; None when it is closed and nothing will come."""
        gathering = self._gathering
        with self._lock:
            while (taken := gathering.take(everything=self._closing)) is None:
                if self._closing and not gathering.size:
                    return None
                due_s = gathering.next_due_s
                left_s = None if due_s is None else due_s - self._clock.monotonic_s()
                self._work.wait(None if left_s is None else min(left_s, LONGEST_WAIT_S))
            channel, items = taken
            self._rooms[channel.index].notify(len(items))
            if self._closing:
                self._work.notify_all()  # whoever waits for the last batch to be taken may end
            elif gathering.has_more:
                self._work.notify()
        return taken

    def _process(self, index: int, items: list[T]) -> None:
        try:
            # Its own list: what it does to that loses no item.
            if (result := self._run(index, list(items))) is not None:
                check_result(result)
        except BaseException as error:  # nothing raised there ends a thread
            self._settler.failed(items, error)
        else:
            self._settler.processed(items)


def checked_function(what: str, value: Callable[..., Any], *arguments: str) -> Callable[..., Any]:
    """The value itself, if it can be called with such arguments and returns when it is done.

    Raises:
        BadOption: otherwise.
    """
    if not callable(value):
        raise BadOption(what, value, "it cannot be called", "give a function")
    if is_async(value):
        raise BadOption(
            what, value, "it is an async function, and the batcher's threads do not await",
            "give a plain function; it can call asyncio.run(...)",
        )  # fmt: skip
    if not takes(value, *arguments):
        raise BadOption(
            what, value, f"it cannot be called as {what}({', '.join(arguments)})",
            "give a function of these parameters",
        )  # fmt: skip
    return value
