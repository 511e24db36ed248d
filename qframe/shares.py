"""A number of places that several holders share, of whom one may be greedy."""

from __future__ import annotations

import threading
from collections.abc import Hashable


class Share:
    """A number of places: a holder takes another one only while more are free than it holds.

    So one alone gets half of them, and the next one half of the rest. Its methods may be called
    from any thread.

    Args:
        most: how many places there are.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._held: dict[Hashable, int] = {}
        self._guard = threading.Lock()

    def take(self, holder: Hashable) -> bool:
        """Takes a place; False, and takes none, if that is more than the holder's share."""
        with self._guard:
            held = self._held.get(holder, 0)
            if held >= self._free:
                return False
            self._free -= 1
            self._held[holder] = held + 1
            return True

    def give_back(self, holder: Hashable) -> None:
        """Gives a place back."""
        with self._guard:
            self._free += 1
            left = self._held[holder] - 1
            if left:
                self._held[holder] = left
            else:
                del self._held[holder]
