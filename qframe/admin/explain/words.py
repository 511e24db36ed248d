"""The causes in words."""

from __future__ import annotations

from typing import Final

from qframe.clock import moment as in_utc
from qframe.outcomes import Verdict
from qframe.stores.history import CANCELLED, EDITED, LOST
from qframe.stores.records import HistoryEntry

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))

_ENDS: Final[dict[str, str]] = {
    Verdict.ACK: "settled it",
    Verdict.RETRY: "failed",
    Verdict.DEAD: "failed for good",
    Verdict.RELEASE: "was given back, uncounted,",
    LOST: "was lost",
}


def moment(ms: int | None) -> str:
    """A moment in UTC, to the millisecond."""
    return in_utc(ms) or "an unknown time"


def span(ms: int) -> str:
    """How long something lasts, in the largest unit of which there are two."""
    for unit, length_ms in _UNITS:
        if ms >= 2 * length_ms:
            return f"{round(ms / length_ms)} {unit}"
    return f"{max(0, ms)} ms"


def attempts(number: int) -> str:
    """A number of attempts."""
    return f"{number} attempt{'' if number == 1 else 's'}"


def ended(one: HistoryEntry, *, names_group: bool = False) -> str:
    """How an attempt ended, whose it was, and after how long."""
    group = f" of group {one.group}" if names_group else ""
    worker = f" by {one.worker}" if one.worker is not None else ""
    took = f" after {span(one.ended_ms - one.began_ms)}" if one.began_ms is not None else ""
    if one.verdict in (EDITED, CANCELLED):
        return f"it was {one.verdict}{group.replace(' of ', ' for ')}{worker}"
    ending = _ENDS.get(one.verdict, f"ended with {one.verdict} (of a newer version of qframe)")
    return f"attempt {one.attempt}{group}{worker} {ending}{took}"


def until(ms: int, now_ms: int) -> str:
    """A moment that is to come, and in how long."""
    return f"until {moment(ms)} (in {span(ms - now_ms)})"


def told(report: str, at_ms: int, now_ms: int) -> str:
    """The words of a worker, and how old they are."""
    return f"{report}; it said so {span(now_ms - at_ms)} ago"
