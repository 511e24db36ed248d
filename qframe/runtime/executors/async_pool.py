"""The tasks that call async handlers: what `pool` is for threads."""

from __future__ import annotations

import threading
from asyncio import CancelledError, Task, TimerHandle
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from qframe.current import HOLDER
from qframe.message import Delivery, Message
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.handler.binding import raise_returned
from qframe.runtime.handler.time_limit import TimeLimit

Ask = Callable[..., Awaitable[Any]]


async def ask_here(function: Callable[..., Any], *args: Any) -> Any:
    """Has a line that does not block do its part in the loop."""
    return function(*args)


class Flight:
    """One message on its way through its handler.

    Attributes:
        message: the message.
        task: what its handler runs in.
        timer: what says that it takes too long.
        calling: whether its handler runs, and so may be cancelled.
        ended: whether its handler has ended, whatever is to be done still.
        stopped: whether it was cancelled.
    """

    __slots__ = ("calling", "ended", "message", "stopped", "task", "timer")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.task: Task[None] | None = None
        self.timer: TimerHandle | None = None
        self.calling = False
        self.ended = False
        self.stopped = False

    @property
    def messages(self) -> list[Message]:
        """The message."""
        return [self.message]

    being_handled = messages


class AsyncWork(Protocol):
    """What the pool does with messages: the line."""

    def begins(self, message: Message) -> bool:
        """Whether its handler is to be called now."""

    def is_still_mine(self, message: Message) -> bool:
        """Whether a message that begins is to come to its handler still; asked in the loop."""

    def returned(self, message: Message) -> bool:
        """Hears that a handler has returned; answers whether its message is to be acknowledged."""

    def failed(self, message: Message, error: BaseException) -> None:
        """Hears that a handler has raised."""

    def dropped(self, message: Message) -> None:
        """Hears that a handler was cancelled, since its message was not to be handled any more."""

    def through(self, deliveries: list[Delivery]) -> list[Message]:
        """Acknowledges deliveries and frees their lanes; answers what may go on."""


class AsyncPool:
    """Calls async handlers in the worker's event loop, each message in a task of its own.

    A task for each message costs 5 µs and gives it what threads give: it can be cancelled alone,
    and has context variables of its own. What ends in one turn of the loop is acknowledged in one
    list, and what waits begins in the same turn.

    All that changes `_flights` and `_done` happens in the loop's thread. What waits is guarded, so
    that it can be taken back from any thread.

    Args:
        name: `qframe.pool.<topic>.<group>`.
        limit: how many handlers run at once.
        time_limit: how long one may run.
        event_loop: where they run.
        handler: called with a message, it answers what is to be awaited.
        work: the line.
        ask: has the line do its part and waits for it, where that may block.
        on_failure: called with an error of qframe's own.
    """

    def __init__(
        self,
        *,
        name: str,
        limit: int,
        time_limit: TimeLimit,
        event_loop: EventLoop,
        handler: Callable[[Message], Awaitable[object]],
        work: AsyncWork,
        ask: Ask,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self._limit = self._own_limit = limit
        self._time_limit = time_limit
        self._event_loop = event_loop
        self._handler = handler
        self._work = work
        self._ask = ask
        self._on_failure = on_failure
        self._guard = threading.Lock()
        self._ready: deque[Message] = deque()
        self._paused: dict[Message, None] = {}
        self._flights: dict[Flight, None] = {}
        self._done: list[Delivery] = []
        self._landed = threading.Event()
        self._tending = False  # whether `_tend` will be called
        self._stopping = False

    @property
    def hands(self) -> list[Flight]:
        """What handlers have in hand."""
        return list(self._flights)

    @property
    def busy(self) -> bool:
        """Whether a handler has a message in hand, or one waits for its turn or a pause."""
        return bool(self._paused or self._ready or self._flights or self._done)

    def start(self) -> None:
        """Starts the event loop, which it shares."""
        self._event_loop.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Calls no handler any more, cancels those that run; answers whether all ended in time."""
        self._stopping = True
        if not self._flights and not self._done:
            return True
        self._landed.clear()
        self._event_loop.call(self._cancel_all)
        if not self._event_loop.is_here:
            self._landed.wait(timeout_s)
        return not self._flights

    def cancel_lost(self) -> None:
        """Cancels the handlers of messages that are marked as cancelled."""
        self._event_loop.call(self._cancel_marked)

    def dispatch(self, messages: list[Message]) -> None:
        """Has the handlers of messages called, as soon as may be."""
        with self._guard:
            self._ready.extend(messages)
        self._wake()

    def pause(self, message: Message, seconds: float) -> None:
        """Hands a message to its handler again after a pause."""
        with self._guard:
            self._paused[message] = None
        self._event_loop.call(self._begin_pause, message, seconds)

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted that no handler has in hand, paused ones too, in order."""
        with self._guard:
            waiting = [*self._ready, *self._paused]
            taken = [message for message in waiting if wanted(message.delivery)]
            if taken:
                gone = set(taken)
                self._ready = deque(each for each in self._ready if each not in gone)
                for message in taken:
                    self._paused.pop(message, None)
        return taken

    def resize(self, size: int | None) -> None:
        """Has so many handlers run at once from now on, or as at first; none is disturbed."""
        self._limit = size or self._own_limit
        if self._ready:
            self._wake()

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
            if not self._flights:
                self._landed.set()
            while len(self._flights) < self._limit and not self._stopping:
                with self._guard:
                    if not self._ready:
                        break
                    flight = Flight(self._ready[0])
                    self._flights[flight] = None
                    self._ready.popleft()
                flight.task = self._event_loop.loop.create_task(self._fly(flight))
        except BaseException as error:  # last words: nobody else hears it
            self._on_failure(self.name, error)

    def _hand_over(self) -> None:
        if self._done:
            done = list(self._done)
            if following := self._work.through(done):
                with self._guard:
                    self._ready.extend(following)
            del self._done[: len(done)]

    def _begin_pause(self, message: Message, seconds: float) -> None:
        self._event_loop.loop.call_later(seconds, self._end_pause, message)

    def _end_pause(self, message: Message) -> None:
        with self._guard:
            if message not in self._paused:  # it was taken back
                return
            self._ready.append(message)
            del self._paused[message]
        self._tend()

    async def _fly(self, flight: Flight) -> None:
        try:
            if await self._ask(self._work.begins, flight.message):
                await self._call(flight)
        except BaseException as error:  # last words: nobody else hears it
            if not (self._stopping and isinstance(error, CancelledError)):  # the loop has ended
                self._on_failure(self.name, error)
        finally:
            del self._flights[flight]
            self._wake()

    async def _call(self, flight: Flight) -> None:
        message, work = flight.message, self._work
        if not work.is_still_mine(message):
            await self._ask(work.dropped, message)
            return
        if (limit_s := self._time_limit.seconds) is not None:
            flight.timer = self._event_loop.loop.call_later(limit_s, self._overdue, flight)
        flight.calling = True
        HOLDER.set(flight)
        try:
            if (answer := await self._handler(message)) is not None:
                raise_returned(answer)
        except BaseException as error:  # a handler's SystemExit must not end the loop
            self._ended(flight)
            if isinstance(error, CancelledError) and flight.stopped and not message.overdue:
                await self._ask(work.dropped, message)
            else:
                await self._ask(work.failed, message, error)
        else:
            self._ended(flight)
            if await self._ask(work.returned, message):
                self._done.append(message.delivery)

    def _ended(self, flight: Flight) -> None:
        flight.calling = False
        flight.ended = True
        if flight.timer is not None:
            flight.timer.cancel()

    def _overdue(self, flight: Flight) -> None:
        if flight.calling and not flight.stopped:
            self._time_limit.mark(flight.message)
            self._cancel(flight)

    def _cancel_all(self) -> None:
        for flight in self._flights:
            if not flight.ended:
                flight.message.cancelled = True
                self._cancel(flight)
        self._wake()  # the last one may have landed before anybody waited for it

    def _cancel_marked(self) -> None:
        for flight in self._flights:
            if flight.message.cancelled:
                self._cancel(flight)

    def _cancel(self, flight: Flight) -> None:
        """Cancels a handler, once; what goes on after that does so on its own account."""
        if flight.calling and not flight.stopped and flight.task is not None:
            flight.stopped = True
            flight.task.cancel()
