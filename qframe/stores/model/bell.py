"""A bell in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from qframe.stores.types import LateReply


class EventBell:
    """Rings when it is rung, which the store does at every publish that answers no pull.

    Args:
        release: called when it is closed.
        address: where it hears replies to pulls that stand; empty where it hears none.
    """

    def __init__(self, release: Callable[[EventBell], None], address: str = "") -> None:
        self.address: str = address
        self._rung = threading.Event()
        self._release = release
        self._late: deque[LateReply] = deque()
        self._slots: set[int | None] = set()

    def late(self) -> list[LateReply]:
        """The replies that came since this was asked."""
        return [self._late.popleft() for _ in range(len(self._late))]

    def has_lost(self) -> bool:
        """None is ever lost."""
        return False

    def hear(self, reply: LateReply) -> None:
        """Brings a reply, and rings for its slot."""
        self._late.append(reply)
        self._slots.add(reply.slot)
        self._rung.set()

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        rung = self._rung.wait(timeout_s)
        if rung:
            self._rung.clear()
        return rung

    def hints(self) -> frozenset[int] | None:
        """The slots that replies came from; None where it may have rung for any."""
        slots = {self._slots.pop() for _ in range(len(self._slots))}
        return None if None in slots else frozenset(slot for slot in slots if slot is not None)

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none; any slot may have something new."""
        self._slots.add(None)
        self._rung.set()

    def close(self) -> None:
        """Ends a wait, and is rung no more."""
        self._rung.set()
        self._release(self)
