"""A Flusher hands on a batch when it is full, or when its first item is `interval` old."""

from __future__ import annotations

import pytest
from batches import Seen
from eventually import eventually

from qframe import Flusher
from qframe.clock import VirtualClock


class WatchedClock(VirtualClock):
    """A virtual clock that tells whether threads have looked at it since it was moved."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return super().monotonic_s()

    def is_looked_at(self) -> None:
        """Returns when threads have looked often enough to have acted on what they saw."""
        until = self.looks + 6
        eventually(lambda: self.looks >= until)


def test_a_full_batch_leaves_at_once_though_time_stands_still() -> None:
    seen = Seen()
    with Flusher("f", 3, "1h", 100, 1, seen.process, clock=WatchedClock()) as flusher:
        for number in range(7):
            flusher.put(number)
        eventually(lambda: len(seen.batches) == 2)
        assert seen.batches == [[0, 1, 2], [3, 4, 5]]
        assert flusher.waiting == 1
    assert seen.batches[2:] == [[6]]


def test_a_batch_leaves_when_its_first_item_is_as_old_as_the_interval_and_not_sooner() -> None:
    seen, clock = Seen(), WatchedClock()
    with Flusher("f", 100, "20ms", 100, 1, seen.process, clock=clock) as flusher:
        flusher.put("first")
        clock.advance(19)
        flusher.put("second")
        clock.is_looked_at()
        assert seen.batches == []
        clock.advance(1)
        assert eventually(lambda: seen.batches) == [["first", "second"]]


def test_the_worst_wait_is_the_interval_and_not_two_of_them() -> None:
    seen, clock = Seen(), WatchedClock()
    with Flusher("f", 100, "20ms", 100, 1, seen.process, clock=clock) as flusher:
        flusher.put("a")
        clock.advance(20)
        eventually(lambda: seen.items == ["a"])
        clock.advance(7)  # an interval counted from the last flush would end 7 ms too soon …
        flusher.put("b")
        clock.advance(19)
        clock.is_looked_at()
        assert seen.items == ["a"]
        clock.advance(1)  # … and one that starts when the last has ended, 13 ms too late
        eventually(lambda: seen.items == ["a", "b"])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_interval_is_kept_with_any_number_of_threads(threads: int) -> None:
    seen, clock = Seen(), WatchedClock()
    with Flusher("f", 10, "5ms", 1000, threads, seen.process, clock=clock) as flusher:
        for number in range(100):
            flusher.put(number)
            if number % 3 == 0:
                clock.advance(6)
                eventually(lambda: not flusher.waiting)
    assert sorted(seen.items) == list(range(100))


def test_an_interval_of_centuries_is_waited_for() -> None:
    seen, clock = Seen(), WatchedClock()
    with Flusher("f", 5, "99999999999s", 5, 1, seen.process, clock=clock) as flusher:
        for number in range(4):
            flusher.put(number)
        eventually(lambda: clock.looks > 1)  # a lock that was asked for so long would have raised
        assert flusher.waiting == 4
    assert seen.batches == [[0, 1, 2, 3]]
