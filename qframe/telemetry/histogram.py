"""A histogram that takes many values at once."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

_FEW: Final = 8


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

    def add_all(self, values: list[int]) -> None:
        """Counts values, and sorts the list that it is given."""
        if len(values) < _FEW:
            for value in values:
                self.add(value)
            return
        values.sort()
        counts, before = self._counts, 0
        with self._guard:
            self._total += sum(values)
            for number, bound in enumerate(self._bounds):
                if before == len(values):
                    return
                after = bisect_right(values, bound, before)
                counts[number] += after - before
                before = after
            counts[-1] += len(values) - before

    def read(self) -> Distribution:
        """The values so far."""
        with self._guard:
            counts, total = tuple(accumulate(self._counts)), self._total
        return Distribution(self._shown, counts, total / self._per_second)
