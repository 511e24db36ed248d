"""Lines that a relay leaves alone for a while, because a topic has refused them."""

from __future__ import annotations

from typing import Final

from qframe.clock import Clock

FIRST_S: Final = 0.1
LONGEST_S: Final = 30.0


class BlockedLines:
    """For lines of a topic, or a whole topic: until when, and how long the next pause is.

    Args:
        clock: for their ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[tuple[str, int | None], float] = {}
        self._length_s: dict[tuple[str, int | None], float] = {}
        self._asked: int | None = None

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def begin(self, topic: str, line: int | None) -> bool:
        """Pauses a line, or with None its whole topic, longer than the last time.

        Returns whether this is the first pause since the last success.
        """
        line_key = (topic, line)
        if line_key in self._until_s:
            return False
        known = self._length_s.get(line_key)
        length_s = FIRST_S if known is None else min(LONGEST_S, known * 2)
        self._length_s[line_key] = length_s
        self._until_s[line_key] = self._clock.monotonic_s() + length_s
        return known is None

    def end(self, topic: str, line: int) -> None:
        """It went well."""
        if self._length_s:
            for line_key in ((topic, line), (topic, None)):
                self._length_s.pop(line_key, None)

    def forget_if_new(self, asked: int) -> None:
        """Ends all pauses, and begins anew with short ones, if somebody has asked for that since.

        Args:
            asked: a number that is another one each time that somebody does.
        """
        known, self._asked = self._asked, asked
        if known is not None and known != asked:
            self._until_s.clear()
            self._length_s.clear()

    def has(self, topic: str, line: int) -> bool:
        """Whether a line was paused, and nobody has looked since whether that is over."""
        return (topic, line) in self._until_s or (topic, None) in self._until_s

    def in_force(self) -> dict[str, set[int] | None]:
        """For each topic its paused lines, or None if it is paused whole; ends what is over."""
        now_s = self._clock.monotonic_s()
        self._until_s = {key: end_s for key, end_s in self._until_s.items() if end_s > now_s}
        paused: dict[str, set[int] | None] = {}
        for topic, line in self._until_s:
            lines = paused.setdefault(topic, set())
            if line is None:
                paused[topic] = None
            elif lines is not None:
                lines.add(line)
        return paused

    def at_most(self, wait_s: float) -> float:
        """The wait, cut to the end of the first pause that ends."""
        if not self._until_s:
            return wait_s
        return min(wait_s, max(0.001, min(self._until_s.values()) - self._clock.monotonic_s()))
