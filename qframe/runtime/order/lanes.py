"""One delivery of a key at a time, or of a slot: the others wait in its lane."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from qframe.message import Delivery
from qframe.runtime.order.parked_keys import of_one_run

Choice = Callable[[Delivery, Iterable[Delivery]], list[Delivery]]


class Lanes:
    """The busy lanes of a consumer, and what waits behind each.

    A lane is busy from when its delivery is let through until `free` is called with it, however
    many threads and pauses it passes through. A delivery without a key has no lane among keys.

    Args:
        by_subject: whether lanes are subjects (all kinds but streams), or keys.
        by_slot: whether lanes are slots instead, since the consumer is serial.
    """

    def __init__(self, *, by_subject: bool, by_slot: bool = False) -> None:
        by = "slot" if by_slot else "subject" if by_subject else "key"
        self._lane_of = attrgetter(by)
        self._guard = threading.Lock()
        self._waiting: dict[str | int, deque[Delivery] | None] = {}

    def offer(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Puts deliveries into their lanes, in order; returns those whose lane was free."""
        through = []
        waiting = self._waiting
        lane_of = self._lane_of
        with self._guard:
            for delivery in deliveries:
                lane = lane_of(delivery)
                if lane is None:
                    through.append(delivery)
                elif lane not in waiting:
                    waiting[lane] = None
                    through.append(delivery)
                elif (behind := waiting[lane]) is None:
                    waiting[lane] = deque((delivery,))
                else:
                    behind.append(delivery)
        return through

    def free(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Frees the lanes of deliveries that are through; returns the next one of each."""
        following = []
        waiting = self._waiting
        lane_of = self._lane_of
        with self._guard:
            for delivery in deliveries:
                lane = lane_of(delivery)
                if lane is None:
                    continue
                behind = waiting[lane]
                if behind:
                    following.append(behind.popleft())
                else:
                    del waiting[lane]
        return following

    def drop(self, delivery: Delivery, chosen: Choice = of_one_run) -> list[Delivery]:
        """Takes out what waits behind a delivery and goes back with it.

        Its lane stays busy. The others that wait there are of another run, or of another subject of
        the same slot.

        Args:
            delivery: one that was let through.
            chosen: which of those behind it go back with it.
        """
        lane = self._lane_of(delivery)
        if lane is None:
            return []
        with self._guard:
            behind = self._waiting.get(lane) or ()
            dropped = chosen(delivery, behind)
            if dropped:
                gone = set(dropped)
                self._waiting[lane] = deque(one for one in behind if one not in gone)
        return dropped

    def forget(self, lost: Collection[Delivery]) -> None:
        """Takes out what waits and is lost; lanes stay busy."""
        with self._guard:
            for lane, behind in self._waiting.items():
                if behind:
                    self._waiting[lane] = deque(one for one in behind if one not in lost)

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        """Takes out what waits and is wanted; lanes stay busy."""
        taken: list[Delivery] = []
        with self._guard:
            for lane, behind in self._waiting.items():
                if behind:
                    taken += [one for one in behind if wanted(one)]
                    self._waiting[lane] = deque(one for one in behind if not wanted(one))
        return taken
