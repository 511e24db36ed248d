"""The work that one thread of a pool has in hand."""

from __future__ import annotations

from collections import deque
from typing import Final

from qframe.message import Delivery
from qframe.runtime.handler.attempt import Attempt

SLOW_S: Final = 0.001
"""A call of the handler that takes longer is measured by itself, and not with its run."""


class RunWorker:
    """One thread's work in hand, within reach of the monitor.

    Attributes:
        run: attempts that it has still to handle.
        asked: attempts taken off the run while its policy is asked about them.
        attempt: the attempt that its handler has in hand now.
        done: deliveries that it has acknowledged and not yet handed over.
        handled: grows with every attempt, so that standing still can be seen from outside.
        passed: how many of these its handler was not called with, in this run.
        seen: what `handled` was when the monitor looked last; -1 if nothing was in hand.
        slow: how long each slow call of its handler in this run has taken, in seconds.
        since_s: when the monitor has first seen what is in hand.
        works: whether there is anything in it, or on its way from its lanes.
        waited_s: how long it has waited for the store or a turn, which is no handler's time.
    """

    __slots__ = (
        "asked", "attempt", "done", "handled", "passed", "run", "seen", "since_s", "slow",
        "waited_s", "works",
    )  # fmt: skip

    def __init__(self) -> None:
        self.run: deque[Attempt] = deque()
        self.asked: list[Attempt] = []
        self.attempt: Attempt | None = None
        self.done: deque[Delivery] = deque()
        self.handled: int = 0
        self.passed: int = 0
        self.seen: int = -1
        self.slow: list[float] = []
        self.since_s: float = 0.0
        self.waited_s: float = 0.0
        self.works: bool = False

    @property
    def being_handled(self) -> list[Attempt]:
        """The attempt that its handler was called with."""
        attempt = self.attempt
        return [] if attempt is None else [attempt]
