"""The lease on a topic's growth, which keeps two from seeing to it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from qframe.errors import BadOption
from qframe.growth import Growth
from qframe.stores.base import Store
from qframe.topic import Topic

LOOKS: Final = 8
"""How often in a lease it is looked at, whether it is to be renewed."""


class GrowthTaken(BadOption):
    """Raised when somebody else sees to the growth of the topic now."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(
            "topic", topic.name, "somebody else sees to its growth now",
            "wait; qframe topics shows how far it is",
        )  # fmt: skip


class GrowthLease:
    """The right to grow a topic, and the topic as it has grown under it.

    Args:
        store: where the topic is.
        topic: the topic, as it was read or leased last.
        lease_ms: for how long nobody else takes over once nothing is heard.
        monotonic_s: a clock.

    Attributes:
        topic: the topic as it stands in the store.
    """

    def __init__(
        self, store: Store, topic: Topic, *, lease_ms: int, monotonic_s: Callable[[], float]
    ) -> None:
        self._store = store
        self.topic: Topic = topic
        self._lease_ms = lease_ms
        self._monotonic_s = monotonic_s
        self._looks_at_s = -inf

    def take(self, target: int) -> Topic:
        """Takes it, to grow the topic to so many slots; returns the topic.

        Raises:
            GrowthTaken: if somebody has it.
        """
        if self.topic.growth.until_ms > self._store.now_ms(self.topic):
            raise GrowthTaken(self.topic)
        self.renew(self.topic.growth._replace(target=target))
        return self.topic

    def keep(self) -> None:
        """Renews it if that is necessary.

        Raises:
            GrowthTaken: if somebody else has taken over.
        """
        now_s = self._monotonic_s()
        if now_s < self._looks_at_s:
            return
        self._looks_at_s = now_s + self._lease_ms / LOOKS / 1000
        if self.topic.growth.until_ms - self._store.now_ms(self.topic) <= self._lease_ms // 2:
            self.renew()

    def renew(self, growth: Growth | None = None) -> None:
        """Has it last for its whole time again, and notes how the topic grows.

        Raises:
            GrowthTaken: if somebody else has taken over.
        """
        until_ms = self._store.now_ms(self.topic) + self._lease_ms
        self.note((growth or self.topic.growth)._replace(until_ms=until_ms))

    def note(self, growth: Growth) -> None:
        """Notes how the topic grows, with the slots that it has.

        Raises:
            GrowthTaken: if somebody else has taken over.
        """
        self.grow(self.topic.grown(self.topic.slots, growth))

    def grow(self, following: Topic, tokens: Mapping[int, str] | None = None) -> None:
        """Grows the topic, as `Growing.grow`.

        Raises:
            GrowthTaken: if somebody else has taken over.
            SlotsClosed: as there.
        """
        if not self._store.grow(self.topic, following, tokens):
            raise GrowthTaken(self.topic)
        self.topic = following
