"""Where a consumer's parts count what they do, if somebody wants numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.retry_policy import Disposition


class PendingRun(NamedTuple):
    """A run whose handlers are called next: since when its attempts have been due.

    Attributes:
        attempts: how many they are.
        since_ms: of an even sample of them, in their order, since when.
        now_ms: the moment at which that was looked up.
    """

    attempts: int
    since_ms: list[int]
    now_ms: int


class Meter(Protocol):
    """Counts for one consumer; called from any thread, once for each run or settlement call."""

    def due(self, attempts: Sequence[Attempt]) -> PendingRun:
        """Looks up since when attempts have been due that are handled next."""

    def begun(self, run: PendingRun, count: int) -> None:
        """Counts how long the first so many of a run were due when their handlers were called."""

    def handled(self, count: int, seconds: float, slow: Sequence[float] = ()) -> None:
        """Counts so many calls of the handler, which have taken so long together.

        Args:
            count: how many.
            seconds: how long all of them took.
            slow: how long each of those took that was slow.
        """

    def settled(self, batch: Sequence[Delivery | Disposition], results: Sequence[Settled]) -> None:
        """Counts how messages have ended, by what the store has said of each."""
