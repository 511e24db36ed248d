"""Pauses a consumer whose handler fails again and again, and finds out when it may go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from qframe.clock import Clock
from qframe.events import Events
from qframe.message import Delivery
from qframe.options.flow import Breaker
from qframe.runtime.flow.in_flight import InFlight

LOOK_EVERY_S: Final = 0.1
MOST_SOUGHT: Final = 256


class Circuit:
    """One consumer's breaker in one worker.

        closed ──failures in a row──► open ──pause──► probing ──the probe was handled──► closed
                                       ▲                 │
                                       └──it failed──────┘ (the pause doubles)

    Only what was in hand when it opened goes on, and counts for nothing more. The first message to
    begin after the pause is the probe. One is pulled for that; where it does not begin, since what
    is in hand stands before it in its lane, so are 2, 4, 8 more. A probe that ends in neither way
    (rejected, given back, lost) is followed by another one.

    Args:
        breaker: when it opens, and for how long.
        in_flight: what is in flight.
        wake: has the pull loop ask again.
        events: told when it opens, probes and closes.
        clock: for the pauses.
        where: the topic and the group, for events.

    Attributes:
        closed: whether messages flow.
        again_s: while they do not, when to look again.
    """

    def __init__(
        self,
        breaker: Breaker,
        *,
        in_flight: InFlight,
        wake: Callable[[], None],
        events: Events,
        clock: Clock,
        where: dict[str, Any],
    ) -> None:
        self._breaker = breaker
        self._in_flight = in_flight
        self._wake = wake
        self._events = events
        self._clock = clock
        self._where = where
        self._guard = threading.Lock()
        self._failures = 0
        self._pause_ms = 0
        self._until_s = 0.0
        self._sought = 0
        self._look_s = 0.0
        self._probe: Delivery | None = None
        self.closed = True
        self.again_s = LOOK_EVERY_S

    # For handlers, from any thread.

    def begins(self, delivery: Delivery) -> bool:
        """Whether a message may be handled now: none but the probe while it is not closed."""
        if self.closed:
            return True
        with self._guard:
            if self._probe is None and self._sought:
                self._probe = delivery
            return self.closed or delivery is self._probe

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Hears how a message's handling has failed."""
        if not self._breaker.counts(error):
            return
        with self._guard:
            if self.closed:
                self._failures += 1
                if self._failures < self._breaker.failures:
                    return
                self._pause_ms = self._breaker.pause_ms
            elif delivery is self._probe:
                self._failures += 1
                self._pause_ms = min(self._breaker.longest_ms, self._pause_ms * 2)
            else:
                return
            self.closed = False
            self._probe = None
            self._sought = 0
            self._until_s = self._clock.monotonic_s() + self._pause_ms / 1000
            facts = {"failures": self._failures, "pause_s": self._pause_ms / 1000}
        if self._events:
            self._events.emit("consumer.tripped", error=error, **facts, **self._where)
        self._wake()

    def succeeded(self, delivery: Delivery) -> None:
        """Hears that a message was handled."""
        if not self._failures:
            return
        with self._guard:
            if not self.closed and delivery is not self._probe:
                return
            self._failures = 0
            if self.closed:
                return
            self.closed = True
            self._probe = None
            self._sought = 0
        if self._events:
            self._events.emit("consumer.recovered", **self._where)
        self._wake()

    # For the pull loop, while it is not closed.

    @property
    def probing(self) -> bool:
        """Whether the pause is over."""
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
        if begins and self._events:
            self._events.emit("consumer.probing", **self._where)
        return sought
