"""Where a worker is to be lost, and whether it is."""

from __future__ import annotations

import threading
from contextlib import suppress
from enum import StrEnum
from queue import Empty, SimpleQueue

import msgspec

from qframe.errors import BadOption
from qframe.runtime.handler.middleware import WorkerEnd
from qframe.topic import checked_count


class Point(StrEnum):
    """A moment in the life of a delivery after which its worker may be lost.

    `pull`: the store has handed it out, no handler was called. `handler`: the handler has returned,
    its checker was not told. `commit`: its checker knows, or it has none; the store was not told.
    `settle`: the store knows.
    """

    PULL = "pull"
    HANDLER = "handler"
    COMMIT = "commit"
    SETTLE = "settle"


class SimulatedCrash(WorkerEnd):
    """Raised where a simulated worker ends, so that nothing behind that place happens."""


class Plan(msgspec.Struct):
    """Crashes that are still to come: at a point, of any topic or group that is not named."""

    point: Point
    topic: str | None
    group: str | None
    times: int

    def __str__(self) -> str:
        where = f"{self.topic or 'any topic'}/{self.group or 'any group'}"
        return f"a crash after {self.point} in {where} did not happen; {self.times} are left"


class Crashes:
    """The crashes that a test has asked for."""

    def __init__(self) -> None:
        self._plans: list[Plan] = []
        self._guard = threading.Lock()

    def plan(self, point: str, *, topic: str | None, group: str | None, times: int) -> None:
        """Asks for so many crashes.

        Raises:
            BadOption: if there is no such point, or the number is none.
        """
        try:
            wanted = Point(point)
        except ValueError:
            known = ", ".join(Point)
            raise BadOption(
                "crash point", point, "there is no such point", f"use one of {known}"
            ) from None
        checked_count("times", times, "use 1")
        with self._guard:
            self._plans.append(Plan(wanted, topic, group, times))

    def strikes(self, point: Point, topic: str, group: str) -> bool:
        """Whether the worker is lost here; counts it."""
        with self._guard:
            for plan in self._plans:
                if plan.point is point and plan.topic in (None, topic):
                    if plan.group not in (None, group):
                        continue
                    plan.times -= 1
                    if not plan.times:
                        self._plans.remove(plan)
                    return True
        return False

    def pending(self) -> list[Plan]:
        """The crashes that have not happened yet."""
        with self._guard:
            return list(self._plans)


class WorkerLife:
    """One simulated worker's: over once a crash has struck.

    Args:
        crashes: what is to come.

    Attributes:
        over: whether it is.
        ends: whether it leaves of itself: no crash strikes it any more.
    """

    def __init__(self, crashes: Crashes) -> None:
        self._crashes = crashes
        self._thread = threading.get_ident()
        self.over: bool = False
        self.ends = False
        # The garbage collector may wake it, whatever lock is held: no Event is safe there.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def goes_on(self, point: Point, topic: str, group: str) -> bool:
        """Comes by a point; returns whether the worker lives on.

        Raises:
            SimulatedCrash: if it does not, unless this is another thread, which is the user's.
        """
        if not (self.over or self.ends) and self._crashes.strikes(point, topic, group):
            self.over = True
        if self.over and threading.get_ident() == self._thread:
            raise SimulatedCrash(point)
        return not self.over

    def wake(self) -> None:
        """Says that there may be something to do; from any thread."""
        self._wakes.put(None)

    def is_woken(self, timeout_s: float) -> bool:
        """Whether `wake` was called since this was last asked, or is called in time."""
        woken = False
        with suppress(Empty):
            self._wakes.get(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX))
            woken = True
            while True:
                self._wakes.get_nowait()
        return woken
