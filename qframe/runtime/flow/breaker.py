"""Pauses a consumer whose handler fails again and again, until a probe succeeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from qframe.message import Delivery
from qframe.options.flow import Breaker
from qframe.runtime.context import ConsumerContext
from qframe.runtime.flow.in_flight import InFlight

LOOK_EVERY_S: Final = 0.1
MOST_SOUGHT: Final = 256


class CircuitBreaker:
    """One consumer's circuit breaker in one worker.

        closed ──failures in a row──► open ──pause──► probing ──the probe was handled──► closed
                                       ▲                 │
                                       └──it failed──────┘ (the pause doubles)

    Messages that were in a handler when it opened go on, and their outcome does not count. The
    first message to begin after the pause is the probe. One is pulled for that; if it does not
    begin, since another message is before it in its lane, 2, 4, 8 more are pulled. A probe that
    ends in neither way (rejected, given back, lost) is followed by another one.

    Args:
        context: the consumer's.
        breaker: when it opens, and for how long.
        in_flight: what is in flight.
        wake: makes the pull loop ask again.

    Attributes:
        failures: how many handlers in a row have failed.
        closed: whether messages flow.
        again_s: while they do not, when to look again.
    """

    def __init__(
        self,
        context: ConsumerContext,
        breaker: Breaker,
        *,
        in_flight: InFlight,
        wake: Callable[[], None],
    ) -> None:
        self._context = context
        self._breaker = breaker
        self._in_flight = in_flight
        self._wake = wake
        self._clock = context.clock
        self._guard = threading.Lock()
        self.failures: int = 0
        self._pause_ms = 0
        self._until_s = 0.0
        self._sought = 0
        self._look_s = 0.0
        self._probe: Delivery | None = None
        self.closed: bool = True
        self.again_s: float = LOOK_EVERY_S

    # For those who ask, from any thread.

    @property
    def pause_ms(self) -> int | None:
        """How long it pauses still, 0 once a probe is wanted; None while it is closed."""
        if self.closed:
            return None
        return max(0, round((self._until_s - self._clock.monotonic_s()) * 1000))

    # For handlers, from any thread.

    def begins(self, delivery: Delivery) -> bool:
        """Whether a message may be handled now: only the probe while the breaker is not closed."""
        if self.closed:
            return True
        with self._guard:
            if self._probe is None and self._sought:
                self._probe = delivery
            return self.closed or delivery is self._probe

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Notes the error of a handler."""
        if not self._breaker.counts(error):
            return
        with self._guard:
            if self.closed:
                self.failures += 1
                if self.failures < self._breaker.failures:
                    return
                self._pause_ms = self._breaker.pause_ms
            elif delivery is self._probe:
                self.failures += 1
                self._pause_ms = min(self._breaker.longest_ms, self._pause_ms * 2)
            else:
                return
            self.closed = False
            self._probe = None
            self._sought = 0
            self._until_s = self._clock.monotonic_s() + self._pause_ms / 1000
            facts = {"failures": self.failures, "pause_s": self._pause_ms / 1000}
        self._context.emit("consumer.tripped", error=error, **facts)
        self._wake()

    def succeeded(self, delivery: Delivery) -> None:
        """Notes that a message was handled."""
        if not self.failures:
            return
        with self._guard:
            if not self.closed and delivery is not self._probe:
                return
            self.failures = 0
            if self.closed:
                return
            self.closed = True
            self._probe = None
            self._sought = 0
        self._context.emit("consumer.recovered")
        self._wake()

    # For the pull loop, while it is not closed.

    @property
    def probing(self) -> bool:
        """Whether the pause is over and a probe is wanted."""
        return self._sought > 0

    def sought(self) -> int:
        """How many messages to pull now, so that one of them can be the probe."""
        now_s = self._clock.monotonic_s()
        with self._guard:
            if self._probe is not None and self._probe not in self._in_flight:
                self._probe = None
                self._sought = 1
                self._look_s = now_s
            due_s = self._look_s if self._sought else self._until_s
            self.again_s = due_s - now_s if due_s > now_s else LOOK_EVERY_S
            if self.closed or due_s > now_s or self._probe is not None:
                return 0
            begins = not self._sought
            sought, self._sought = max(1, self._sought), min(MOST_SOUGHT, max(1, self._sought) * 2)
            self._look_s = now_s + LOOK_EVERY_S
        if begins:
            self._context.emit("consumer.probing")
        return sought
