"""How much a consumer may pull where its user says how many messages are wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Demand:
    """Keeps a pull from reading far beyond what its user has asked for.

    A delivery counts when it is handed out, so each message that is read and that nobody has asked
    for would lose an attempt if its worker were killed. As many are asked of the store as are
    wanted, and twice as many each time that a pull has brought nothing to take: its slots were
    empty, or all that it brought waits behind others of its keys.

    `until` and `offer` may be called from any thread; the other methods are the pull loop's.
    """

    def __init__(self) -> None:
        self._until = 0
        self._guard = threading.Lock()
        self._offered = 0
        self._wake: Callable[[], None] = _nobody
        self._before = 0
        self._factor = 1
        self._has_pulled = False

    def serve(self, wake: Callable[[], None]) -> None:
        """Begins to serve a pull loop, which `wake` makes ask again."""
        self._wake = wake

    def offer(self, count: int) -> None:
        """Notes that the user can take so many more; fewer than none if some were taken back."""
        with self._guard:
            self._offered += count
        if count < 0:
            self._wake()

    def until(self, count: int) -> None:
        """Sets how many messages, in all, the user may be able to take."""
        is_more = count > self._until
        self._until = count
        if is_more:
            self._wake()

    def room(self) -> int:
        """How many messages to ask the store for."""
        offered = self._offered
        if (wanted := self._until - offered) <= 0:
            self._factor = 1
            return 0
        if offered != self._before:
            self._factor = 1
        elif self._has_pulled:
            self._factor *= 2
        self._before, self._has_pulled = offered, False
        return wanted * self._factor

    def pulled(self) -> None:
        """A pull was answered, if only with nothing."""
        self._has_pulled = True

    def rests(self) -> None:
        """All slots are quiet: what comes next is asked for anew."""
        self._factor = 1


def _nobody() -> None:
    """Wakes nobody before there is a pull."""
