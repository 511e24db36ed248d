"""Calls plain handlers in threads, a run of attempts at a time."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from qframe.current import HOLDER
from qframe.forks import Forks
from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Executor
from qframe.runtime.executors.run_worker import RunWorker
from qframe.runtime.executors.worker_threads import WorkerThreads
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.meter import Meter
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.tracebacks import frames_of_threads, running_in

T = TypeVar("T")

MAX_RUN: Final = 64
RUN_S: Final = 0.002
LONG_RUN: Final = 8
LONG_RUN_S: Final = 0.016
TICK_S: Final = 0.01
KEPT_S: Final = 0.0005
"""A handler that takes less on average may be called in the thread that pulls."""


class RunWork(Protocol):
    """The engine, as this executor uses it."""

    @property
    def has_long_runs(self) -> bool:
        """Whether each run costs something, so that short ones cost more."""

    def run(self, worker: RunWorker) -> None:
        """Takes attempts off `worker.run` one by one and calls the handler for each."""

    def complete(self, deliveries: list[Delivery]) -> list[Attempt]:
        """Acknowledges deliveries and frees their lanes; returns what may go on."""


class ThreadExecutor(Executor):
    """Threads that take runs, and a monitor that redistributes the runs of stuck threads.

    A run is as long as takes about 2 ms by the handler's average so far, from 1 to 64 attempts.
    Where each run costs something it is as long as takes 16 ms, and of 8 attempts at least.
    Every 10 ms the monitor takes the rest of its run, and what it has done, from each thread that
    has not moved since; and brings back attempts whose pause is over. It sleeps while nobody works.

    A thread that is too many ends between two runs. None can be cancelled: its handler sees
    `message.cancelled`.

    Where nothing else is in hand, and the handler is quick and waits for no server of qframe's,
    one attempt is handled in the thread that has pulled it, which saves the way to another. That
    counts as one of the threads: another waits if there would be too many. If the handler does not
    return within 10 to 20 ms, another thread goes on with pulling.

    Args:
        context: the consumer's.
        time_limit: told of attempts that are in hand for as long as their handlers may run.
        work: the engine.
        meter: counts runs, if somebody wants to know.
        relieve: has another thread go on with pulling; None where no attempt is handled there.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        time_limit: TimeLimit,
        work: RunWork,
        meter: Meter | None = None,
        relieve: Callable[[], None] | None = None,
    ) -> None:
        self._meter = meter
        self._time_limit = time_limit
        self._clock = context.clock
        self._work = work
        self._runs: SimpleQueue[list[Attempt] | None] = SimpleQueue()
        self._paused: list[tuple[float, int, Attempt]] = []
        self._paused_guard = threading.Lock()
        self._pauses = count()
        self._average_s: float | None = None
        self._rests = False
        # The work of the thread that pulls: `keep` takes it, and `kept` hands it out, once.
        self._relieve_puller = relieve
        self._kept: RunWorker = RunWorker()
        self._has_kept = False
        self._keeper: int | None = None  # the thread that is at it
        # It takes a place as each thread's work does: there are as many places as threads.
        self._places_guard = threading.Lock()
        self._place_left = threading.Condition(self._places_guard)
        self._taken = 0
        self._threads = WorkerThreads(
            context, make_worker=RunWorker, serve=self._serve, wake_workers=self._wake_workers,
            monitor=self._monitor,
        )  # fmt: skip
        self._awake = self._threads.awake
        Forks.add(self._begin_anew)

    @property
    def size(self) -> int:
        """How many threads there are to be."""
        return self._threads.size

    @property
    def busy(self) -> bool:
        """Whether a handler has an attempt in hand, or one waits for a thread or a pause."""
        if self._paused or self._kept.works or not self._runs.empty():
            return True
        return any(one.works for one in self._threads.workers)

    @property
    def longest_s(self) -> float:
        """How long the handler has run that runs for longest; what is quick counts as 0."""
        stuck = [one for one in self._workers() if one.attempt and one.seen == one.handled]
        now_s = self._clock.monotonic_s()
        return max([now_s - one.since_s for one in stuck], default=0.0)

    def in_hand(self) -> list[Attempt]:
        """Attempts that handlers have in hand, or will have for sure."""
        workers = self._workers()
        return [one for worker in workers for one in (*worker.asked, *worker.being_handled)]

    def stacks(self) -> list[HandlerStack]:
        """The lines that each thread runs whose handler has an attempt in hand."""
        frames = self._threads.frames()
        if (frame := frames_of_threads().get(self._keeper or 0)) is not None:
            frames.append((self._kept, frame))
        return [
            HandlerStack(id=attempt.id, lines=running_in(frame))
            for worker, frame in frames
            if (attempt := worker.attempt) is not None
        ]

    def start(self) -> None:
        """Starts the threads."""
        self._threads.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ends all threads; what one that is stuck has done before is handed over."""
        ended = self._threads.stop(timeout_s)
        if self._keeper != threading.get_ident():
            with self._places_guard:
                ended = self._place_left.wait_for(lambda: not self._kept.works, timeout_s) and ended
        for worker in self._workers():
            if done := _drain(worker.done):
                self._work.complete(done)
        return ended

    def resize(self, size: int | None) -> None:
        """Has so many threads from now on, or as many as at first."""
        self._threads.resize(size)

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Hands attempts to the threads, cut into runs."""
        length = self._run_length(len(attempts))
        put = self._runs.put
        for start in range(0, len(attempts), length):
            put(attempts[start : start + length])

    def keep(self, attempts: list[Attempt]) -> bool:
        """Keeps an attempt for the caller, if it is the only one."""
        average_s = self._average_s
        is_quick = average_s is not None and average_s < KEPT_S
        if self._relieve_puller is None or not is_quick or len(attempts) > 1 or self.busy:
            return False
        with self._places_guard:
            if self._threads.shrinking or self._taken >= self._threads.size:
                return False
            self._taken += 1
            self._kept.works = True
        self._kept.run.append(attempts[0])
        self._has_kept = True
        return True

    def kept(self) -> Callable[[], None] | None:
        """Handles what was kept; None if that is nothing."""
        return self._handle_kept if self._has_kept else None

    def pause(self, attempt: Attempt, seconds: float) -> None:
        """Hands an attempt to the threads again after a pause."""
        with self._paused_guard:
            due_s = self._clock.monotonic_s() + seconds
            heapq.heappush(self._paused, (due_s, next(self._pauses), attempt))
        self._awake.set()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that no handler has in hand, paused ones too, in order."""
        attempts: list[Attempt] = []
        ends = 0
        with suppress(Empty):
            while True:
                run = self._runs.get_nowait()
                if run is None:
                    ends += 1
                else:
                    attempts += run
        for worker in self._workers():
            attempts += _drain(worker.run)
        if others := [attempt for attempt in attempts if not wanted(attempt.delivery)]:
            self.dispatch(others)
            attempts = [attempt for attempt in attempts if wanted(attempt.delivery)]
        for _ in range(ends):
            self._runs.put(None)
        with self._paused_guard:
            paused = sorted(self._paused)
            attempts += [attempt for _, _, attempt in paused if wanted(attempt.delivery)]
            # What is sorted is a heap.
            self._paused = [each for each in paused if not wanted(each[2].delivery)]
        return attempts

    def _handle_kept(self) -> None:
        worker, self._has_kept = self._kept, False
        HOLDER.set(worker)
        self._keeper = threading.get_ident()
        if self._rests:
            self._awake.set()
        try:
            self._work_off(worker)
        finally:
            with self._places_guard:
                self._keeper = None
                worker.works = False
                self._taken -= 1
                self._place_left.notify_all()

    def _begin_anew(self) -> None:
        """Leaves what is to be handled to the parent, in the child of a fork."""
        for worker in self._workers():
            worker.run.clear()

    def _workers(self) -> list[RunWorker]:
        return [*self._threads.workers, self._kept]

    def _wake_workers(self, threads: int) -> None:
        for _ in range(threads):
            self._runs.put(None)

    def _monitor(self) -> None:
        """The monitor's rounds: only while there is work."""
        threads = self._threads
        while not threads.stopping:
            self._rests = True
            if not self.busy:  # a thread that begins to work from now on sees that it must wake it
                self._awake.wait()
            self._rests = False
            self._awake.clear()
            threads.wait_for_stop(TICK_S)
            self._relieve()
            self._resume()

    def _serve(self, worker: RunWorker) -> None:
        """Works off the next run."""
        if (run := self._runs.get()) is None:
            return
        worker.works = True
        if self._rests:
            self._awake.set()
        worker.run.extend(run)
        run.clear()  # an attempt that its handler lets go must not be kept here
        with self._places_guard:
            while self._kept.works and self._taken >= self._threads.size:
                self._place_left.wait(TICK_S)
            self._taken += 1
        try:
            self._work_off(worker)
        finally:
            with self._places_guard:
                self._taken -= 1
            worker.works = False

    def _run_length(self, attempts: int) -> int:
        if self._average_s is None:
            return 1
        least, run_s = (LONG_RUN, LONG_RUN_S) if self._work.has_long_runs else (1, RUN_S)
        length = max(least, min(MAX_RUN, int(run_s / max(self._average_s, 1e-7))))
        share = -(-attempts // self._threads.size)
        return max(1, min(length, share))

    def _work_off(self, worker: RunWorker) -> None:
        """Handles the run, then what waited behind it, until nothing more may go on."""
        while True:
            meter = self._meter
            pending = None if meter is None else meter.due(list(worker.run))
            started_s = self._clock.monotonic_s()
            before = worker.handled
            self._work.run(worker)
            if handled := worker.handled - before:
                each_s = (self._clock.monotonic_s() - started_s - worker.waited_s) / handled
                if meter is not None and pending and (called := handled - worker.passed):
                    meter.begun(pending, called)
                    meter.handled(called, each_s * handled, worker.slow)
                average_s = self._average_s
                self._average_s = each_s if average_s is None else 0.8 * average_s + 0.2 * each_s
            worker.waited_s = 0.0
            worker.passed = 0
            worker.slow.clear()
            following = self._work.complete(_drain(worker.done))
            if not following:
                return
            if self._threads.shrinking or worker is self._kept:
                self.dispatch(following)
                return
            length = self._run_length(len(following) * self._threads.size)
            worker.run.extend(following[:length])
            if len(following) > length:
                self.dispatch(following[length:])
            following.clear()

    def _relieve(self) -> None:
        now_s, limit_s = self._clock.monotonic_s(), self._time_limit.seconds
        for worker in self._workers():
            handled, attempt = worker.handled, worker.attempt
            if attempt is None:
                worker.seen = -1
                continue
            if worker.seen == handled:
                if worker is self._kept and self._relieve_puller is not None:
                    self._relieve_puller()
                if limit_s is not None and now_s - worker.since_s >= limit_s:
                    self._time_limit.look(attempt)
                if rest := _drain(worker.run):
                    self.dispatch(rest)
                if worker.done and (following := self._work.complete(_drain(worker.done))):
                    self.dispatch(following)
            else:
                worker.since_s = now_s
            worker.seen = handled

    def _resume(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._paused:
            with self._paused_guard:
                if not self._paused or self._paused[0][0] > now_s:
                    return
                attempt = heapq.heappop(self._paused)[2]
            self.dispatch([attempt])


def _drain(items: deque[T]) -> list[T]:
    """Takes all items out; others may do so at the same time, and each item goes to one."""
    taken = []
    try:
        while True:
            taken.append(items.popleft())
    except IndexError:
        return taken
