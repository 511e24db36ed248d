"""The batch that one thread of a pool has in hand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import FrameType

from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.executors.batch_call import BatchCall
from qframe.runtime.handler.attempt import Attempt
from qframe.tracebacks import running_in


class BatchWorker:
    """One thread's work in hand, within reach of the monitor.

    Attributes:
        batch: what it has taken and not begun with.
        part: what its handler has in hand now.
        given_up: whether nothing more is to be called.
        free: set while there is nothing in hand.
    """

    __slots__ = (
        "_call", "_guard", "_parts", "_until_s", "batch", "free", "given_up", "part",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batch: list[Attempt] = []
        self.part: list[Attempt] = []
        self._parts: deque[list[Attempt]] = deque()
        self.given_up: bool = False
        self.free: threading.Event = threading.Event()
        self.free.set()
        self._guard = threading.Lock()
        self._call: BatchCall | None = None
        self._until_s: float | None = None

    @property
    def attempts(self) -> list[Attempt]:
        """All that it has in hand, or will have; some may be settled."""
        with self._guard:
            return [*self.batch, *self.part, *[one for part in self._parts for one in part]]

    @property
    def being_handled(self) -> list[Attempt]:
        """The attempts that its handler was called with."""
        return self.part

    def stack(self, frame: FrameType) -> HandlerStack | None:
        """Where its handler is, given its thread's frame; None where it has nothing in hand."""
        part, call = self.part, self._call
        if not part:
            return None
        lines = running_in(frame) if call is None else call.lines()
        return HandlerStack(id=part[0].id, lines=lines, others=len(part) - 1)

    def take(self, attempts: list[Attempt]) -> None:
        """Has a batch in hand from now on."""
        self.free.clear()
        self.batch = attempts

    def next_part(self) -> list[Attempt]:
        """Takes the next part of what it has in hand, or nothing when all is done."""
        with self._guard:
            if self.batch:
                self.part, self.batch = self.batch, []
            elif self._parts:
                self.part = self._parts.popleft()
            else:
                self.part = []
                self.free.set()
            return self.part

    def put(self, parts: list[list[Attempt]]) -> None:
        """Will have these next, in place of what it has in hand now."""
        with self._guard:
            self._parts.extendleft(reversed([part for part in parts if part]))
            self.part = []

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted with which it has not begun."""
        with self._guard:
            taken = [one for part in self._parts for one in part if wanted(one.delivery)]
            if taken:
                left = [[one for one in part if not wanted(one.delivery)] for part in self._parts]
                self._parts = deque(part for part in left if part)
            return taken

    def begin(self, until_s: float | None, call: BatchCall | None) -> None:
        """Notes that a handler is called, which may run until then."""
        with self._guard:
            self._until_s, self._call = until_s, call
            if self.given_up:
                self._stop()

    def end(self) -> None:
        """Notes that a handler has ended."""
        with self._guard:
            self._until_s = self._call = None

    def look(self, now_s: float, mark: Callable[[Attempt], None]) -> float | None:
        """Marks and cancels what runs for too long; returns until when it may run, if it may."""
        with self._guard:
            if self._until_s is not None and self._until_s <= now_s:
                self._until_s = None
                for attempt in self.part:
                    if not attempt.settled:
                        mark(attempt)
                self._stop()
            return self._until_s

    def cancel_lost(self) -> None:
        """Cancels the handler's call if nothing in it is this worker's any more."""
        with self._guard:
            if all(attempt.cancelled or attempt.settled for attempt in self.part):
                self._stop()

    def give_up(self) -> None:
        """Cancels the call in hand, and all to come."""
        with self._guard:
            self.given_up = True
            self._stop()

    def _stop(self) -> None:
        if self._call is not None:
            self._call.cancel()
