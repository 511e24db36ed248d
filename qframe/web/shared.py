"""Facts that a page shows, made once for all who look at it within a second or so.

Twenty tabs on one page cost the store no more than one. A failure is kept as long, so that a store
that is away is not asked once for each tab.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from qframe.clock import Clock
from qframe.errors import QFrameError

_KEPT: Final = 500

Facts = Mapping[str, Any]


class _Kept:
    """The facts of one page with one set of rights."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.until_s = float("-inf")
        self.facts: Facts = {}
        self.error: QFrameError | None = None


class SharedFacts:
    """Keeps the facts of the last 500 pages for as long as they are fresh.

    Args:
        clock: tells how old they are.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._pages: OrderedDict[Hashable, _Kept] = OrderedDict()

    def get(self, page: Hashable, fresh_s: float, make: Callable[[], Facts]) -> Facts:
        """The facts of a page, made anew if they are older than `fresh_s`.

        Raises:
            QFrameError: as `make` has raised it.
        """
        with self._guard:
            kept = self._pages.setdefault(page, _Kept())
            self._pages.move_to_end(page)
            if len(self._pages) > _KEPT:
                self._pages.popitem(last=False)
        with kept.guard:
            if self._clock.monotonic_s() >= kept.until_s:
                try:
                    kept.facts, kept.error = make(), None
                except QFrameError as error:
                    kept.error = error
                kept.until_s = self._clock.monotonic_s() + fresh_s
            if kept.error is not None:
                raise kept.error
            return kept.facts

    def forget(self) -> None:
        """Has all pages be made anew, since something was changed."""
        with self._guard:
            self._pages.clear()
