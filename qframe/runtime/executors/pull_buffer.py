"""Where attempts wait for a loop of the user's own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.demand import Demand
from qframe.runtime.executors.base import Executor
from qframe.runtime.handler.attempt import Attempt

LONGEST_WAIT_S: Final = 3600.0  # what a lock can wait for at once has a bound


class PullWork(Protocol):
    """The engine, as this buffer uses it."""

    def begins_in_s(self, delivery: Delivery) -> float:
        """Returns 0 if a delivery may be taken now, else after how long to ask again."""

    def take_over(self, attempt: Attempt) -> bool:
        """Leaves an attempt to its user; false if it is not this worker's any more."""


class PullBuffer(Executor):
    """Holds attempts until somebody takes them, from any thread.

    It has no threads: its user takes as many at once as it likes, and sees `message.cancelled`.

    Args:
        clock: measures waits.
        work: the engine.
        demand: hears how many attempts can be taken, or have been, if that bounds what is pulled.

    Attributes:
        closed: whether nothing is handed out any more.
    """

    def __init__(self, clock: Clock, work: PullWork, demand: Demand | None = None) -> None:
        self._clock = clock
        self._work = work
        self._demand = demand
        # Taken by itself: a signal that ends a loop in the condition's `__enter__` leaves it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[Attempt] = deque()
        self._taken: list[Attempt] = []
        self.closed: bool = False
        self._handed_out = 0

    @property
    def busy(self) -> bool:
        """Whether an attempt waits here, or is on its way to its user."""
        return bool(self._waiting or self._taken)

    def is_empty_after(self, taken: int) -> bool:
        """Whether nothing waits here, or is on its way, but the attempts that its user has."""
        with self._lock:
            return not self.busy and self._handed_out == taken

    def in_hand(self) -> list[Attempt]:
        """Attempts that are on their way to their user."""
        return list(self._taken)

    def stacks(self) -> list[HandlerStack]:
        """Calls no handler."""
        return []

    def stop(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - nothing to wait for
        """Ends all waits; nothing is taken any more."""
        with self._lock:
            self.closed = True
            self._changed.notify_all()
        return True

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Has attempts wait here."""
        with self._lock:
            self._waiting.extend(attempts)
            self._changed.notify(len(attempts))
        self._offer(len(attempts))

    def pause(self, attempt: Attempt, seconds: float) -> None:  # noqa: ARG002 - nobody asks for one
        """Puts an attempt back: only handlers, of which there are none here, ask for a pause."""
        self.dispatch([attempt])

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that nobody has taken, in order."""
        with self._lock:
            lying = [(each, wanted(each.delivery)) for each in self._waiting]
            self._waiting = deque(each for each, is_wanted in lying if not is_wanted)
            taken_back = [each for each, is_wanted in lying if is_wanted]
        self._offer(-len(taken_back))
        return taken_back

    def _offer(self, count: int) -> None:
        if self._demand is not None:
            self._demand.offer(count)

    def take(self, timeout_s: float | None) -> Attempt | None:
        """The next attempt, its user's to settle; None if none has come in time, or at the end.

        So its lane is busy until it is settled, its lease is kept as long as somebody holds it, and
        one that is let go unsettled is handed back at once.

        Args:
            timeout_s: how long to wait, in seconds; None for as long as it takes.
        """
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while (attempt := self._next(until_s)) is not None:
            try:
                if self._work.take_over(attempt):
                    return attempt
            finally:
                with self._lock:
                    self._taken.remove(attempt)
            with self._lock:
                self._handed_out -= 1
            self._offer(-1)
        return None

    def _next(self, until_s: float | None) -> Attempt | None:
        with self._lock:
            while not self.closed:
                wait_s: float | None = None
                if self._waiting:
                    wait_s = self._work.begins_in_s(self._waiting[0].delivery)
                    if not wait_s:
                        attempt = self._waiting.popleft()
                        self._taken.append(attempt)
                        self._handed_out += 1
                        return attempt
                left_s = None if until_s is None else until_s - self._clock.monotonic_s()
                if left_s is not None:
                    if left_s <= 0:
                        return None
                    wait_s = left_s if wait_s is None else min(left_s, wait_s)
                self._changed.wait(None if wait_s is None else min(wait_s, LONGEST_WAIT_S))
        return None
