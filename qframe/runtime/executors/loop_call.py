"""An async handler that a thread waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from qframe.current import HOLDER, Holder
from qframe.message import Message
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.handler.binding import raise_returned

BatchAwaited = Callable[[list[Message]], Awaitable[object]]


class LoopCall:
    """One call of an async handler, in the worker's event loop.

    A batch is much work for one call, so a thread that stands by costs little, and all that comes
    before and after it (claims, commits, settling) blocks that thread and not the loop.

    Args:
        event_loop: the worker's, started.
        handler: the handler.
        messages: what it is called with.
        holder: what has them in hand.
    """

    def __init__(
        self,
        event_loop: EventLoop,
        handler: BatchAwaited,
        messages: list[Message],
        holder: Holder,
    ) -> None:
        self._event_loop = event_loop
        self._handler = handler
        self._messages = messages
        self._holder = holder
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    def run(self) -> BaseException | None:
        """Runs it to its end; answers what it has raised."""
        return self._event_loop.wait_for(self._awaited())

    def cancel(self) -> None:
        """Cancels it, soon, from any thread."""
        self._cancelled = True
        self._event_loop.call(self._cancel)

    async def _awaited(self) -> BaseException | None:
        self._task = asyncio.current_task()
        if self._cancelled:
            return asyncio.CancelledError()
        HOLDER.set(self._holder)
        try:
            raise_returned(await self._handler(self._messages))
        except BaseException as error:  # a handler's SystemExit must not end the loop
            return error
        finally:
            self._task = None
        return None

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
