"""A membership that is told what is its member's, and a coordinator with no other."""

from __future__ import annotations

from collections.abc import Callable, Collection

from qframe.coordination.base import NOTHING, Assignment
from qframe.errors import UnknownGroup
from qframe.topic import Topic


class Seated:
    """A membership that is told what is its member's, and a coordinator with no other."""

    paused = False
    certain_until_s = float("inf")

    def __init__(self) -> None:
        self.now = NOTHING
        self.refused: list[int] = []
        self.empty: list[int] = []
        self.shared: list[Topic] = []
        self.on_change: Callable[[], None] = lambda: None

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> Seated:
        self.on_change = on_change
        return self

    def assignment(self) -> Assignment:
        return self.now

    def owns(self, leaving: Collection[int] = (), **owned: str) -> None:
        """What is owned from now on: slots `s0` and `s1`, under epochs."""
        epochs = {int(name[1:]): epoch for name, epoch in owned.items()}
        self.now = Assignment(epochs, frozenset(leaving))
        self.on_change()

    def unknown(self) -> UnknownGroup | None:
        return None

    def certain(self) -> bool:
        return True

    def fenced(self, slots: Collection[int]) -> None:
        self.refused += slots

    def drained(self, slots: Collection[int]) -> None:
        self.empty += slots

    def share(self, topic: Topic) -> None:
        if self.shared[-1:] != [topic]:
            self.shared.append(topic)

    def leave(self) -> None:
        self.now = NOTHING
