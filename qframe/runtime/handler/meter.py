"""Where a consumer's parts count what they do, if somebody wants numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.retry_policy import Disposition


class Meter(Protocol):
    """Counts for one consumer; called from any thread, once for each run or settlement call."""

    def begun(self, attempts: Sequence[Attempt]) -> None:
        """Counts how long messages were due whose handlers are called now."""

    def handled(self, count: int, seconds: float, slow: Sequence[float] = ()) -> None:
        """Counts so many calls of the handler, which have taken so long together.

        Args:
            count: how many.
            seconds: how long all of them took.
            slow: how long each of those took that was slow.
        """

    def settled(self, batch: Sequence[Delivery | Disposition], results: Sequence[Settled]) -> None:
        """Counts how messages have ended, by what the store has said of each."""
