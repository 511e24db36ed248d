"""Sweeping where no worker may run: whoever publishes or looks removes some rows now and then."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from qframe.clock import Clock
from qframe.errors import QFrameError, StoreForbidden
from qframe.topic import Topic

STEP: Final = 500
"""How many rows a step removes at most."""

FIRST_S: Final = 60.0
"""How long after its first call it sweeps, so that a program that ends soon never does."""

SELDOM_S: Final = 480.0
"""How long it waits at most while there is nothing to remove."""

REST: Final = 9
"""How much longer than a full step it rests after it: it takes a tenth of a store's time."""

LONG_REST: Final = 99
"""How much longer than a step it rests after one that found fewer rows than it may remove."""


class OccasionalSweeper:
    """Removes up to 500 rows of a topic in a call now and then, in the caller's thread.

    Workers sweep what they serve. But a stream may be read by Spark alone, and a topic may have
    producers alone. A step comes a minute after the first call for a topic. While it finds all the
    rows that it may remove the next one comes after nine times as long as it took, and so takes a
    tenth of the time at most; else after a minute at least, and up to 8 minutes. Where the store's
    user may not sweep, that is left to others.

    Args:
        sweep: removes up to so many rows of a topic that are no longer needed; returns how many.
        clock: tells when it is time.
    """

    def __init__(self, sweep: Callable[[Topic, int], int], clock: Clock) -> None:
        self._sweep = sweep
        self._clock = clock
        self._due_s: dict[str, float] = {}
        self._pause_s: dict[str, float] = {}

    def look(self, topic: Topic) -> None:
        """Sweeps the topic if it is time; raises nothing."""
        began_s = self._clock.monotonic_s()
        if began_s < self._due_s.setdefault(topic.name, began_s + FIRST_S):
            return
        self._due_s[topic.name] = math.inf  # other threads need not wait, nor sweep as well
        pause_s = min(SELDOM_S, 2 * self._pause_s.get(topic.name, FIRST_S / 2))
        try:
            removed = self._sweep(topic, STEP)
            took_s = self._clock.monotonic_s() - began_s
            if removed == STEP:
                pause_s = REST * took_s
            else:
                pause_s = max(FIRST_S if removed else pause_s, LONG_REST * took_s)
        except StoreForbidden:
            pause_s = math.inf
        except QFrameError:
            pass  # whoever needs the store tells of it, and there is time
        finally:
            self._pause_s[topic.name] = max(FIRST_S, pause_s)
            self._due_s[topic.name] = began_s + pause_s
