"""Sweeps topics: removes settled and expired rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qframe.errors import StoreUnavailable, UnknownTopic
from qframe.service import Service
from qframe.stores.base import Topics
from qframe.topic import Topic

EVERY_S: Final = 30.0
SELDOM_S: Final = 480.0
STEP: Final = 500


class Sweeper(Service):
    """Sweeps each topic of a worker every 30 s, in steps of 500 rows with a pause after each.

    While it finds nothing it sweeps less and less often, down to every 8 minutes.

    Args:
        topics: the worker's.
        store: sweeps.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        topics: list[Topic],
        store: Topics,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.sweeper", on_failure)
        self._topics = topics
        self._store = store

    def run(self) -> None:
        """Sweeps until it is stopped."""
        pause_s = EVERY_S
        while not self._stopping.wait(pause_s):
            removed = sum(self._sweep(topic) for topic in self._topics)
            pause_s = EVERY_S if removed else min(SELDOM_S, pause_s * 2)

    def _sweep(self, topic: Topic) -> int:
        """Sweeps one topic; returns how many rows were removed."""
        removed = 0
        try:
            while not self._stopping.is_set():
                step = self._store.sweep(topic, STEP)
                removed += step
                if step < STEP:
                    break
                self._stopping.wait(0.05)
        except (StoreUnavailable, UnknownTopic):
            pass  # the consumers report it, and there is time
        return removed
