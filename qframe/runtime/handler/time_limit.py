"""How long one handler may run, and what becomes of a message whose handler ran longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qframe.clock import Clock
from qframe.errors import HandlerTimeout
from qframe.events import Events
from qframe.message import Message


class TimeLimit:
    """Marks messages whose handlers run for too long.

    An async handler is cancelled then. A thread cannot be stopped safely, so a plain handler runs
    on, its lane with it, and sees `message.cancelled`. If it simply returns then, nobody knows
    whether its work is done, so the message is tried again. What it raises, or an explicit `ack`,
    counts as ever.

    Args:
        seconds: the limit; None where there is none.
        topic: the topic's name.
        group: the group.
        events: told of handlers that run too long.
        clock: measures handlers whose line does more than to call them.
    """

    def __init__(
        self, seconds: float | None, *, topic: str, group: str, events: Events, clock: Clock
    ) -> None:
        self.seconds = seconds
        self._topic = topic
        self._group = group
        self._events = events
        self._clock = clock
        self._until_s: dict[Message, float] = {}
        self.is_measured = False
        """Whether only what `running` embraces counts, and not all of a message's time in hand."""

    @contextmanager
    def running(self, message: Message) -> Iterator[None]:
        """Embraces the call of a handler, where its line does more than to call it."""
        if self.seconds is None:
            yield
            return
        self._until_s[message] = self._clock.monotonic_s() + self.seconds
        try:
            yield
        finally:
            del self._until_s[message]

    def look(self, message: Message) -> None:
        """Marks a message that was in hand for too long, if that was its handler."""
        if self.is_measured:
            until_s = self._until_s.get(message)
            if until_s is None or self._clock.monotonic_s() < until_s:
                return
        self.mark(message)

    def mark(self, message: Message) -> None:
        """Marks a message, once, and tells of it."""
        if message.overdue:
            return
        message.overdue = message.cancelled = True
        if self._events:
            self._events.emit(
                "delivery.overdue", topic=self._topic, group=self._group, id=message.id,
                key=message.key, attempt=message.attempt, timeout_s=self.seconds,
            )  # fmt: skip

    def error_of(self, message: Message) -> HandlerTimeout:
        """What a message that is marked ends with."""
        return HandlerTimeout(message.id, self.seconds or 0.0)
