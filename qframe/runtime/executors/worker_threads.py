"""Threads that may become more or fewer at any time, and one that monitors them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Generic, TypeVar

from qframe.current import HOLDER, Holder
from qframe.errors import BadOption
from qframe.options.consumer import checked_threads
from qframe.runtime.context import ConsumerContext
from qframe.service import Service, new_thread
from qframe.tracebacks import frames_of_threads

WorkerT = TypeVar("WorkerT", bound=Holder)


class WorkerThreads(Service, Generic[WorkerT]):
    """The threads of an executor, each with a worker; the service's own thread is the monitor.

    A thread that is too many ends by itself, at a moment when its worker has nothing in hand: so
    what waits is left to the others, and nothing is handed over twice.

    Args:
        context: the consumer's, whose `threads` says how many there are at first.
        make_worker: makes a thread's worker.
        serve: waits for work and does it with a worker, or returns since the threads become fewer.
        wake_workers: wakes so many threads that wait for work, to look whether they are to end.
        monitor: looks after the workers until `stopping`, in the service's thread.

    Attributes:
        awake: what the monitor waits for.
        workers: those of all threads; another list each time that one comes or goes.
        size: how many threads there are to be.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        make_worker: Callable[[], WorkerT],
        serve: Callable[[WorkerT], None],
        wake_workers: Callable[[int], None],
        monitor: Callable[[], None],
    ) -> None:
        super().__init__(context.name_of("pool"), context.fail)
        self._make_worker = make_worker
        self._serve_one = serve
        self._wake_workers = wake_workers
        self._monitor = monitor
        self._clock = context.clock
        self.awake: threading.Event = threading.Event()
        self._members_guard = threading.Lock()
        self._members: dict[WorkerT, threading.Thread] = {}
        self._numbers = count()
        self._surplus = 0
        self._started = self._ended = False
        self.workers: list[WorkerT] = []
        self.size: int = 0
        self._own_size = context.options.threads
        self._add(self._own_size)

    @property
    def shrinking(self) -> bool:
        """Whether some thread is to end, so that none may begin with more than it has in hand."""
        return self._surplus > 0 or self._ended

    def frames(self) -> list[tuple[WorkerT, FrameType]]:
        """The innermost frame that each thread runs now, with its worker."""
        with self._members_guard:
            members = list(self._members.items())
        running = frames_of_threads()
        return [
            (worker, frame)
            for worker, thread in members
            if (frame := running.get(thread.ident or 0)) is not None
        ]

    def wake(self) -> None:
        """Wakes the monitor."""
        self.awake.set()

    def run(self) -> None:
        """Monitors."""
        self._monitor()

    def wait_for_stop(self, timeout_s: float) -> None:
        """Has the monitor wait, unless it is to stop."""
        self._stopping.wait(timeout_s)

    def start(self) -> None:
        """Starts all threads, unless that was done, or they have ended."""
        with self._members_guard:
            if not self._started and not self._ended:
                self._started = True
                for thread in self._members.values():
                    thread.start()
        super().start()

    def resize(self, size: int | None) -> None:
        """Has so many threads from now on, or as many as at first; one too many ends by itself.

        Raises:
            BadOption: if no worker may have so many, or the system has no more.
        """
        size = self._own_size if size is None else checked_threads(size)
        with self._members_guard:
            if self._ended:
                return
            fewer, more = max(0, self.size - size), max(0, size - self.size)
            kept = min(self._surplus, more)
            self._surplus += fewer - kept
            self.size += kept - fewer
            self._add(more - kept)
        if fewer:
            self._wake_workers(fewer)

    def end(self) -> None:
        """Has each thread end when what its worker has in hand is done."""
        with self._members_guard:
            self._ended = True
        self._wake_workers(len(self._members))

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ends all threads and waits for them; returns whether they have ended in time."""
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        self.end()
        ended = super().stop(timeout_s)
        for thread in list(self._members.values()):
            if thread.ident is not None and thread is not threading.current_thread():
                left = None if until_s is None else max(0.0, until_s - self._clock.monotonic_s())
                thread.join(left)
                ended = ended and not thread.is_alive()
        return ended

    def _serve(self, worker: WorkerT) -> None:
        HOLDER.set(worker)
        try:
            while not self._lets_go(worker):
                self._serve_one(worker)
        except BaseException as error:  # last words: nobody else hears it
            self._on_failure(self.name, error)

    def _lets_go(self, worker: WorkerT) -> bool:
        """Whether the thread with this worker, in which there is nothing, is to end."""
        if not self.shrinking:
            return False
        with self._members_guard:
            if self._ended:
                return True
            if not self._surplus:
                return False
            self._surplus -= 1
            self.workers = [each for each in self.workers if each is not worker]
            del self._members[worker]
            return True

    def _add(self, number: int) -> None:
        for _ in range(number):
            worker = self._make_worker()
            name = f"{self.name}.{next(self._numbers)}"
            thread = self._members[worker] = new_thread(name, self._serve, worker)
            before, self.workers = self.workers, [*self.workers, worker]
            if self._started:
                try:
                    thread.start()
                except RuntimeError as error:
                    self.workers = before
                    del self._members[worker]
                    raise BadOption(
                        "threads", len(before) + 1, f"the system refuses more threads ({error})",
                        f"use {len(before)} or fewer",
                    ) from error  # fmt: skip
            self.size += 1
