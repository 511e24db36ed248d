"""The watchdog of a worker: what stands still is given new connections, then ends the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.errors import WorkerFailed
from qframe.events import Events

ASLEEP_S: Final = 10.0
DOUBTFUL_S: Final = 20.0
STALLED_S: Final = 60.0


class Watched(Protocol):
    """A part that is at one thing after the other, none of which takes long."""

    @property
    def name(self) -> str:
        """Its thread's name."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""

    def busy_s(self) -> float:
        """How long it has been at one thing other than waiting for work."""

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""


class Watchdog:
    """Looks after the parts without which a worker seems to live and does nothing.

    One that has ended is not its concern: its last words have ended the worker. Nor is time in
    which the whole process stood still, as in a machine that was paused: nobody could get on.

    Args:
        parts: what is watched.
        on_stalled: called with the name of one that stands still for too long, and the error.
        events: told of connections that are given up.
        clock: the clock.
    """

    def __init__(
        self,
        parts: Sequence[Watched],
        *,
        on_stalled: Callable[[str, WorkerFailed], None],
        events: Events,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._on_stalled = on_stalled
        self._events = events
        self._clock = clock
        self._looked_s = self._awake_since_s = clock.monotonic_s()
        self._doubted: set[str] = set()

    def look(self) -> None:
        """Looks once; to be called again and again."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > ASLEEP_S:
            self._awake_since_s = now_s
        self._looked_s = now_s
        for part in self._parts:
            self._look_at(part, now_s - self._awake_since_s)

    def _look_at(self, part: Watched, awake_s: float) -> None:
        busy_s = min(part.busy_s(), awake_s) if part.alive else 0.0
        if busy_s > STALLED_S:
            self._on_stalled(part.name, WorkerFailed(part.name, "it is stuck"))
        elif busy_s > DOUBTFUL_S and part.name not in self._doubted:
            self._doubted.add(part.name)
            if self._events:
                self._events.emit("store.reconnecting", part=part.name)
            part.reconnect()
        elif busy_s < DOUBTFUL_S:
            self._doubted.discard(part.name)
