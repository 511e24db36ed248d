"""Calls handlers of batches in threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, cast

from qframe.clock import Clock
from qframe.hooks import check_result
from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.batch_call import BatchCall
from qframe.runtime.executors.batch_worker import BatchWorker
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.executors.worker_threads import WorkerThreads
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.batches import Batches
from qframe.service import LAST_WORDS_S

TICK_S: Final = 0.01

PlainHandler = Callable[[list[Attempt]], object]
AsyncHandler = Callable[[list[Attempt]], Awaitable[object]]


class BatchWork(Protocol):
    """The engine, as this executor uses it."""

    def begin(self, unit: list[Attempt]) -> list[Attempt]:
        """Returns those attempts whose handler is to be called now."""

    def end_batch(
        self, unit: list[Attempt], error: BaseException | None, *, is_cancelled: bool
    ) -> list[list[Attempt]]:
        """Ends what a handler was called with; returns in which parts the rest is tried again."""

    def drop(self, unit: list[Attempt]) -> None:
        """Gives back, uncounted, attempts that are not to be handled."""


class BatchCaller:
    """Calls a handler for a batch, and for parts of it where that fails.

    An async handler is called in the event loop, and a thread waits for it: a batch is much work
    for one call, and all that comes before and after it blocks that thread and not the loop.

    Args:
        handler: called with a batch; one to be awaited where there is an event loop.
        event_loop: the worker's, where the handler is async.
        time_limit: how long a handler may run.
        clock: for that.
        work: the engine.
        on_limited: called when a handler begins whose call has a limit.
    """

    def __init__(
        self,
        handler: PlainHandler | AsyncHandler,
        event_loop: EventLoop | None,
        *,
        time_limit: TimeLimit,
        clock: Clock,
        work: BatchWork,
        on_limited: Callable[[], None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._event_loop = event_loop
        self._time_limit = time_limit
        self._clock = clock
        self._work = work
        self._on_limited = on_limited

    def work_off(self, worker: BatchWorker) -> None:
        """Calls the handler for a batch, and for parts of it where that fails."""
        while worker.next_part():
            if worker.given_up:
                self._work.drop(worker.part)
                continue
            if len(parts := _apart(worker.part)) > 1:
                worker.put(parts)
                continue
            here = self._work.begin(worker.part)
            worker.part = here  # not before, so that the consumer is not taken for quiet
            if here:
                worker.put(self._handle(worker, here))

    def _handle(self, worker: BatchWorker, unit: list[Attempt]) -> list[list[Attempt]]:
        call: BatchCall | None = None
        given = list(unit)  # the user's own to change
        if self._event_loop is not None:
            call = BatchCall(self._event_loop, cast("AsyncHandler", self._handler), given, worker)
        limit_s = self._time_limit.seconds
        worker.begin(None if limit_s is None else self._clock.monotonic_s() + limit_s, call)
        if limit_s is not None:
            self._on_limited()
        error = self._call_here(given) if call is None else call.wait()
        worker.end()
        try:
            if worker.given_up:
                self._work.drop(unit)
                return []
            is_cancelled = call is not None and call.was_cancelled(error)
            return self._work.end_batch(unit, error, is_cancelled=is_cancelled)
        finally:
            del error  # its traceback leads here, and would keep all attempts in a circle

    def _call_here(self, given: list[Attempt]) -> BaseException | None:
        """Calls a plain handler; returns what it has raised."""
        try:
            if (result := self._handler(given)) is not None:
                check_result(result)
        except BaseException as error:  # a handler's SystemExit must not end a thread
            return error
        return None


class BatchThreadExecutor:
    """Threads that take batches, and a monitor.

    The monitor brings back attempts whose pause is over, and marks those whose handlers run for
    too long. A thread that is too many ends after its batch.

    Args:
        context: the consumer's.
        batches: where they are gathered.
        handler, event_loop, time_limit, work: as of `BatchCaller`.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        batches: Batches,
        handler: PlainHandler | AsyncHandler,
        event_loop: EventLoop | None,
        time_limit: TimeLimit,
        work: BatchWork,
    ) -> None:
        self._batches = batches
        self._event_loop = event_loop
        self._time_limit = time_limit
        self._clock = context.clock
        self._threads = WorkerThreads(
            context, make_worker=BatchWorker, serve=self._serve,
            wake_workers=lambda _: batches.wake_all(), monitor=self._monitor,
        )  # fmt: skip
        self._awake = self._threads.awake
        self._caller = BatchCaller(
            handler, event_loop, time_limit=time_limit, clock=context.clock, work=work,
            on_limited=self._awake.set,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """How many threads there are to be."""
        return self._threads.size

    @property
    def busy(self) -> bool:
        """Whether a handler has an attempt in hand, or one waits for others, a thread, a pause."""
        return len(self._batches) > 0 or any(one.attempts for one in self._threads.workers)

    def in_hand(self) -> list[Attempt]:
        """Attempts that handlers have in hand, or will have; some may be settled."""
        return [attempt for worker in self._threads.workers for attempt in worker.attempts]

    def stacks(self) -> list[HandlerStack]:
        """The lines that each thread runs whose handler has a batch in hand."""
        found = [worker.stack(frame) for worker, frame in self._threads.frames()]
        return [stack for stack in found if stack is not None]

    def start(self) -> None:
        """Starts the threads, and the loop of an async handler."""
        if self._event_loop is not None:
            self._event_loop.start()
        self._threads.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ends all threads."""
        return self._threads.stop(timeout_s)

    def close(self) -> None:
        """Ends the loop, which its worker's consumers share."""
        if self._event_loop is not None:
            self._event_loop.stop(LAST_WORDS_S)

    def resize(self, size: int | None) -> None:
        """Has so many threads from now on, or as many as at first."""
        self._threads.resize(size)

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Gathers attempts for the handler."""
        self._batches.add(attempts)

    def pause(self, attempt: Attempt, seconds: float) -> None:
        """Gathers an attempt again after a pause, or once those before it in its lane have been."""
        self._batches.pause(attempt, self._clock.monotonic_s() + seconds)
        self._awake.set()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that no handler has in hand, paused ones too, in order.

        But one that stands before one that is in hand stays, until that is through or set aside.
        """
        workers = self._threads.workers
        parts = [attempt for worker in workers for attempt in worker.withdraw(wanted)]
        in_hand = [one.delivery for one in self.in_hand() if not one.settled]
        return self._batches.withdraw(wanted, in_hand) + parts

    def flush(self) -> None:
        """Hands out what was gathered, unless what is in hand may make room for more."""
        if not any(worker.attempts for worker in self._threads.workers):
            self._batches.close_open()

    def cancel_lost(self) -> None:
        """Cancels calls of an async handler of which nothing is this worker's any more."""
        for worker in self._threads.workers:
            worker.cancel_lost()

    def cancel_all(self, timeout_s: float) -> None:
        """Has threads end; cancels calls of an async handler, and waits until they have ended."""
        self._threads.end()
        if self._event_loop is None:
            return
        until_s = self._clock.monotonic_s() + timeout_s
        for worker in self._threads.workers:
            worker.give_up()
        for worker in self._threads.workers:
            worker.free.wait(max(0.0, until_s - self._clock.monotonic_s()))

    # In its threads.

    def _serve(self, worker: BatchWorker) -> None:
        if self._batches.take(worker, unless=lambda: self._threads.shrinking):
            self._caller.work_off(worker)

    def _monitor(self) -> None:
        """The monitor's rounds: when there is something to bring back, or to look at."""
        while not self._threads.stopping:
            times: Iterable[float | None] = (self._batches.resume(), *self._looks())
            due = [each_s for each_s in times if each_s is not None]
            wait_s = max(TICK_S, min(due) - self._clock.monotonic_s()) if due else None
            self._awake.wait(wait_s)
            self._awake.clear()

    def _looks(self) -> list[float | None]:
        now_s, mark = self._clock.monotonic_s(), self._time_limit.mark
        return [worker.look(now_s, mark) for worker in self._threads.workers]


def _apart(unit: list[Attempt]) -> list[list[Attempt]]:
    """Cuts a batch, in its order, so that each suspect is alone."""
    if not any(attempt.is_suspect for attempt in unit):
        return [unit]
    parts: list[list[Attempt]] = []
    joins = False
    for attempt in unit:
        if joins and not attempt.is_suspect:
            parts[-1].append(attempt)
        else:
            parts.append([attempt])
        joins = not attempt.is_suspect
    return parts
