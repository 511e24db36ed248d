"""A histogram that takes many values at once: what is counted for each message must be cheap."""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple


class Distribution(NamedTuple):
    """The values of a histogram so far.

    Attributes:
        bounds: the upper bounds, in seconds.
        counts: for each bound, and then for no bound, how many values were not above it.
        total: the sum of all values, in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Counts values by upper bounds; a list of values costs little more than a single one.

    Args:
        bounds: the upper bounds, rising.
        per_second: how many units of a value are a second.
    """

    def __init__(self, bounds: tuple[float, ...], per_second: int = 1) -> None:
        self._shown = bounds
        self._per_second = per_second
        self._bounds = tuple(bound * per_second for bound in bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._guard = threading.Lock()

    def add(self, value: float, times: int = 1) -> None:
        """Counts one value, so many times."""
        with self._guard:
            self._counts[bisect_left(self._bounds, value)] += times
            self._total += value * times

    def add_since(self, moments: list[int], now: int, times: int) -> None:
        """Counts so many times from these moments, an even sample, to now; may sort the list.

        A moment of another clock that is yet to come counts as now.
        """
        if not moments:
            return
        latest = max(moments)
        if latest > now:
            moments = [min(now, moment) for moment in moments]
            latest = now
        bounds, counts, after = self._bounds, self._counts, len(moments)
        first = bisect_left(bounds, now - latest)
        last = bisect_left(bounds, now - min(moments), first)
        each, rest = divmod(times, after)
        total = times * now - sum(moments) * times / after
        with self._guard:
            self._total += total
            if first < last:  # else, as nearly always, they were published together
                moments.sort()
                for number in range(first, last):
                    before = bisect_left(moments, now - bounds[number], 0, after)
                    counts[number] += (after - before) * each
                    after = before
            counts[last] += after * each + rest

    def read(self) -> Distribution:
        """The values so far."""
        with self._guard:
            counts, total = tuple(accumulate(self._counts)), self._total
        return Distribution(self._shown, counts, total / self._per_second)
