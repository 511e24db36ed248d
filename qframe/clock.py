"""The only place where time is read: everything else is given a `Clock`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

# A machine that wakes must know how long it was asleep: its leases and its session passed
# meanwhile elsewhere. Linux's CLOCK_MONOTONIC stands still while it sleeps.
if sys.platform == "linux":
    _elapsed_s: Final[Callable[[], float]] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    _elapsed_s = time.monotonic


def moment(ms: int | None) -> str | None:
    """A moment in milliseconds since 1970, as a text in UTC, to the millisecond."""
    if ms is None:
        return None
    at = as_datetime(ms)
    if at is None:
        return f"{ms} ms since 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_datetime(ms: int | None) -> datetime | None:
    """A moment in milliseconds since 1970, in UTC; None if there is none before the year 10000."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


class Clock(Protocol):
    """A source of wall time and of time that only moves forward."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""

    def monotonic_s(self) -> float:
        """Seconds since some moment, never running backwards, and going on in a machine's sleep."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    monotonic_s: staticmethod[[], float] = staticmethod(_elapsed_s)


class VirtualClock:
    """A clock that stands still until it is told to move, for tests."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Virtual seconds since this clock was made."""
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Moves both times forward by `ms` milliseconds."""
        self._now_ms += ms
        self._elapsed_ms += ms


class StepTimer:
    """How long a loop has been at its present step; the loop begins steps, and any thread asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: float | None = None

    def begin(self) -> float:
        """The loop begins its next step; returns the time, by its clock."""
        self._since_s = now_s = self._clock.monotonic_s()
        return now_s

    def rest(self) -> None:
        """The loop waits for work from now on, or has ended."""
        self._since_s = None

    def busy_s(self) -> float:
        """How long the present step has taken, in seconds; 0 while the loop waits for work."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s


SYSTEM_CLOCK = SystemClock()
