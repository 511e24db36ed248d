"""Marks: numbers by which what belongs to a store knows it again, by whatever URL.

A mark is drawn once. The store keeps it as the name of an internal topic, `qframe.bound.<mark>`,
that never has a message; what belongs to the store keeps the number. So a restored store is the
same one, but a copy is not (`qframe store copy` leaves marks out), nor is one that was flushed, nor
another namespace.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from qframe.clock import Clock
from qframe.topic import STORE_MARK, Kind, Topic

_RANDOM_BITS: Final = 29
_MARK: Final = re.compile(rf"{re.escape(STORE_MARK)}([0-9a-f]{{16}})")


def drawn_mark(clock: Clock) -> int:
    """A new mark: the second, so that people can tell when, and a random number."""
    return (clock.now_ms() // 1000 << _RANDOM_BITS) + secrets.randbelow(2**_RANDOM_BITS)


def drawn_at_ms(mark: int) -> int:
    """When a mark was drawn, to the second, in milliseconds since 1970."""
    return (mark >> _RANDOM_BITS) * 1000


def mark_topic(mark: int) -> Topic:
    """The internal topic, never published to, by which a store is known to have a mark."""
    return Topic(f"{STORE_MARK}{mark:016x}", Kind.STREAM, 1)


def mark_of(topic: Topic) -> int | None:
    """The mark that a topic stands for; None for any other topic."""
    found = _MARK.fullmatch(topic.name)
    return int(found[1], 16) if found else None
