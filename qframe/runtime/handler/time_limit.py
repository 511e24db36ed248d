"""Limits how long one handler may run."""

from __future__ import annotations

from asyncio import CancelledError

from qframe.errors import HandlerTimeout
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.binding import Handler


class TimeLimit:
    """Marks messages whose handlers run for too long.

    An async handler is cancelled then. A thread cannot be stopped safely, so a plain handler runs
    on, its lane stays busy, and it sees `message.cancelled`. If it simply returns then, its work
    may be incomplete, so the message is retried. An error that it raises, or an explicit `ack`,
    counts as usual.

    Args:
        context: the consumer's.
        is_measured: whether only the time inside the handler counts, not all since the start.

    Attributes:
        seconds: the limit; None for no limit.
    """

    def __init__(self, context: ConsumerContext, *, is_measured: bool = False) -> None:
        self.seconds: float | None = context.options.timeout
        self._context = context
        self._clock = context.clock
        self._until_s: dict[Attempt, float] = {}
        self._is_measured = is_measured

    def measured(self, handler: Handler) -> Handler:
        """A handler whose calls are measured, where nothing else counts."""
        seconds = self.seconds
        if seconds is None or not self._is_measured:
            return handler

        def call(attempt: Attempt) -> object:
            self._until_s[attempt] = self._clock.monotonic_s() + seconds
            try:
                return handler(attempt)
            finally:
                del self._until_s[attempt]

        return call

    def look(self, message: Attempt) -> None:
        """Marks a message that has run for too long, if its handler did."""
        if self._is_measured:
            until_s = self._until_s.get(message)
            if until_s is None or self._clock.monotonic_s() < until_s:
                return
        self.mark(message)

    def mark(self, message: Attempt) -> None:
        """Marks a message as overdue, once."""
        if message.expire():
            self._context.emit(
                "delivery.overdue", id=message.id, key=message.key, attempt=message.attempt,
                timeout_s=self.seconds,
            )  # fmt: skip

    def problem_of(self, unit: list[Attempt], error: BaseException | None) -> HandlerTimeout | None:
        """The error of a call that was late, unless it has ended its messages by itself."""
        was_cancelled = isinstance(error, CancelledError)
        for attempt in unit if self.seconds is not None else ():
            if attempt.overdue and (
                (error is None and not attempt.settled) or (was_cancelled and attempt.is_open)
            ):
                return self.error_of(attempt)
        return None

    def error_of(self, message: Attempt) -> HandlerTimeout:
        """The error of a marked message."""
        return HandlerTimeout(message.id, self.seconds or 0.0)
