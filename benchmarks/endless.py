"""A store that is no limit, and the counts of a worker process, for `benchmarks.processes`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from qframe import Topic
from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.stores.base import Store
from qframe.stores.types import PullRequest, PullResult, PullTerms, Settlement

STORE: Final = "BENCHMARK_STORE"
ENDLESS: Final = "BENCHMARK_ENDLESS"
TOLD: Final = "BENCHMARK_TOLD"
GROUP: Final = "g"
TOPIC: Final = Topic("processes", slots=64)


class Endless:
    """A store with messages for ever: it gives them out, and settles them, at once.

    Args:
        store: does all else: topics, rosters, leases.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._numbers = count(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def pull(
        self, _topic: Topic, _group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        """As many messages as are asked for."""
        now_ms = time.time_ns() // 1_000_000
        return PullResult(
            [
                Delivery(
                    f"m{number}", None, None, b"1", now_ms, ask.slot, None, number, terms.receipt
                )
                for ask in asks
                for number, _ in zip(self._numbers, range(ask.limit), strict=False)
            ],
            next_due_ms=0,
        )

    def acknowledge(
        self, _topic: Topic, _group: str, deliveries: Sequence[Delivery], _: Mapping[int, str]
    ) -> list[Settled]:
        """All are settled."""
        return [Settled.SETTLED] * len(deliveries)

    def settle(self, _topic: Topic, _: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """All are settled."""
        return [Settled.SETTLED] * len(settlements)


class Counts:
    """How many messages this process has settled, from its first settlement to its last."""

    def __init__(self) -> None:
        self._settled = 0
        self._began_s, self._cpu_s, self._last_s = 0.0, 0.0, 0.0

    def listen(self, name: str, facts: Mapping[str, Any]) -> None:
        """Counts; says at the end what it has counted."""
        if name == "delivery.settled":
            if not self._began_s:
                self._began_s, self._cpu_s = time.monotonic(), time.process_time()
            self._settled += facts["count"]
            self._last_s = time.monotonic()
        elif name == "worker.stopping":
            told = {
                "settled": self._settled, "seconds": self._last_s - self._began_s,
                "cpu_s": time.process_time() - self._cpu_s,
            }  # fmt: skip
            Path(os.environ[TOLD], str(os.getpid())).write_text(json.dumps(told))
