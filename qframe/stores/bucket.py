"""Buckets of tokens, and their arithmetic; `stores/redis/scripts/draw.lua` does the same."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from qframe.stores.types import DrawResult
from qframe.topic import Topic

PARTS = 1_000_000


class Buckets(Protocol):
    """A bucket of tokens for each group, from which all its workers draw."""

    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        """Draws up to so many tokens from the group's bucket, as many as there are.

        `tokens`, `rate` and `burst` are 1 to 1,000,000, `per_ms` is 1 to 366 days.
        """


class Bucket(NamedTuple):
    """The tokens of a bucket at a moment, in millionths."""

    level: int
    at_ms: int


class DrawTerms(NamedTuple):
    """How many tokens are asked for, and what may be had."""

    tokens: int
    rate: int
    per_ms: int
    burst: int


def drawn(before: Bucket | None, terms: DrawTerms, now_ms: int) -> tuple[DrawResult, Bucket | None]:
    """The grant of a draw, and the bucket after it; None where it stays as it was.

    A bucket is written only when something was granted, so what it has earned is rounded down once
    for each token at most, and asking often earns no less. Where the clock has gone back, it earns
    from now on, and what it held stays.
    """
    full = terms.burst * PARTS
    level, since_ms = before or Bucket(full, now_ms)
    passed_ms = now_ms - since_ms
    has_now = min(full, level + max(0, passed_ms) * terms.rate * PARTS // terms.per_ms)
    granted = min(terms.tokens, has_now // PARTS)
    after = None
    if granted or passed_ms < 0:
        level, passed_ms = has_now - granted * PARTS, 0
        after = Bucket(level, now_ms)
    if granted == terms.tokens:
        return DrawResult(granted, 0), after
    fills_in_ms = -(-(PARTS - level) * terms.per_ms // (terms.rate * PARTS))
    return DrawResult(granted, fills_in_ms - passed_ms), after
