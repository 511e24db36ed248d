"""Waiting for what must become true, without guessing how long it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

PAUSE_S = 0.01

T = TypeVar("T")


def eventually(check: Callable[[], T], within: float = 60.0) -> T:
    """The first true answer of a check; fails if there is none within so many seconds of looking.

    Only the pauses between looks count, as long as they should be. On a machine that gives the
    tests little time both the looks and what they wait for are late, so the limit is later too.
    """
    pause = threading.Event()
    for _ in range(round(within / PAUSE_S)):
        if answer := check():
            return answer
        pause.wait(PAUSE_S)
    answer = check()
    assert answer, f"not within {within} s: {answer!r}"
    return answer
