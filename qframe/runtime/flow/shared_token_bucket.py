"""A bucket in the store, from which all workers of a group draw."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from qframe.clock import Clock
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.options.flow import DRAWN_FOR_S, RateLimit
from qframe.runtime.context import ConsumerContext
from qframe.runtime.flow.token_bucket import REFILL_S, LocalTokenBucket, TokenBucket
from qframe.stores.controls import Controls
from qframe.stores.types import DrawResult

AGAIN_S: Final = 0.02


class SharedTokenBucket:
    """Draws a few tokens at a time from the store, for handlers that begin.

    Tokens that were drawn are good for 100 ms, so that a worker that dies or falls idle keeps
    little from the others, and since the bucket in the store is smaller than the burst by what
    comes in 100 ms, no more handlers begin in any time than burst and rate allow.

    It draws for what was pulled, so that looking for messages costs nobody a token. It pulls one at
    first, and twice as many each time that all tokens were used, up to what 100 ms bring; as many
    as were used where some were not. For messages that are ready and have not asked for a token yet
    it draws nothing: they wait for a thread.

    Args:
        limit: the rate and the burst.
        draw: draws up to so many tokens from a bucket that holds so many.
        wake: has the pull loop ask again.
        clock: whose monotonic time counts.
    """

    gather_s: float = 0.0  # tokens that were drawn would expire meanwhile

    def __init__(
        self,
        limit: RateLimit,
        *,
        draw: Callable[[int, int], DrawResult],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._draw = draw
        self._wake = wake
        self._clock = clock
        self._capacity = max(1, limit.burst - limit.meanwhile)
        self._refill_size = max(1, min(int(limit.per_s * REFILL_S), self._capacity // 2))
        self._pause_s = min(REFILL_S, self._refill_size / limit.per_s)
        self._guard = threading.Lock()
        self._tokens: deque[tuple[float, int]] = deque()
        self._held = 0
        self._worth = 1
        self._used = 0
        self._passed = 0
        self._refused = 0
        self._dry_until_s = 0.0

    def room(self, ready: int) -> int:
        """How many may be pulled: as many as there are spare tokens, else a refill.

        Draws for messages that have asked for a token in vain.
        """
        now_s = self._clock.monotonic_s()
        with self._guard:
            self._expire(now_s)
            if self._held > ready:
                return self._held - ready
            if now_s < self._dry_until_s:
                return 0
            refused, self._refused = self._refused, 0
            if not refused:
                return 0 if ready else self._worth
            wanted = min(self._refill_size, max(refused, self._worth))
        self._draw_some(wanted)
        with self._guard:
            return max(0, self._held - ready)

    @property
    def tokens(self) -> int:
        """How many tokens were drawn and not used yet."""
        with self._guard:
            self._expire(self._clock.monotonic_s())
            return self._held

    def prefetch(self, count: int) -> None:
        """Draws the tokens that are missing for messages that were pulled."""
        now_s = self._clock.monotonic_s()
        with self._guard:
            self._expire(now_s)
            missing = min(count, self._capacity) - self._held
            if missing <= 0 or now_s < self._dry_until_s:
                return
        self._draw_some(missing)

    def _draw_some(self, wanted: int) -> None:
        now_s = self._clock.monotonic_s()
        try:
            drawn = self._draw(wanted, self._capacity)
        except (StoreUnavailable, UnknownGroup):  # the next pull says so
            drawn = DrawResult(0, round(REFILL_S * 1000))
        got_s = self._clock.monotonic_s()
        with self._guard:
            self._adapt()
            if drawn.granted:
                until_s = max(now_s + DRAWN_FOR_S, got_s + DRAWN_FOR_S / 2)
                self._tokens.append((until_s, drawn.granted))
                self._held += drawn.granted
            if drawn.granted < wanted:
                self._dry_until_s = got_s + max(drawn.wait_ms / 1000, self._pause_s)

    def again_s(self, ready: int) -> float:
        """After how long there may be tokens again."""
        del ready
        left_s = self._dry_until_s - self._clock.monotonic_s()
        return left_s if left_s > 0 else REFILL_S

    def take(self) -> float:
        """Takes a token: 0 if there was one, else after how long to try again."""
        now_s = self._clock.monotonic_s()
        with self._guard:
            self._expire(now_s)
            if self._held:
                until_s, count = self._tokens[0]
                if count == 1:
                    self._tokens.popleft()
                else:
                    self._tokens[0] = (until_s, count - 1)
                self._held -= 1
                self._used += 1
                return 0.0
            self._refused += 1
            wait_s = max(AGAIN_S, self._dry_until_s - now_s)
        self._wake()
        return wait_s

    def _expire(self, now_s: float) -> None:
        while self._tokens and self._tokens[0][0] <= now_s:
            _, count = self._tokens.popleft()
            self._held -= count
            self._passed += count

    def _adapt(self) -> None:
        """Adapts the next draw to how many of the last tokens were used."""
        if self._passed:
            self._worth = max(1, min(self._used, self._refill_size))
        elif self._used:
            self._worth = min(self._refill_size, self._worth * 2)
        self._used = self._passed = 0


def bucket_for(
    limit: RateLimit, *, context: ConsumerContext, store: Controls, wake: Callable[[], None]
) -> TokenBucket:
    """The bucket that a limit asks for."""
    if limit.over == "worker":
        return LocalTokenBucket(limit, context.clock)

    def draw(tokens: int, burst: int) -> DrawResult:
        return store.draw(
            context.topic, context.group, tokens,
            rate=limit.tokens, per_ms=limit.per_ms, burst=burst,
        )  # fmt: skip

    return SharedTokenBucket(limit, draw=draw, wake=wake, clock=context.clock)
