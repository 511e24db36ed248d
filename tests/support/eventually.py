"""Waiting for what must become true, without guessing how long it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], within: float = 60.0) -> T:
    """The first true answer of a check; fails if there is none within so many seconds."""
    until = time.monotonic() + within
    pause = threading.Event()
    while not (answer := check()):
        assert time.monotonic() < until, f"not within {within} s: {answer!r}"
        pause.wait(0.01)
    return answer
