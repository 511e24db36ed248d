"""A call of an async handler of batches, for which a thread waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from qframe.current import HOLDER, Holder
from qframe.hooks import check_result
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.handler.attempt import Attempt


class BatchCall:
    """One call of a handler in the worker's event loop.

    Args:
        event_loop: the worker's, started.
        handler: the handler.
        attempts: what it is called with.
        holder: what has them in hand.
    """

    def __init__(
        self,
        event_loop: EventLoop,
        handler: Callable[[list[Attempt]], Awaitable[object]],
        attempts: list[Attempt],
        holder: Holder,
    ) -> None:
        self._event_loop = event_loop
        self._handler = handler
        self._attempts = attempts
        self._holder = holder
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    def wait(self) -> BaseException | None:
        """Calls it and waits for its end, in any thread but the loop's; returns its error."""
        return self._event_loop.wait_for(self._call())

    def lines(self) -> tuple[str, ...]:
        """The lines through which its handler awaits, or that run now."""
        task = self._task
        return () if task is None else self._event_loop.lines_of(task)

    def cancel(self) -> None:
        """Cancels it once, soon, from any thread."""
        if not self._cancelled:
            self._cancelled = True
            self._event_loop.call(self._cancel)

    def was_cancelled(self, error: BaseException | None) -> bool:
        """Whether its error says that it was cancelled here."""
        return self._cancelled and isinstance(error, asyncio.CancelledError)

    async def _call(self) -> BaseException | None:
        self._task = asyncio.current_task()
        if self._cancelled:
            return asyncio.CancelledError()
        HOLDER.set(self._holder)
        try:
            check_result(await self._handler(self._attempts))
        except BaseException as error:  # a handler's SystemExit must not end the loop
            return error
        finally:
            self._task = None
        return None

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
