"""A clock that remembers when each thread has last looked at it."""

from __future__ import annotations

import threading
import time

from qframe.clock import SYSTEM_CLOCK


class Looks:
    """The machine's clock, by which a handler is dated to the look that has let it begin.

    A worker looks at the time before each handler, and may be struck between that and the handler's
    first word, which then comes when the slot is another's already. What it may not do is begin
    without a look: so each look is for one handler.
    """

    def __init__(self) -> None:
        self._last = threading.local()

    def now_ms(self) -> int:
        """Wall time."""
        return SYSTEM_CLOCK.now_ms()

    def monotonic_s(self) -> float:
        """Seconds since some moment; notes that this thread has looked."""
        self._last.at_ns = time.monotonic_ns()
        return SYSTEM_CLOCK.monotonic_s()

    def taken_ns(self) -> int:
        """When this thread has last looked, once for each look; else it is now."""
        at_ns: int | None = getattr(self._last, "at_ns", None)
        self._last.at_ns = None
        return time.monotonic_ns() if at_ns is None else at_ns
