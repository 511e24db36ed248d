"""Bells: what wakes an idle pull loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from qframe.clock import SYSTEM_CLOCK
from qframe.drivers.sql_sqlite import SqliteWatch

SHORTEST_S: Final = 0.005
LONGEST_S: Final = 0.025
GROWTH: Final = 1.25


class NotifiedBell:
    """Rings when it is notified, of some slots or of any.

    Args:
        topics: the numbers of the topics for which it rings.
        roster: the topic's number and the group of the roster for which it rings instead.
        release: called when it is closed.
    """

    def __init__(
        self,
        *,
        topics: Collection[int] = (),
        roster: tuple[int, str] | None = None,
        release: Callable[[NotifiedBell], None],
    ) -> None:
        self.topics: frozenset[int] = frozenset(topics)
        self.roster: tuple[int, str] | None = roster
        self._release = release
        self._rung = threading.Event()
        self._guard = threading.Lock()
        self._slots: set[int] = set()
        self._any = False
        self._closed = False

    def notify(self, slots: frozenset[int] | None) -> None:
        """Rings for these slots; None where it may be any."""
        with self._guard:
            if slots is None:
                self._any = True
            else:
                self._slots |= slots
        self._rung.set()

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        rung = self._rung.wait(timeout_s)
        if rung and not self._closed:
            self._rung.clear()
        return rung

    def hints(self) -> frozenset[int] | None:
        """The slots for which it has rung since this was asked; None where it may be any."""
        with self._guard:
            slots = None if self._any else frozenset(self._slots)
            self._any = False
            self._slots.clear()
        return slots

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none."""
        self.notify(None)

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
        self._closed = True
        self._rung.set()
        self._release(self)


class WatchedFileBell(NotifiedBell):
    """Rings as well when a file was changed by anybody, without asking for what is in it.

    It looks every 5 ms at first and every 25 ms when it has waited for a while. A look is
    `PRAGMA data_version`, which reads a counter in shared memory and no page of the file.

    Args:
        watch: says whether another connection has committed.
        release: called when it is closed.
    """

    def __init__(self, watch: SqliteWatch, release: Callable[[NotifiedBell], None]) -> None:
        super().__init__(release=release)
        self._watch = watch
        self._seen = watch.version()

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        until_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        pause_s = SHORTEST_S
        while True:
            if self._rung.is_set():
                self._rung.clear()
                return True
            left_s = until_s - SYSTEM_CLOCK.monotonic_s()
            if left_s <= 0 or self._closed:
                return False
            version = self._watch.version()
            if version != self._seen:
                self._seen = version
                return True
            self._rung.wait(min(pause_s, left_s))
            pause_s = min(LONGEST_S, pause_s * GROWTH)

    def hints(self) -> None:
        """Nothing is known of slots: any may have something new."""

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
        super().close()
        self._watch.release()
