"""Sweeps topics: removes settled and expired rows, and finishes growths that nobody sees to."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Final

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.errors import (
    BadTopic,
    CoordinatorUnavailable,
    QFrameError,
    StoreUnavailable,
    UnknownTopic,
)
from qframe.events import Events
from qframe.producing.sweeping import REST, SELDOM_S, STEP
from qframe.service import Service
from qframe.stores.base import Store
from qframe.stores.depth import SlotTooDeep
from qframe.stores.doubling import MAX_PAUSE_S, Doubling
from qframe.topic import Topic

LOOK_EVERY_S: Final = 10.0
EVERY_S: Final = 30.0
SHORTEST_REST_S: Final = 0.002
BEHIND_S: Final = 60.0
BURST_S: Final = 1.0
"""How long a worker sweeps at most that ends when nothing is left to do."""
DEEP_S: Final = 300.0
"""How long a worker waits before it tries a growth again whose slot was too deep to split."""


class Sweeper(Service):
    """Sweeps the topics of a worker every 30 s, until nothing is left to remove.

    Topics take turns, in steps of 500 rows, and it rests nine times as long as each step took.
    While it finds nothing it sweeps less and less often, down to every 8 minutes. Every 10 s it
    looks whether a topic grows whose process has ended before that was done.

    Args:
        topics: the worker's.
        store: sweeps.
        owned: returns the slots of a topic and group that have owners.
        events: told, each minute, which topics it is more than a minute behind with.
        on_failure: called when it ends by an error.
        clock: the worker's.

    Attributes:
        behind_s: for how long it has been behind with topics, if for more than a minute.
    """

    def __init__(
        self,
        *,
        topics: list[Topic],
        store: Store,
        owned: Callable[[Topic, str], Collection[int]],
        events: Events,
        on_failure: Callable[[str, BaseException], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("qframe.sweeper", on_failure)
        self._topics = topics
        self._store = store
        self._owned = owned
        self._events = events
        self._clock = clock
        self._deep_until_s: dict[str, float] = {}  # by topic: looking again would find the same
        self.behind_s: dict[str, int] = {}

    def run(self) -> None:
        """Sweeps until it is stopped."""
        pause_s, waited_s = EVERY_S, 0.0
        while not self._stopping.wait(LOOK_EVERY_S):
            self.finish_growths()
            waited_s += LOOK_EVERY_S
            if waited_s >= pause_s:
                removed = self.sweep()
                pause_s, waited_s = EVERY_S if removed else min(SELDOM_S, pause_s * 2), 0.0

    def sweep(self, within_s: float = math.inf) -> int:
        """Removes what is no longer needed, for so long at most; returns how many rows."""
        began_s = now_s = self._clock.monotonic_s()
        removed, told = 0, 0
        left = list(self._topics)
        while left and not self._stopping.is_set() and now_s - began_s < within_s:
            for topic in [*left]:
                before_s = self._clock.monotonic_s()
                step = self._step(topic)
                removed += step
                if step < STEP:
                    left.remove(topic)
                    self.behind_s.pop(topic.name, None)
                    continue
                took_s = self._clock.monotonic_s() - before_s
                self._stopping.wait(max(SHORTEST_REST_S, REST * took_s))
            now_s = self._clock.monotonic_s()
            minutes = int((now_s - began_s) // BEHIND_S)
            if left and minutes > told:
                told = minutes
                self.finish_growths()
                names = [topic.name for topic in left]
                self.behind_s.update(dict.fromkeys(names, round(now_s - began_s)))
                self._events.emit("sweep.behind", topics=names, for_s=round(now_s - began_s))
        return removed

    def finish_growths(self) -> None:
        """Finishes the growth of topics that nobody sees to."""
        try:
            for topic in self._store.latest(self._topics) if self._topics else ():
                if topic is None or not topic.growth.target:
                    continue
                if topic.growth.until_ms <= self._store.now_ms(topic):
                    try:
                        self._finish(topic.name)
                    except (StoreUnavailable, CoordinatorUnavailable):
                        raise
                    except QFrameError:
                        continue  # another sees to it, or the topic was deleted
        except (StoreUnavailable, CoordinatorUnavailable, _WorkerEnded):
            pass  # the consumers report it, and there is time

    def _finish(self, name: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._deep_until_s.get(name, now_s):
            return
        doubling = Doubling(
            self._store, name, owned=self._owned, pause=self._pause, max_pause_s=MAX_PAUSE_S,
            monotonic_s=self._clock.monotonic_s,
        )  # fmt: skip
        try:
            doubling.finish(doubling.go_on())
        except SlotTooDeep:
            self._deep_until_s[name] = now_s + DEEP_S
            doubling.leave()  # `resize` may allow a longer pause

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _WorkerEnded

    def _step(self, topic: Topic) -> int:
        """Sweeps some rows of one topic; returns how many were removed."""
        try:
            return self._store.sweep(topic, STEP)
        except (StoreUnavailable, UnknownTopic, BadTopic):
            return 0  # the consumers report it, and there is time


class _WorkerEnded(Exception):
    """Raised to leave a growth to another worker."""
