"""An outage of the store, of what the parts of a worker say: when it began, and that it is over."""

from __future__ import annotations

import threading
from typing import Any, Final

from qframe.clock import Clock
from qframe.events import Events

QUIET_S: Final = 15.0
"""A part that cannot reach the store says so again before this is over."""


class Outage:
    """Emits `store.back` once the store replies, and no part has missed it for `QUIET_S`.

    A store that only refuses to be written replies to who reads: so one reply is not enough.

    Args:
        events: tells of parts that cannot reach the store; told when they can.
        clock: for how long.
    """

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._guard = threading.Lock()
        self._began_s: float | None = None
        self._missed_s = 0.0
        self._back_s: float | None = None

    def hear(self, name: str, _facts: dict[str, Any]) -> None:
        """Hears an event, from any thread."""
        if name != "store.unavailable":
            return
        with self._guard:
            self._missed_s, self._back_s = self._clock.monotonic_s(), None
            if self._began_s is None:
                self._began_s = self._missed_s

    def replied(self) -> None:
        """Hears that the store has replied; called again and again."""
        if self._began_s is None:
            return
        with self._guard:
            now_s, began_s = self._clock.monotonic_s(), self._began_s
            if self._back_s is None:
                self._back_s = now_s
            if began_s is None or now_s - self._missed_s < QUIET_S:
                return
            away_s, self._began_s = self._back_s - began_s, None
        self._events.emit("store.back", away_s=round(away_s, 1))
