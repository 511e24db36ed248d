"""Facts that a page shows, made once for all who look at it within a second or so.

Twenty tabs on one page cost the store no more than one. A failure is kept as long, so that a store
that is away is not asked once for each tab. While one visitor's page is made, others who ask for it
wait, 3 s at most. Facts that are no longer fresh are not kept, so the bodies of many messages that
somebody has looked at are not all in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from qframe.clock import Clock
from qframe.errors import QFrameError, StoreUnavailable

PATIENCE_S: Final = 3.0
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
            StoreUnavailable: if another is making them, and takes too long.
        """
        with self._guard:
            self._forget_old()
            kept = self._pages.setdefault(page, _Kept())
            if len(self._pages) > _KEPT:
                self._pages.popitem(last=False)
        if not kept.guard.acquire(timeout=PATIENCE_S):
            raise StoreUnavailable("of the console", f"it has not replied for {PATIENCE_S:g} s")
        try:
            if self._clock.monotonic_s() >= kept.until_s:
                try:
                    kept.facts, kept.error = make(), None
                except QFrameError as error:
                    kept.error = error
                kept.until_s = self._clock.monotonic_s() + fresh_s
            if kept.error is not None:
                raise kept.error
            return kept.facts
        finally:
            kept.guard.release()

    def _forget_old(self) -> None:
        """Forgets what is no longer fresh, and is not being made."""
        now_s = self._clock.monotonic_s()
        self._pages = OrderedDict(
            (page, kept)
            for page, kept in self._pages.items()
            if now_s < kept.until_s or kept.guard.locked()
        )

    def forget(self) -> None:
        """Has all pages be made anew, since something was changed."""
        with self._guard:
            self._pages.clear()
