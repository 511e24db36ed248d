"""Keeps topics tidy: what is settled and old, and what is remembered too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qframe.errors import StoreUnavailable
from qframe.service import Service
from qframe.stores.base import Store
from qframe.topic import Topic

EVERY_S: Final = 30.0
STEP: Final = 500


class Sweeper(Service):
    """Sweeps each topic of a worker every 30 s, in steps of 500 rows with a pause after each.

    Args:
        topics: the worker's.
        store: the store.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        topics: list[Topic],
        store: Store,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.sweeper", on_failure)
        self._topics = topics
        self._store = store

    def run(self) -> None:
        """Sweeps until it is stopped."""
        while not self._stopping.wait(EVERY_S):
            for topic in self._topics:
                self._sweep(topic)

    def _sweep(self, topic: Topic) -> None:
        try:
            while self._store.sweep(topic, STEP) >= STEP:
                if self._stopping.wait(0.05):
                    return
        except StoreUnavailable:
            # The lines have said so already, and there is time.
            return
