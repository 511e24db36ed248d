"""Calls async handlers, each in a task of the worker's event loop."""

from __future__ import annotations

import threading
from asyncio import CancelledError, Task, TimerHandle
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Protocol

from qframe.current import HOLDER
from qframe.hooks import check_result
from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Ended, Executor
from qframe.runtime.executors.engine_calls import EngineCalls
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.service import LAST_WORDS_S


class HandlerTask:
    """One attempt on its way through its handler.

    Attributes:
        attempt: the attempt.
        task: the task that its handler runs in.
        timer: says that it takes too long.
        calling: whether its handler runs, and so may be cancelled.
        ended: whether its handler has ended, whatever is to be done still.
        stopped: whether it was cancelled.
    """

    __slots__ = ("attempt", "calling", "ended", "stopped", "task", "timer")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt: Attempt = attempt
        self.task: Task[None] | None = None
        self.timer: TimerHandle | None = None
        self.calling: bool = False
        self.ended: bool = False
        self.stopped: bool = False

    @property
    def being_handled(self) -> list[Attempt]:
        """The attempt."""
        return [self.attempt]


class LoopWork(Protocol):
    """The engine, as this executor uses it."""

    def is_mine(self, attempt: Attempt) -> bool:
        """Whether an attempt that begins is this worker's still."""

    def end(self, unit: list[Attempt], error: BaseException | None) -> Ended:
        """Ends what a handler was called with."""

    def drop(self, unit: list[Attempt]) -> None:
        """Gives back, uncounted, attempts that are not to be handled."""

    def complete(self, deliveries: list[Delivery]) -> list[Attempt]:
        """Acknowledges deliveries and frees their lanes; returns what may go on."""


class LoopExecutor(Executor):
    """Calls async handlers in the worker's event loop, each attempt in a task of its own.

    A task for each attempt costs 5 µs and gives it what threads give: it can be cancelled alone,
    and has context variables of its own. Attempts that end in one turn of the loop are acknowledged
    in one list, and what waits begins in the same turn.

    `_tasks` and `_done` change in the loop's thread alone. A lock guards waiting attempts, so that
    any thread can take them back.

    An attempt that is lost, and one that outlasts the grace of a stop, has its handler cancelled.
    Until the handler has ended its lane stays busy, and in the latter case it is not given back, so
    that nobody else begins with its key beside it.

    Args:
        context: the consumer's.
        limit: how many handlers run at once.
        time_limit: how long one may run.
        event_loop: where they run.
        handler: called with an attempt, it returns what is to be awaited.
        work: the engine.
        calls: have the engine do its part, where that may block no loop.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        limit: int,
        time_limit: TimeLimit,
        event_loop: EventLoop,
        handler: Callable[[Attempt], Awaitable[object]],
        work: LoopWork,
        calls: EngineCalls,
    ) -> None:
        self.name = context.name_of("pool")
        self.size: int = limit
        self._own_size = limit
        self._time_limit = time_limit
        self._event_loop = event_loop
        self._handler = handler
        self._work = work
        self._engine_calls = calls
        self._on_failure = context.fail
        self._guard = threading.Lock()
        self._ready: deque[Attempt] = deque()
        self._paused: dict[Attempt, None] = {}
        self._tasks: dict[HandlerTask, None] = {}
        self._done: list[Delivery] = []
        self._idle = threading.Event()
        self._tending = False  # whether `_tend` will be called
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether a handler has an attempt in hand, or one waits for its turn or a pause."""
        return bool(self._paused or self._ready or self._tasks or self._done)

    def in_hand(self) -> list[Attempt]:
        """Attempts that handlers have in hand, or will have for sure."""
        return [call.attempt for call in list(self._tasks)]

    def stacks(self) -> list[HandlerStack]:
        """The lines through which each handler awaits, or that run now; the longest call first."""
        return [
            HandlerStack(id=call.attempt.id, lines=self._event_loop.lines_of(call.task))
            for call in list(self._tasks)
            if call.calling and call.task is not None
        ]

    def start(self) -> None:
        """Starts the event loop, which it shares."""
        self._event_loop.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Calls no handler any more, cancels those that run; returns whether all ended in time."""
        self._stopping = True
        if not self._tasks and not self._done:
            return True
        self._idle.clear()
        self._event_loop.call(self._cancel_all)
        if not self._event_loop.is_here:
            self._idle.wait(timeout_s)
        return not self._tasks

    def close(self) -> None:
        """Ends the loop, which its worker's consumers share, and then the threads beside it."""
        self._event_loop.stop(LAST_WORDS_S)
        self._engine_calls.close()

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Has the handlers of attempts called, as soon as may be."""
        with self._guard:
            self._ready.extend(attempts)
        self._wake()

    def pause(self, attempt: Attempt, seconds: float) -> None:
        """Has the handler of an attempt called after a pause."""
        with self._guard:
            self._paused[attempt] = None
        self._event_loop.call(self._begin_pause, attempt, seconds)

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that no handler has in hand, paused ones too, in order."""
        with self._guard:
            waiting = [*self._ready, *self._paused]
            taken = [attempt for attempt in waiting if wanted(attempt.delivery)]
            if taken:
                gone = set(taken)
                self._ready = deque(each for each in self._ready if each not in gone)
                for attempt in taken:
                    self._paused.pop(attempt, None)
        return taken

    def resize(self, size: int | None) -> None:
        """Has so many handlers run at once from now on, or as at first; none is disturbed."""
        self.size = size or self._own_size
        if self._ready:
            self._wake()

    def cancel_lost(self) -> None:
        """Cancels the handlers of attempts that are not this worker's any more."""
        self._event_loop.call(self._cancel_marked)

    def cancel_all(self, timeout_s: float) -> None:
        """Cancels all handlers, and waits until they have ended."""
        self.stop(timeout_s)

    # In the loop's thread.

    def _wake(self) -> None:
        if not self._tending:
            self._tending = True
            self._event_loop.call(self._tend)

    def _tend(self) -> None:
        """Hands over what is done, and begins with what waits, as far as it may."""
        self._tending = False
        try:
            self._hand_over()
            if not self._tasks:
                self._idle.set()
            while len(self._tasks) < self.size and not self._stopping:
                with self._guard:
                    if not self._ready:
                        break
                    call = HandlerTask(self._ready[0])
                    self._tasks[call] = None
                    self._ready.popleft()
                # Else it would have the variables of the handler whose end has made room for it.
                call.task = self._event_loop.loop.create_task(self._lead(call), context=Context())
        except BaseException as error:  # last words: nobody else hears it
            self._on_failure(self.name, error)

    def _hand_over(self) -> None:
        if self._done:
            done = list(self._done)
            if following := self._work.complete(done):
                with self._guard:
                    self._ready.extend(following)
            del self._done[: len(done)]

    def _begin_pause(self, attempt: Attempt, seconds: float) -> None:
        self._event_loop.loop.call_later(seconds, self._end_pause, attempt)

    def _end_pause(self, attempt: Attempt) -> None:
        with self._guard:
            if attempt not in self._paused:  # it was taken back
                return
            self._ready.append(attempt)
            del self._paused[attempt]
        self._tend()

    async def _lead(self, call: HandlerTask) -> None:
        try:
            if await self._engine_calls.begins(call.attempt):
                await self._call(call)
        except BaseException as error:  # last words: nobody else hears it
            if not (self._stopping and isinstance(error, CancelledError)):  # the loop has ended
                self._on_failure(self.name, error)
        finally:
            del self._tasks[call]
            self._wake()

    async def _call(self, call: HandlerTask) -> None:
        attempt, calls, work = call.attempt, self._engine_calls, self._work
        if not work.is_mine(attempt):
            await calls.ask(work.drop, [attempt])
            return
        if (limit_s := self._time_limit.seconds) is not None:
            call.timer = self._event_loop.loop.call_later(limit_s, self._overdue, call)
        call.calling = True
        HOLDER.set(call)
        try:
            if (result := await self._handler(attempt)) is not None:
                check_result(result)
        except BaseException as error:  # a handler's SystemExit must not end the loop
            self._ended(call)
            if isinstance(error, CancelledError) and call.stopped and not attempt.overdue:
                await calls.ask(work.drop, [attempt])
            else:
                self._done += (await calls.ask(work.end, [attempt], error)).done
        else:
            self._ended(call)
            self._done += (await calls.ask(work.end, [attempt], None)).done

    def _ended(self, call: HandlerTask) -> None:
        call.calling = False
        call.ended = True
        if call.timer is not None:
            call.timer.cancel()
            if call.timer.when() <= self._event_loop.loop.time():  # it has blocked the loop
                self._time_limit.mark(call.attempt)

    def _overdue(self, call: HandlerTask) -> None:
        if call.calling and not call.stopped:
            self._time_limit.mark(call.attempt)
            self._cancel(call)

    def _cancel_all(self) -> None:
        for call in self._tasks:
            if not call.ended:
                call.attempt.cancel()
                self._cancel(call)
        self._wake()  # the last one may have ended before anybody waited for it

    def _cancel_marked(self) -> None:
        for call in self._tasks:
            if call.attempt.cancelled:
                self._cancel(call)

    def _cancel(self, call: HandlerTask) -> None:
        """Cancels a handler, once; what goes on after that does so on its own account."""
        if call.calling and not call.stopped and call.task is not None:
            call.stopped = True
            call.task.cancel()
