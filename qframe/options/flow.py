"""Flow control as a consumer asks for it: how often, and when to pause by itself."""

from __future__ import annotations

import math
import re
from typing import Final, Literal, cast

from qframe.errors import BadEffectKey, BadOption, UndecodableBody
from qframe.retry import NeedRetry, Reject
from qframe.topic import checked_count, duration_ms

Over = Literal["worker", "group"]

MOST_TOKENS: Final = 1_000_000
SHORTEST_MS: Final = 1
LONGEST_MS: Final = 86_400_000
MOST_FAILURES: Final = 100_000
LONGEST_PAUSE_MS: Final = 7 * 86_400_000
BURST_S: Final = 0.3
DRAWN_IN_A_S: Final = 10
DRAWN_FOR_S: Final = 1 / DRAWN_IN_A_S
_OF_MESSAGES: Final = (Reject, UndecodableBody, BadEffectKey)
_RATE: Final = re.compile(r"([0-9]{1,7}) */ *([0-9]{0,9}) *(ms|s|m|h|d)")
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BURST_REMEDY: Final = "leave it out: the default is 0.3 s of the rate"
_RATE_REMEDY: Final = 'use a string such as "100/s", "6000/m", "50/h", "1/500ms"'


class RateLimit:
    """How often a consumer's handler may begin.

    In any span of `t` seconds it begins at most `burst + rate * t` times. (Over a group and with a
    burst of 1, two may be closer than the rate says, by 0.1 s.)

    Args:
        rate: how many times in how long: "100/s", "6000/m", "50/h", "1/500ms".
        burst: how many may begin at once after a quiet time; by default what 0.3 s allow, and 1
            at least.
        over: "worker": each worker may; "group": all workers of the group together.

    Raises:
        BadOption: if one of these is not as described, or the burst is less than what 0.2 s allow
            where workers share it.
    """

    def __init__(self, rate: str, *, burst: int | None = None, over: Over = "worker") -> None:
        if not isinstance(rate, str) or (match := _RATE.fullmatch(rate.strip(" "))) is None:
            raise BadOption("rate_limit", rate, "it is not a rate", _RATE_REMEDY)
        self.tokens: int = int(match[1])
        self.per_ms: int = int(match[2] or 1) * _MS[match[3]]
        if not 1 <= self.tokens <= MOST_TOKENS or not SHORTEST_MS <= self.per_ms <= LONGEST_MS:
            why = f"it must be 1 to {MOST_TOKENS} times in up to a day"
            raise BadOption("rate_limit", rate, why, _RATE_REMEDY)
        if over not in ("worker", "group"):
            raise BadOption(
                "over", over, "it must be 'worker' or 'group'", "leave it out: 'worker'"
            )
        self.over = over
        self.rate: str = rate.strip(" ")
        least = self._least_burst(over)
        most = max(MOST_TOKENS, least)
        if burst is None:
            burst = max(1, least, int(self.per_s * BURST_S))
        elif checked_count("burst", burst, _BURST_REMEDY, most) < least:
            why = "workers that share a limit draw 0.1 s of it at a time; burst must be twice that"
            raise BadOption("burst", burst, why, f"use {least} or more, or over='worker'")
        self.burst = burst

    @property
    def per_s(self) -> float:
        """How often in a second."""
        return self.tokens * 1000 / self.per_ms

    @property
    def meanwhile(self) -> int:
        """How many tokens come while those that were drawn are good, rounded up."""
        return math.ceil(self.per_s / DRAWN_IN_A_S)

    def at(self, rate: str) -> RateLimit:
        """The same at another rate, its burst grown by as much.

        Raises:
            BadOption: if it is not a rate.
        """
        other = RateLimit(rate, over=self.over)
        scaled = round(self.burst * other.per_s / self.per_s)
        burst = max(1, min(MOST_TOKENS, scaled), other._least_burst(self.over))
        return RateLimit(rate, burst=burst, over=self.over)

    def _least_burst(self, over: Over) -> int:
        if over == "worker" or self.per_s <= DRAWN_IN_A_S:
            return 1
        return 2 * self.meanwhile

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RateLimit):
            return NotImplemented
        return self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[object, ...]:
        return (self.tokens, self.per_ms, self.burst, self.over)

    def __repr__(self) -> str:
        return f"RateLimit({self.rate!r}, burst={self.burst}, over={self.over!r})"


def rate_limit_of(value: object) -> RateLimit | None:
    """A rate limit, from one, from the text of a rate, or None.

    Raises:
        BadOption: if it is neither.
    """
    if value is None or isinstance(value, RateLimit):
        return value
    return RateLimit(cast("str", value))


class Breaker:
    """When a consumer pauses by itself, since what its handler needs seems to be away.

    After so many failures in a row it pauses: it pulls nothing, and gives back uncounted what no
    handler has in hand. Then it takes one message as a probe. If that is handled it goes on; if it
    fails too, the consumer pauses again, twice as long each time.

    Each worker counts for itself. `Reject`, bodies that cannot be decoded and `NeedRetry` count
    neither as failures nor as successes; `NeedRetry` does where `on` names it.

    Args:
        failures: how many failures in a row it takes.
        pause: how long the first pause lasts: a number of seconds, or a text such as "30s".
        longest: how long a pause lasts at most, given as `pause` is; by default 10 minutes, or
            `pause` if that is longer.
        on: the type of the errors that count, or several.

    Raises:
        BadOption: if one of these is not as described.
    """

    def __init__(
        self,
        failures: int = 10,
        *,
        pause: float | str = "30s",
        longest: float | str | None = None,
        on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    ) -> None:
        self.failures: int = checked_count(
            "failures", failures, "use 10, or leave it out", MOST_FAILURES
        )
        self.pause_ms: int = duration_ms(pause, "pause")
        if not 1 <= self.pause_ms <= LONGEST_PAUSE_MS:
            raise BadOption(
                "pause", pause, "it must be 1 ms to 7 days", 'use "30s", or leave it out'
            )
        if longest is None:
            longest = max(600.0, self.pause_ms / 1000)
        self.longest_ms: int = duration_ms(longest, "longest")
        if not self.pause_ms <= self.longest_ms <= LONGEST_PAUSE_MS:
            why = "it must be as long as pause or longer, up to 7 days"
            raise BadOption("longest", longest, why, 'use "10m", or leave it out')
        self.on: tuple[type[BaseException], ...] = on if isinstance(on, tuple) else (on,)
        for each in self.on:
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise BadOption("on", on, "it must be an exception type", "use Exception")
        if all(issubclass(each, _OF_MESSAGES) for each in self.on):
            why = "no failure would count" if self.on else "it names no exception type"
            raise BadOption("on", on, why, "use Exception, or leave it out")

    def counts(self, error: BaseException) -> bool:
        """Whether an error that a handler has raised counts as a failure."""
        if isinstance(error, _OF_MESSAGES):
            return False
        if isinstance(error, NeedRetry):
            return any(issubclass(each, NeedRetry) for each in self.on)
        return isinstance(error, self.on)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Breaker):
            return NotImplemented
        return self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[object, ...]:
        return (self.failures, self.pause_ms, self.longest_ms, self.on)

    def __repr__(self) -> str:
        pause, longest = (f"{ms / 1000:g}s" for ms in (self.pause_ms, self.longest_ms))
        on = ", ".join(each.__name__ for each in self.on)
        return f"Breaker({self.failures}, pause={pause!r}, longest={longest!r}, on=({on}))"
