"""The event loop of a worker: one thread in which all its async handlers run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from qframe.clock import Clock
from qframe.runtime.executors.daemon_threads import DaemonThreadExecutor
from qframe.service import Service
from qframe.tracebacks import frames_of_threads, lines_of, running_in

Result = TypeVar("Result")

LAST_WORDS_S: Final = 2.0
LOOK_EVERY_S: Final = 1.0
HELPERS: Final = 32


class EventLoop(Service):
    """A thread with an event loop, which is made when it is first started.

    `asyncio.to_thread` has threads of its own there. Tasks that handlers have begun and left behind
    are cancelled when it stops.

    Args:
        on_failure: called when it ends by an error.
        clock: measures how long it lets a call wait.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None], clock: Clock) -> None:
        super().__init__("qframe.loop", on_failure)
        self._clock = clock
        self._asked_s: float | None = None
        self._making = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._helpers: DaemonThreadExecutor | None = None
        self._endings: list[Callable[[], Awaitable[object]]] = []

    def at_end(self, ending: Callable[[], Awaitable[object]]) -> None:
        """Has something awaited as the last in the loop, such as the end of its connections."""
        self._endings.append(ending)

    def start(self) -> None:
        """Makes the loop and starts the thread, once."""
        with self._making:
            if self._loop is None and not self.stopping:
                self._helpers = DaemonThreadExecutor(HELPERS, "qframe.loop.helper")
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(self._helpers)
        super().start()

    def busy_s(self) -> float:
        """How long it has let the present call wait; each time it has replied it is asked anew.

        A handler that blocks the loop, where it should await, makes all others wait.
        """
        if not self.alive:
            return 0.0
        asked_s = self._asked_s
        if asked_s is not None:
            return self._clock.monotonic_s() - asked_s
        self._asked_s = self._clock.monotonic_s()
        self.call(self._reply)
        return 0.0

    def _reply(self) -> None:
        self._asked_s = None

    def lines_of(self, task: asyncio.Task[Any]) -> tuple[str, ...]:
        """The lines through which a task awaits, the innermost last; or those that it runs now.

        A task that runs blocks all others, so its lines are those of the loop's thread.
        """
        steps = []
        part: Any = task.get_coro()
        while (
            frame := getattr(part, "cr_frame", None) or getattr(part, "gi_frame", None)
        ) is not None:
            if getattr(part, "cr_running", False) and self._thread is not None:
                running = frames_of_threads().get(self._thread.ident or 0)
                return () if running is None else running_in(running)
            steps.append((frame, frame.f_lineno or 0))
            part = getattr(part, "cr_await", None) or getattr(part, "gi_yieldfrom", None)
        return lines_of(steps)

    @property
    def is_here(self) -> bool:
        """Whether the caller's thread is the loop's."""
        return threading.current_thread() is self._thread

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of a started one."""
        if self._loop is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._loop

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Calls a function in the loop, soon, from any thread; never, once the loop has ended."""
        if self._loop is None:
            return
        with suppress(RuntimeError):  # it is closed
            if self.is_here:
                self._loop.call_soon(function, *args)
            else:
                self._loop.call_soon_threadsafe(function, *args)

    def wait_for(self, asked: Coroutine[Any, Any, Result]) -> Result:
        """Has something awaited in the loop, and waits for its answer: from another thread.

        Raises:
            RuntimeError: if the loop has ended without an answer.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(asked, self.loop)
            # What comes while the loop ends is never looked at, and nobody tells.
            while not wait([future], LOOK_EVERY_S).done:
                if self.loop.is_closed():
                    raise RuntimeError(f"{self.name} has ended")
            return future.result()
        finally:
            asked.close()

    def wake(self) -> None:
        """Ends the loop's run."""
        self.call(self._end_run)

    def run(self) -> None:
        """Runs what it is given, until it is to stop."""
        loop = self.loop
        try:
            while not self.stopping:
                # asyncio lets these through from any task; those of handlers are caught there.
                with suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
            loop.run_until_complete(self._clear())
        finally:
            if self._helpers is not None:
                self._helpers.shutdown(wait=False, cancel_futures=True)
            loop.close()

    def _end_run(self) -> None:
        self.loop.stop()

    async def _clear(self) -> None:
        """Ends what handlers have left behind, as far as it can be ended."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LAST_WORDS_S)
        for ending in self._endings:
            with suppress(Exception):  # there is nobody left who could do better
                async with asyncio.timeout(LAST_WORDS_S):
                    await ending()
        await self.loop.shutdown_asyncgens()
