"""When a message comes again: the signals a handler raises, and the default backoff."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from typing import Final

from qframe.durations import with_unit
from qframe.errors import BadOption
from qframe.topic import BEYOND_MS, duration_ms

CAP_MS: Final = 600_000
MAX_FACTOR: Final = 100


class NeedRetry(Exception):
    """Raised by a handler that wants its message again.

    Without arguments: again in this worker after a short pause, its lane waiting, at most three
    times, then delayed by the consumer's backoff. With one: back to the store until then.

    Args:
        why: a text for the record.
        delay: from now: a number of seconds, a text such as "10m", or a timedelta.
        at: the moment, as a datetime with a time zone or as seconds since 1970.

    Raises:
        BadOption: if both are given, or one is not a time, or `why` is one.
    """

    def __init__(
        self,
        why: str = "",
        *,
        delay: float | str | timedelta | None = None,
        at: datetime | float | None = None,
    ) -> None:
        given: object = why
        if isinstance(given, int | float | timedelta | date):
            name = "at" if isinstance(given, date) else "delay"
            raise BadOption("why", why, "it is not a text", f"write NeedRetry({name}=…) for a time")
        super().__init__(why or "the handler asked for a retry")
        self.delay_ms: int | None
        self.at_ms: int | None
        self.delay_ms, self.at_ms = checked_times(delay, at)

    @property
    def is_local(self) -> bool:
        """Whether no time was named, so that the retry stays in the worker."""
        return self.delay_ms is None and self.at_ms is None


class NeedTime(NeedRetry):
    """Raised by a handler of qframe's own that cannot go on: its message waits, uncounted.

    It waits in this worker, its lane with it, and is handed to the handler again, however often. A
    pause of its group, or the worker's end, gives it back.

    Args:
        why: a text for logs.
        wait_s: how long it waits, in seconds.
    """

    def __init__(self, why: str, wait_s: float) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class Reject(Exception):
    """Raised by a handler for a message that no retry can help: it goes to dead at once."""

    def __init__(self, why: str = "the handler rejected it") -> None:
        super().__init__(why)


class Backoff:
    """Exponential backoff with full jitter: a random time up to `first * factor ** n`, capped.

    Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        first: the bound for the first retry: a text such as "2s", or by keyword a number of
            seconds.
        factor: what the bound grows by with each further attempt, from 1 to 100.
        cap: the largest bound, as `first` is given, in seconds if it is a number; by default 10
            minutes, or `first` if that is longer.

    Raises:
        BadOption: if one of them is out of its bounds, or the cap is below `first`.
    """

    @with_unit("first", "cap")
    def __init__(
        self, first: float | str = 1.0, factor: float = 2.0, cap: float | str | None = None
    ) -> None:
        self.first_ms: int = duration_ms(first, "backoff first")
        self.cap_ms: int = max(CAP_MS, self.first_ms)
        if cap is not None:
            self.cap_ms = duration_ms(cap, "backoff cap")
            if self.cap_ms < self.first_ms:
                raise BadOption(
                    "backoff cap", cap, f"it is shorter than first, which is {first!r}",
                    "use a longer one, or leave it out",
                )  # fmt: skip
        is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not is_number or not 1 <= factor <= MAX_FACTOR:
            raise BadOption("backoff factor", factor, "it must be from 1 to 100", "use 2.0")
        self.factor: float = float(factor)

    def __repr__(self) -> str:
        first, cap = (f"{ms / 1000:g}s" for ms in (self.first_ms, self.cap_ms))
        return f"Backoff({first!r}, factor={self.factor:g}, cap={cap!r})"

    def bound_ms(self, attempt: int) -> int:
        """The longest wait after delivery number `attempt` (from 1), in milliseconds."""
        exponent = min(attempt - 1, 64)
        return int(min(self.cap_ms, self.first_ms * self.factor**exponent))

    def delay_ms(self, attempt: int) -> int:
        """A wait after delivery number `attempt` (from 1), in milliseconds."""
        return int(random.uniform(0, self.bound_ms(attempt)))  # noqa: S311 - jitter, no secret


def checked_times(
    delay: float | str | timedelta | None, at: datetime | float | None
) -> tuple[int | None, int | None]:
    """A delay in milliseconds and a moment in milliseconds since 1970; at most one is not None.

    Raises:
        BadOption: if both are given, or one is not a time.
    """
    if delay is not None and at is not None:
        raise BadOption("at", at, f"delay {delay} is given too", "give one of them")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        return duration_ms(seconds, "delay"), None
    return None, checked_moment(at, "at")


def checked_moment(at: datetime | float | None, what: str) -> int | None:
    """A moment in milliseconds since 1970, if there is one.

    Raises:
        BadOption: if it is none; `what` is the name of its option.
    """
    if at is None:
        return None
    remedy = "use a datetime with a time zone, or seconds since 1970"
    if what == "at":
        remedy += "; for a time from now use delay"
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise BadOption(
                what, at, "it has no time zone", "use datetime.now(UTC), or any aware datetime"
            )
        seconds = at.timestamp()
    elif isinstance(at, int | float) and not isinstance(at, bool):
        seconds = at
    else:
        raise BadOption(what, at, "it is not a point in time", remedy)
    if not 0 <= seconds * 1000 < BEYOND_MS:
        raise BadOption(what, at, "it is not within 1970 and 5138", remedy)
    return round(seconds * 1000)
