"""A bell in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable

from qframe.stores.types import LateReply


class EventBell:
    """Rings when it is rung, which the store does at every publish."""

    address: str = ""

    def __init__(self, release: Callable[[EventBell], None]) -> None:
        self._rung = threading.Event()
        self._release = release

    def late(self) -> list[LateReply]:
        """No pull stands in memory."""
        return []

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        rung = self._rung.wait(timeout_s)
        self._rung.clear()
        return rung

    def hints(self) -> None:
        """Nothing is known of slots: any may have something new."""

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none."""
        self._rung.set()

    def close(self) -> None:
        """Ends a wait, and is rung no more."""
        self._rung.set()
        self._release(self)
