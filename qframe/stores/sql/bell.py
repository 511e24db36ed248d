"""Bells: what wakes an idle pull loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from qframe.clock import SYSTEM_CLOCK
from qframe.drivers.sql_backend import FileWatch
from qframe.forks import Forks
from qframe.poller import new_poller
from qframe.stores.types import LateReply

SHORTEST_S: Final = 0.005
LONGEST_S: Final = 0.025
LONGEST_TOLD_S: Final = 0.25
SOON_S: Final = 0.0003
GROWTH: Final = 1.25


class NotifiedBell:
    """Rings when it is notified, of some slots or of any.

    Args:
        topics: the numbers of the topics for which it rings.
        space: the topic's number, the space and the group for whose documents it rings instead.
        release: called when it is closed.
    """

    address: str = ""

    def __init__(
        self,
        *,
        topics: Collection[int] = (),
        space: tuple[int, str, str] | None = None,
        release: Callable[[NotifiedBell], None],
    ) -> None:
        self.topics: frozenset[int] = frozenset(topics)
        self.space: tuple[int, str, str] | None = space
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

    def late(self) -> list[LateReply]:
        """No pull stands in a database."""
        return []

    def has_lost(self) -> bool:
        """There are no replies."""
        return False

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        rung = self._rung.wait(timeout_s)
        if rung:
            self._rung.clear()
        if self._closed:  # asked last: it may have been closed just before it was cleared
            self._rung.set()
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

    A look is `PRAGMA data_version`, which reads a counter in shared memory and no page of the file.
    It looks every 5 ms at first, and less and less often: down to every 25 ms, or to every 250 ms
    where the system tells it of writes. A write is told before its commit is complete, which no
    event says: from then on it looks every 0.3 ms at first, and heeds no more writes until it has
    come to 5 ms again.

    Args:
        watch: says whether another connection has committed.
        release: called when it is closed.
    """

    def __init__(self, watch: FileWatch, release: Callable[[NotifiedBell], None]) -> None:
        super().__init__(release=release)
        self._watch = watch
        self._changes = watch.changes()
        self._longest_s = LONGEST_S if self._changes is None else LONGEST_TOLD_S
        self._by_hand = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if self._changes else -1
        self._waiting = threading.Lock()
        self._seen = watch.version()
        Forks.add(self._begin_anew)

    def notify(self, slots: frozenset[int] | None) -> None:
        """Rings; from any thread."""
        super().notify(slots)
        with self._guard:
            if self._by_hand >= 0:
                os.eventfd_write(self._by_hand, 1)

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        until_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        pause_s = SHORTEST_S
        with self._waiting:
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
                if self._is_told(min(pause_s, left_s), heeds=pause_s >= SHORTEST_S):
                    pause_s = SOON_S
                else:
                    pause_s = min(self._longest_s, pause_s * GROWTH)

    def _is_told(self, timeout_s: float, *, heeds: bool) -> bool:
        """Waits to be rung, or, if it heeds them, for writes; returns whether there were some."""
        if self._changes is None or not heeds:
            self._rung.wait(timeout_s)
            return False
        poller = new_poller(self._by_hand, self._changes.descriptor)
        ready = [descriptor for descriptor, _ in poller.poll(timeout_s * 1000)]
        if self._by_hand in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._by_hand)
        return self._changes.descriptor in ready and self._changes.seen()

    def hints(self) -> None:
        """Nothing is known of slots: any may have something new."""

    def _begin_anew(self) -> None:
        """Nobody waits in the child of a fork, whoever waited in its parent."""
        self._waiting, self._guard = threading.Lock(), threading.Lock()

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
        was_closed = self._closed
        self._closed = True
        self.ring()
        with self._waiting, self._guard:
            by_hand, self._by_hand = self._by_hand, -1
        if not was_closed and self._changes is not None:
            os.close(by_hand)
            self._changes.close()
        super().close()
        self._watch.release()
