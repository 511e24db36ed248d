"""Calls that the handler of a signal ends by an exception, as Ctrl-C does, at any moment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

import pytest

# Python loses an exception that is raised in a finalizer, and says so.
may_be_lost = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
EVERY_S = 0.001  # of this process's CPU


class InterruptedCall(BaseException):
    """Raised by the handler."""


def interrupt(call: Callable[[], object], times: int) -> None:
    """Calls again and again, in the main thread, until so many calls were ended."""
    struck = 0

    def strike(_: int, __: FrameType | None) -> None:
        nonlocal struck
        struck += 1
        raise InterruptedCall

    before = signal.signal(signal.SIGVTALRM, strike)
    try:
        for number in range(times):
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, EVERY_S)
                while struck == number:
                    call()
            except InterruptedCall:
                pass
            except RuntimeError as error:  # "cannot release un-acquired lock", of Python's `wait`
                if not isinstance(error.__context__, InterruptedCall):
                    raise
    finally:
        signal.signal(signal.SIGVTALRM, before)
