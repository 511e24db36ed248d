"""How tasks of the event loop ask the engine, which may have to ask a server."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from qframe.idempotency.awaited import awaited
from qframe.runtime.executors.daemon_threads import DaemonThreadExecutor
from qframe.runtime.handler.attempt import Attempt

T = TypeVar("T")

Begin = Callable[[list[Attempt]], list[Attempt]]

AT_ONCE: Final = 8


class EngineCalls(Protocol):
    """Has the engine do its part, so that the loop waits for no server."""

    async def begins(self, attempt: Attempt) -> bool:
        """Whether the handler of an attempt is to be called now."""

    async def ask(self, function: Callable[..., T], *args: object) -> T:
        """Has something done for a task."""

    def close(self) -> None:
        """Ends its threads; the loop has ended."""


class CallsInLoop:
    """For an engine that blocks nobody, or whose checker is awaited in the loop.

    Args:
        begin: the engine's.
        is_awaited: whether its checker has an async engine.
    """

    def __init__(self, begin: Begin, *, is_awaited: bool) -> None:
        self._begin = begin
        self._is_awaited = is_awaited

    async def begins(self, attempt: Attempt) -> bool:
        """Whether the handler of an attempt is to be called now."""
        return bool(await self.ask(self._begin, [attempt]))

    async def ask(self, function: Callable[..., T], *args: object) -> T:
        """Does it in the loop."""
        if not self._is_awaited:
            return function(*args)
        result: T = await awaited(function, *args)
        return result

    def close(self) -> None:
        """Has no threads."""


class CallsInThreads:
    """For an engine whose checker blocks: it is asked in a few threads.

    Args:
        begin: the engine's.
        name: the threads' names begin with it.
    """

    def __init__(self, begin: Begin, name: str) -> None:
        self._begin = begin
        self._threads = DaemonThreadExecutor(AT_ONCE, name)

    async def begins(self, attempt: Attempt) -> bool:
        """Whether the handler of an attempt is to be called now."""
        return bool(await self.ask(self._begin, [attempt]))

    async def ask(self, function: Callable[..., T], *args: object) -> T:
        """Does it in a thread, whoever cancels the task meanwhile."""
        asked = asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        while not asked.done():
            try:
                await asyncio.wait([asked])
            except CancelledError:  # a handler has cancelled its own task, and returned
                continue
        return asked.result()

    def close(self) -> None:
        """Ends its threads."""
        self._threads.shutdown(wait=False)


class CombinedCalls:
    """For an engine that settles first: tasks that begin meanwhile ask the store together.

    Args:
        begin: the engine's.
        name: the thread's name begins with it.
    """

    def __init__(self, begin: Begin, name: str) -> None:
        self._begin = begin
        self._thread = DaemonThreadExecutor(1, name)
        self._beginning: list[tuple[Attempt, Future[bool]]] = []
        self._rounds: asyncio.Task[None] | None = None

    async def begins(self, attempt: Attempt) -> bool:
        """Whether the handler of an attempt is to be called now."""
        loop = asyncio.get_running_loop()
        result: Future[bool] = loop.create_future()
        self._beginning.append((attempt, result))
        if self._rounds is None:
            self._rounds = loop.create_task(self._begin_in_rounds())
        return await result

    async def ask(self, function: Callable[..., T], *args: object) -> T:
        """Does it in the loop: only to begin asks the store."""
        return function(*args)

    def close(self) -> None:
        """Ends its thread."""
        self._thread.shutdown(wait=False)

    async def _begin_in_rounds(self) -> None:
        """Asks about what waits, and what has come meanwhile, until nothing more waits."""
        loop = asyncio.get_running_loop()
        while self._beginning:
            asked, self._beginning = self._beginning, []
            attempts = [attempt for attempt, _ in asked]
            try:
                begun = await loop.run_in_executor(self._thread, self._begin, attempts)
            except CancelledError:  # the loop ends, and with it all that waits
                for _, result in [*asked, *self._beginning]:
                    result.cancel()
                raise
            except Exception as error:  # whoever waits has last words
                for _, result in asked:
                    if not result.done():
                        result.set_exception(error)
                continue
            ready = set(begun)
            for attempt, result in asked:
                if not result.done():
                    result.set_result(attempt in ready)
        self._rounds = None
