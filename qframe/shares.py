"""A number of places that several holders share, of whom one may be greedy."""

from __future__ import annotations

import threading
from collections.abc import Hashable


class Share:
    """A number of places: a holder takes another one only while more are free than it holds.

    So one alone gets half of them, and the next one half of the rest. As places come back, all that
    ask for more come to hold as many as each other, and some are free for the next. Its methods may
    be called from any thread.

    Args:
        most: how many places there are.

    Attributes:
        free: how many of them nobody holds.
    """

    def __init__(self, most: int) -> None:
        self.free: int = most
        self._held: dict[Hashable, int] = {}
        self._guard = threading.Lock()

    def held(self, holder: Hashable) -> int:
        """How many places a holder has."""
        return self._held.get(holder, 0)

    def take(self, holder: Hashable, count: int = 1) -> bool:
        """Takes places; False, and takes none, if that is more than the holder's share."""
        with self._guard:
            held = self.held(holder) + count
            if held > self.free:
                return False
            self.free -= count
            self._held[holder] = held
            return True

    def give_back(self, holder: Hashable, count: int = 1) -> None:
        """Gives places back."""
        with self._guard:
            self.free += count
            left = self._held[holder] - count
            if left:
                self._held[holder] = left
            else:
                del self._held[holder]
