"""The growth of a topic in single steps: whoever sees to it stands still between two calls.

It runs in a thread of its own, which runs only while the caller waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from qframe.clock import VirtualClock
from qframe.stores.base import Store
from qframe.stores.doubling import Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

LEASE_MS: Final = 400
HALTS: Final = frozenset({"grow", "open_slot", "close_slot", "restore_positions"})
"""The calls before which it halts: each store has just as many of them."""


class Abandoned(BaseException):
    """Ends whoever sees to a growth as the death of its process does."""


class Stepping:
    """Somebody who sees to the growth of a topic on one store, one step at a time.

    Args:
        store: the store.
        topic: the topic as it is grown now.
        slots: how many it is to have, if nobody has begun that yet.
        clock: the store's.

    Attributes:
        stands: the call before which it stands; once it has ended, how: "done", or the error.
    """

    def __init__(self, store: Store, topic: Topic, slots: int, clock: VirtualClock) -> None:
        self.stands = ""
        self.is_over = False
        self._store = store
        self._topic = topic
        self._slots = slots
        self._clock = clock
        self._is_abandoned = False
        self._go_on = threading.Semaphore(0)
        self._halted = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> str:
        """Lets it go on to the next call; returns where it stands then."""
        if not self.is_over:
            self._go_on.release()
            self._halted.acquire()
        return self.stands

    def end(self) -> str:
        """Lets it go on to its end; returns how that is."""
        while not self.is_over:
            self.step()
        return self.stands

    def abandon(self) -> None:
        """It does nothing any more."""
        self._is_abandoned = True
        self.step()

    def __getattr__(self, name: str) -> Any:
        what = getattr(self._store, name)
        if name not in HALTS:
            return what

        def call(*args: Any, **options: Any) -> Any:
            self.stands = name
            self._halted.release()
            self._await()
            return what(*args, **options)

        return call

    def _await(self) -> None:
        self._go_on.acquire()
        if self._is_abandoned:
            raise Abandoned

    def _run(self) -> None:
        store: Any = self
        try:
            self._await()
            doubling = Doubling(
                store, self._topic.name, owned=lambda *_: (), pause=lambda _: None,
                lease_ms=LEASE_MS, monotonic_s=self._clock.monotonic_s,
            )  # fmt: skip
            begun = self._topic.growth.target
            doubling.finish(doubling.go_on() if begun else doubling.begin(self._slots))
            self.stands = "done"
        except (GrowthTaken, SlotsClosed, Abandoned) as error:
            self.stands = type(error).__name__
        except BaseException as error:
            self.stands = repr(error)
        self.is_over = True
        self._halted.release()


class Pair:
    """Somebody who sees to the growth of a topic on two stores, in step.

    Args:
        stores: the two.
        topic, slots, clock: as above.
    """

    def __init__(
        self, stores: Sequence[Store], topic: Topic, slots: int, clock: VirtualClock
    ) -> None:
        self._two = [Stepping(store, topic, slots, clock) for store in stores]

    @property
    def stands(self) -> str:
        """The call before which both stand."""
        return self._two[0].stands

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return all(one.is_over for one in self._two)

    def step(self) -> str:
        """One step of both; returns before which call they stand, or how they have ended."""
        return self._same([one.step() for one in self._two])

    def end(self) -> str:
        """Lets both go on to their end; returns how that is."""
        return self._same([one.end() for one in self._two])

    def abandon(self) -> None:
        """They do nothing any more."""
        for one in self._two:
            one.abandon()

    def _same(self, stand: Sequence[str]) -> str:
        first, second = stand
        assert first == second, stand
        return first
