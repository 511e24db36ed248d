"""Noticing that a database file has changed, without asking for what is in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from qframe.clock import Clock

SHORTEST_S: Final = 0.005
LONGEST_S: Final = 0.025
GROWTH: Final = 1.25


class PolledBell:
    """Rings when the database was changed by anybody, and when it is rung.

    It looks every 5 ms at first and every 25 ms when it has waited for a while. A look is
    `PRAGMA data_version`, which reads a counter in shared memory and no page of the file.

    Args:
        version: answers a number that changes when another connection has committed.
        release: frees what `version` uses.
        clock: for the length of a wait.
    """

    def __init__(
        self, version: Callable[[], int], release: Callable[[PolledBell], None], clock: Clock
    ) -> None:
        self._version = version
        self._release = release
        self._clock = clock
        self._rung = threading.Event()
        self._closed = False
        self._seen = version()

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; answers whether it may have."""
        until_s = self._clock.monotonic_s() + timeout_s
        pause_s = SHORTEST_S
        while True:
            if self._rung.is_set():
                self._rung.clear()
                return True
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0 or self._closed:
                return False
            version = self._version()
            if version != self._seen:
                self._seen = version
                return True
            self._rung.wait(min(pause_s, left_s))
            pause_s = min(LONGEST_S, pause_s * GROWTH)

    def hints(self) -> None:
        """Nothing is known of slots: any may have something new."""

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none."""
        self._rung.set()

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
        self._closed = True
        self._rung.set()
        self._release(self)
