"""A line whose handler is async: it runs in the worker's event loop instead of threads."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from qframe.message import Delivery, Message
from qframe.options.consumer import AWAITED_AT_ONCE
from qframe.outcomes import Verdict
from qframe.runtime.consume.line import Line
from qframe.runtime.executors.async_pool import Ask, AsyncPool, ask_here
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.handler.retry_policy import Ending

LAST_WORDS_S: Final = 5.0


class AsyncLine(Line):
    """A line that is the `AsyncWork` of its pool.

    A message that is lost, and one that outlasts the grace of a stop, has its handler cancelled.
    Until the handler has ended its lane stays busy, and in the latter case the message is not given
    back, so that nobody else begins with its key beside it.

    Args:
        event_loop: the worker's.
        line: the arguments of `Line`.
    """

    pool: AsyncPool
    _ask: Ask = staticmethod(ask_here)

    def __init__(self, *, event_loop: EventLoop, **line: Any) -> None:
        self._event_loop = event_loop
        super().__init__(**line)

    def _make_pool(self, on_failure: Callable[[str, BaseException], None]) -> AsyncPool:
        options = self._options
        limit = options.threads if "threads" in options.model_fields_set else AWAITED_AT_ONCE
        return AsyncPool(
            name=f"qframe.pool.{self.topic}.{self.group}", limit=limit,
            time_limit=self._time_limit, event_loop=self._event_loop,
            handler=self._awaited, work=self, ask=self._ask, on_failure=on_failure,
        )  # fmt: skip

    # For the pool.

    def _awaited(self, message: Message) -> Awaitable[object]:
        return cast("Awaitable[object]", self.flow.handler(message))

    def begins(self, message: Message) -> bool:
        """Whether a message is this worker's still; if not, lets it go."""
        return self._may_begin(message)

    def is_still_mine(self, message: Message) -> bool:
        """Whether a message was not lost while the line made up its mind."""
        return not message.cancelled

    def returned(self, message: Message) -> bool:
        """Whether a message is to be acknowledged, now that its handler has returned."""
        if message.auto_ack and not message.settled and not message.overdue:
            message.settled = True
            self.flow.succeeded([message.delivery])
            return True
        self._returned(message)
        return False

    def failed(self, message: Message, error: BaseException) -> None:
        """Sends a message to its retry, or to dead."""
        if isinstance(error, CancelledError) and message.overdue:
            error = self._time_limit.error_of(message)
        self._failed(message, error)

    def dropped(self, message: Message) -> None:
        """Gives a message back uncounted, if it is this worker's still."""
        if not message.settled:
            message.settled = True
            if message.delivery in self.in_flight:
                self._send(Ending(message.delivery, Verdict.RELEASE))
        self._free(message.delivery)

    # For `shutdown`.

    def abandon(self) -> None:
        """Cancels handlers; gives back, uncounted, what they have in hand, once they have ended."""
        self.pool.stop(LAST_WORDS_S)
        self.give_back()
        super().abandon()

    def close(self) -> None:
        """Ends the loop, which its worker's lines share."""
        super().close()
        self._event_loop.stop(LAST_WORDS_S)

    # What the store or the coordinator tells.

    def _lose(self, deliveries: list[Delivery]) -> None:
        super()._lose(deliveries)
        self.pool.cancel_lost()
