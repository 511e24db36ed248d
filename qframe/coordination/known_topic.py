"""A topic as far grown as one member knows."""

from __future__ import annotations

import threading
from collections.abc import Callable

from qframe.topic import Topic


class KnownTopic:
    """The newest that a member has heard of its topic, for all of its threads.

    Args:
        topic: the topic as it is known at first.
        read: returns the topic as the store has it now; None if it has none of that name.

    Attributes:
        now: the topic.
    """

    def __init__(self, topic: Topic, read: Callable[[], Topic | None]) -> None:
        self.now: Topic = topic
        self._read = read
        self._guard = threading.Lock()

    def replace(self, topic: Topic) -> bool:
        """Goes by this one from now on, also where it has grown less: its data may be others.

        Returns:
            Whether it went by another one.
        """
        with self._guard:
            before, self.now = self.now, topic
        return topic is not before

    def ask(self) -> Topic:
        """Reads how far the topic has grown, and returns it.

        A read that took its time never takes back what another thread has heard meanwhile.
        """
        found = self._read()
        with self._guard:
            if found is not None and found.growth.step > self.now.growth.step:
                self.now = found
            return self.now
