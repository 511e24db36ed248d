"""Rounds: a look at all topics takes a bounded time, and the next one goes on where it stopped.

A store may have 10,000 topics, and counting one takes a millisecond or two. Whoever looks at all of
them again and again (the metrics, the console) makes rounds: each look takes topics for half a
second, and keeps what it knows of the others. Whoever looks once (`qframe topics list`,
`qframe doctor`, `explain`) makes one round, and says how far it came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.topic import Topic

Seen = TypeVar("Seen")
ROUND_S: Final = 0.5
"""How long one look at all topics may take; the topic at hand is finished."""

LOOK_UP_S: Final = 5.0
"""How long a message may be looked up in all topics."""


class Rounds(Generic[Seen]):
    """Looks at topics in turn, for a bounded time, and keeps what it has seen of each.

    Args:
        clock: tells the time that has passed.
        seconds: how long one look may take; half a second if it is left out.

    Attributes:
        seen: what was last seen of each topic, by its name.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, seconds: float | None = None) -> None:
        self._clock = clock
        self._seconds = ROUND_S if seconds is None else seconds
        self._last = ""
        self.seen: dict[str, Seen] = {}

    def look(
        self, topics: Sequence[Topic], look_at: Callable[[Topic], Seen], first: str | None = None
    ) -> list[Seen]:
        """Looks at as many topics as there is time for, at each once, and at one at least.

        Args:
            topics: all topics, by name; what was seen of any other is forgotten.
            look_at: looks at one.
            first: the name of one that is looked at out of turn, if it is there.

        Returns:
            What is known of these topics, in their order; of some it may be nothing.
        """
        until_s = self._clock.monotonic_s() + self._seconds
        for topic in self._in_turn(topics, first):
            self.seen[topic.name] = look_at(topic)
            if self._clock.monotonic_s() >= until_s:
                break
        names = [topic.name for topic in topics]
        self.seen = {name: self.seen[name] for name in names if name in self.seen}
        return list(self.seen.values())

    def _in_turn(self, topics: Sequence[Topic], first: str | None) -> Iterator[Topic]:
        start = bisect_right(topics, self._last, key=lambda topic: topic.name)
        wanted = [topic for topic in topics if topic.name == first]
        yield from wanted
        for topic in (*topics[start:], *topics[:start]):
            if topic not in wanted:
                self._last = topic.name
                yield topic
