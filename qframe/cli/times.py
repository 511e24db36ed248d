"""Times as they are typed, and as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, overload

from qframe.digits import decimal_number
from qframe.errors import BadOption

A_TIME: Final = "use a time such as 2026-01-31T10:00:00Z"
_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


@overload
def duration_of(text: str) -> float | str: ...
@overload
def duration_of(text: str | None) -> float | str | None: ...
def duration_of(text: str | None) -> float | str | None:
    """A duration: a bare number is seconds; texts with a unit are read where they arrive."""
    if text is None:
        return None
    try:
        return decimal_number(text)
    except ValueError:
        return text


@overload
def moment_of(text: str, what: str, remedy: str = ...) -> datetime | float: ...
@overload
def moment_of(text: str | None, what: str, remedy: str = ...) -> datetime | float | None: ...
def moment_of(text: str | None, what: str, remedy: str = A_TIME) -> datetime | float | None:
    """A moment: ISO 8601, or seconds since 1970.

    Raises:
        BadOption: if it is neither, or has no time zone.
    """
    if text is None:
        return None
    try:
        return decimal_number(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(what, text, "it is not a time", remedy) from None
    if found.tzinfo is None:
        utc = f"{found.isoformat()}Z"
        raise BadOption(what, text, "it has no time zone", f"write one: {utc} is UTC")
    return found


def length(seconds: float) -> str:
    """How long something lasts, in the largest unit of which there are two."""
    seconds = round(seconds)
    for unit, length_s in _UNITS:
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds} s"


def ago(then_ms: int | None, now_ms: int) -> str | None:
    """How long ago something was; a moment ahead, by a clock that is, counts as now."""
    return None if then_ms is None else f"{length(max(now_ms - then_ms, 0) / 1000)} ago"
