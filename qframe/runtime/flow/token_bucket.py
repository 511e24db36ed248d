"""A bucket of tokens, one for each time that a handler may begin."""

from __future__ import annotations

import threading
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.options.flow import RateLimit

REFILL_S: Final = 0.1
SHORTEST_WAIT_S: Final = 0.001
LONGEST_WAIT_S: Final = 60.0
ALMOST: Final = 1e-9  # what adding up fractions may lose of a token


class TokenBucket(Protocol):
    """Limits how often handlers may begin: in this worker, or in all workers of a group.

    Attributes:
        gather_s: how long messages that are to begin together wait at least, so that there is a
            token for more than one of them.
    """

    gather_s: float

    def room(self, ready: int) -> int:
        """How many more messages may be pulled while `ready` wait for only a token."""

    @property
    def tokens(self) -> int:
        """How many tokens are at hand."""

    def prefetch(self, count: int) -> None:
        """Obtains tokens for messages that were pulled and may begin now."""

    def again_s(self, ready: int) -> float:
        """How long to wait, after there was no room, until a pull is worth its call."""

    def take(self) -> float:
        """Takes a token: 0 if the handler may begin now, else after how long to try again."""


class LocalTokenBucket:
    """The bucket of one worker: `burst` tokens at most, and `rate` new ones in a second.

    Tokens are taken when handlers begin, so that in any span of `t` seconds at most
    `burst + rate * t` do, however long messages have waited for a thread.

    Args:
        limit: the rate and the burst.
        clock: whose monotonic time counts.
    """

    gather_s: float = REFILL_S

    def __init__(self, limit: RateLimit, clock: Clock) -> None:
        self._per_s = limit.per_s
        self._burst = limit.burst
        self._clock = clock
        self._guard = threading.Lock()
        self._level = float(limit.burst)
        self._at_s = clock.monotonic_s()

    def room(self, ready: int) -> int:
        """How many tokens no message waits for."""
        with self._guard:
            self._refill()
            return max(0, int(self._level + ALMOST) - ready)

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.room(0)

    def prefetch(self, count: int) -> None:
        """No-op: a local bucket holds its tokens."""

    def again_s(self, ready: int) -> float:
        """The time until there are as many tokens as 100 ms bring, so that pulls are few."""
        refill_size = max(1, int(self._per_s * REFILL_S))
        with self._guard:
            self._refill()
            missing = min(self._burst, ready + refill_size) - self._level
        if missing <= 0:  # enough, but all of them for messages that have not begun yet
            return REFILL_S
        return max(SHORTEST_WAIT_S, min(LONGEST_WAIT_S, missing / self._per_s))

    def take(self, count: int = 1) -> float:
        """Takes tokens: 0 if there were as many, else in how many seconds there will be.

        More than the bucket holds are taken when it is full, and the next ones wait for longer.
        """
        with self._guard:
            self._refill()
            wanted = min(count, self._burst)
            if self._level + ALMOST >= wanted:
                self._level -= count
                return 0.0
            return max(SHORTEST_WAIT_S, (wanted - self._level) / self._per_s)

    def _refill(self) -> None:
        now_s = self._clock.monotonic_s()
        self._level = min(self._burst, self._level + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
