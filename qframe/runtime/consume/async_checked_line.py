"""A line whose handler is async and has an idempotent checker."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, Final

from qframe.idempotency.awaited import awaited
from qframe.idempotency.base import State
from qframe.message import Message
from qframe.runtime.consume.async_line import AsyncLine
from qframe.runtime.consume.checked_line import CheckedLine
from qframe.runtime.executors.daemon_threads import DaemonThreadExecutor
from qframe.runtime.policies.loop_checker import is_in_loop

ASKING_AT_ONCE: Final = 8


class AsyncCheckedLine(AsyncLine, CheckedLine):
    """Claims and ends effects so that the checker blocks no handler.

    A checker is asked in a few threads of the line's own; one of an async engine in the loop.

    Args:
        line: the arguments of `AsyncLine` and of `CheckedLine`.
    """

    def __init__(self, **line: Any) -> None:
        name = f"qframe.checks.{line['topic'].name}.{line['group']}"
        self._threads = DaemonThreadExecutor(ASKING_AT_ONCE, name)
        self._ask = awaited if is_in_loop(line["checker"]) else self._ask_in_threads
        super().__init__(**line)

    def start(self) -> None:
        """Starts the loop, in which its checker may be, and all parts."""
        self._event_loop.start()
        super().start()

    def close(self) -> None:
        """Ends its threads, which handlers may need until the loop has ended."""
        super().close()
        self._threads.shutdown(wait=False)

    async def _ask_in_threads(self, function: Callable[..., Any], *args: Any) -> Any:
        """Has something done, whoever cancels the task meanwhile."""
        asked = asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        while not asked.done():
            try:
                await asyncio.wait([asked])
            except CancelledError:  # a handler has cancelled its own task, and returned
                continue
        return asked.result()

    # For the pool, in those threads.

    def begins(self, message: Message) -> bool:
        """Claims; answers whether the handler is to be called."""
        return self._may_begin(message) and self._guarded(message, self._begin)

    def is_still_mine(self, message: Message) -> bool:
        """Whether a claimed message is this worker's still: claiming may have taken long."""
        return super().is_still_mine(message) and self._is_mine(message)

    def returned(self, message: Message) -> bool:
        """Finishes; answers whether the message is to be acknowledged."""
        return self._guarded(message, self._end_well)

    def dropped(self, message: Message) -> None:
        """Releases the claim; gives the message back uncounted, if it is this worker's still."""
        if not self._is_left_to_its_end(message):
            self._release(message)
            super().dropped(message)

    def _begin(self, message: Message) -> bool:
        if self._claimed(message):
            if not message.effect.handled:
                return True
            self._finish(message)
            self.flow.succeeded([message.delivery])
        elif message.effect.state is not State.DONE:
            return False
        # It was done before, or only its mark was missing.
        message.settled = True
        self.settler.put([message.delivery])
        self._free(message.delivery)
        return False

    def _end_well(self, message: Message) -> bool:
        if not self._may_finish(message):
            return False
        self._finish(message)
        message.settled = True
        self.flow.succeeded([message.delivery])
        return True
