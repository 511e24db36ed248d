"""A store whose calls are timed and whose errors are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, cast

from qframe.clock import Clock
from qframe.errors import StoreUnavailable
from qframe.stores.base import Store
from qframe.telemetry.histogram import Histogram

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip

OPERATIONS: Final = (
    "publish", "pull", "renew", "revoke", "settle", "acknowledge", "subscribe", "take",
    "heartbeat", "claim", "roster", "tunings", "draw", "sweep",
)  # fmt: skip
"""The operations of a running system; calls for an operator are not timed."""


class StoreTimes:
    """How long the operations of a store take, and how often it was away.

    Args:
        clock: for measuring.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self.seconds: dict[str, Histogram] = {name: Histogram(SECONDS) for name in OPERATIONS}
        self.errors: dict[str, int] = dict.fromkeys(OPERATIONS, 0)

    def around(self, store: Store) -> Store:
        """The store, with its operations timed."""
        return cast("Store", _TimedStore(store, self))

    def timed(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        """An operation that is timed."""
        monotonic_s, histogram = self._clock.monotonic_s, self.seconds[name]

        def call(*args: Any, **options: Any) -> Any:
            started_s = monotonic_s()
            try:
                return operation(*args, **options)
            except StoreUnavailable:
                with self._guard:
                    self.errors[name] += 1
                raise
            finally:
                histogram.add(monotonic_s() - started_s)

        return call


class _TimedStore:
    """Has the store's own methods, the timed ones in place of those that are timed."""

    def __init__(self, store: Store, times: StoreTimes) -> None:
        self._store = store
        for name in OPERATIONS:
            setattr(self, name, times.timed(name, getattr(store, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
