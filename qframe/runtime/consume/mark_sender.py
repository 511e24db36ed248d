"""Has the effects of handlers that have returned marked as done, many in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.service import SteppedService

LONGEST_REST_S: Final = 0.002
MOST_AT_ONCE: Final = 500


class MarkSender(SteppedService):
    """Marks effects whose handlers have returned, while their threads go on with the next message.

    A thread that waited for each mark would call no handler meanwhile, and each mark would be a
    round trip or a transaction of its own. There is one call at a time, and the messages that
    return meanwhile share the next one. After a call it rests for as long as that took, for 2 ms at
    most, so that more can share it: a mark waits for one call and 2 ms, and for no other handler.
    Until its mark is there a message is not acknowledged, and its lane does not go on.

    A thread that has nothing else to do, while no call is under way, marks by itself. The sender
    has a thread of its own from its first message on.

    Args:
        context: the consumer's.
        finish: finishes the effects of attempts, and sees to what became of them.
    """

    def __init__(self, context: ConsumerContext, finish: Callable[[list[Attempt]], None]) -> None:
        super().__init__(context.name_of("marks"), context.fail, context.clock)
        self._finish = finish
        self._returned: SimpleQueue[Attempt | None] = SimpleQueue()
        self._calling = threading.Lock()

    def begins_call(self) -> bool:
        """Whether no call is under way, and the caller's thread begins one."""
        return self._returned.empty() and self._calling.acquire(blocking=False)

    def ends_call(self) -> None:
        """The caller's thread has ended its call."""
        self._calling.release()

    def put(self, attempt: Attempt) -> None:
        """Takes an attempt whose handler has returned; marks it itself once it is stopped."""
        self._returned.put(attempt)
        if self._thread is None:
            self.start()
        if self.stopping:  # its thread may have looked for the last time
            self._mark()

    def wake(self) -> None:
        """Ends a wait for attempts."""
        self._returned.put(None)

    def run(self) -> None:
        """Marks until it is stopped and has nothing left."""
        took_s = 0.0
        while not (self.stopping and self._returned.empty()):
            self._steps.rest()
            first = self._returned.get()
            self._stopping.wait(min(took_s, LONGEST_REST_S))
            began_s = self._steps.begin()
            self._mark(first)
            took_s = self._clock.monotonic_s() - began_s
            del first  # an attempt that its user lets go must not be kept here
        self._steps.rest()

    def _mark(self, first: Attempt | None = None) -> None:
        with self._calling:
            taken = [first]
            with suppress(Empty):
                while len(taken) < MOST_AT_ONCE:
                    taken.append(self._returned.get_nowait())
            if unit := [attempt for attempt in taken if attempt is not None]:
                self._finish(unit)
