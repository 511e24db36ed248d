"""The watchdog of a worker: a stuck part gets new connections, then ends the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.errors import WorkerFailed
from qframe.events import Events
from qframe.service import ServiceLoop

ASLEEP_S: Final = 10.0
DOUBTFUL_S: Final = 20.0
STALLED_S: Final = 60.0
MAIN_LOOP: Final = "main loop"


class Watched(ServiceLoop, Protocol):
    """A part that can be helped where it is stuck."""

    def reconnect(self) -> None:
        """Drops connections that may be broken."""


class Watchdog:
    """Watches the parts without which a worker seems alive but does nothing.

    A part that has ended is left alone: its error has ended the worker. Time in which the whole
    process was frozen, as on a machine that was paused, does not count.

    Args:
        parts: the parts to watch.
        others: returns loops whose steps are told by `ages_s`, and that it leaves alone.
        on_stalled: called with the name of a part that is stuck, and the error.
        events: hears of connections that are dropped.
        clock: the clock.
    """

    def __init__(
        self,
        parts: Sequence[Watched],
        *,
        others: Callable[[], Sequence[ServiceLoop]],
        on_stalled: Callable[[str, WorkerFailed], None],
        events: Events,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._others = others
        self._on_stalled = on_stalled
        self._events = events
        self._clock = clock
        self._looked_s = self._awake_since_s = clock.monotonic_s()
        self._slow: set[str] = set()

    def look(self) -> None:
        """Checks all parts; the worker calls it again and again."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > ASLEEP_S:
            self._awake_since_s = now_s
        self._looked_s = now_s
        for part in self._parts:
            self._look_at(part, now_s - self._awake_since_s)

    def ages_s(self) -> dict[str, float]:
        """How long each part and loop has been at its present step, by name; for any thread.

        If `look` was not called for a while, that is what stands still, or the process was frozen.
        """
        now_s = self._clock.monotonic_s()
        unseen_s = now_s - self._looked_s
        if unseen_s > ASLEEP_S:
            return {MAIN_LOOP: unseen_s}
        awake_s = now_s - self._awake_since_s
        return {part.name: _busy_s(part, awake_s) for part in (*self._parts, *self._others())}

    def _look_at(self, part: Watched, awake_s: float) -> None:
        busy_s = _busy_s(part, awake_s)
        if busy_s > STALLED_S:
            self._on_stalled(part.name, WorkerFailed(part.name, "it is stuck"))
        elif busy_s > DOUBTFUL_S and part.name not in self._slow:
            self._slow.add(part.name)
            if self._events:
                self._events.emit("store.reconnecting", part=part.name)
            part.reconnect()
        elif busy_s < DOUBTFUL_S:
            self._slow.discard(part.name)


def _busy_s(part: ServiceLoop, awake_s: float) -> float:
    """How long a part is at its step, of the time in which the process was awake."""
    return min(part.busy_s(), awake_s) if part.alive else 0.0
