"""Ticks for people: the next ones of a timing, those that clocks move, and those made up for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from qframe.outcomes import Published
from qframe.schedules.timing import Timing, in_words, local_times, zone_of

AHEAD: Final = timedelta(days=366)
_UNITS: Final = (("h", 24, "day"), ("m", 60, "hour"), ("s", 60, "minute"))
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which a schedule ticks.

    Attributes:
        at_ms: the moment, in milliseconds since 1970.
        utc: the same, as a text in UTC.
        local: the same, in the schedule's time zone.
    """

    at_ms: int
    utc: str
    local: str


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The next ticks of a schedule.

    Attributes:
        words: its timing in English.
        ticks: the next ticks; fewer than were asked for if there are no more.
        warnings: a sentence for fields that may mean something else than was meant, and one for
            each night within a year in which clocks change, and move a tick or let it come twice.
    """

    words: str
    ticks: list[Tick]
    warnings: list[str]


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a backfill.

    Attributes:
        ticks: the ticks of the range.
        published: the message of each; empty in a dry run.
    """

    ticks: list[Tick]
    published: list[Published]


def preview_of(timing: Timing, after_ms: int, count: int) -> Preview:
    """The ticks after a moment, and what clocks do to those of the next year."""
    ticks = [tick_of(timing, each) for each in islice(timing.ticks(after_ms), count)]
    warnings = [*warnings_of(timing), *_of_clocks(timing, after_ms)]
    return Preview(words=in_words(timing), ticks=ticks, warnings=warnings)


def warnings_of(timing: Timing) -> list[str]:
    """A sentence for each of its fields of cron that may mean something else than was meant."""
    if timing.cron is None:
        return []
    fields = timing.cron.split()
    day, weekday = fields[-3], fields[-1]
    found = []
    if day != "*" and weekday != "*":
        both = f"day of the month {day} and day of the week {weekday}"
        is_both = day.startswith("*") or weekday.startswith("*")
        how = "a tick's day fits both, since one begins with *" if is_both else "either will do"
        found.append(f"{both}: {how}")
    for (unit, size, whole), field in zip(_UNITS, reversed(fields[:-3]), strict=False):
        step = re.fullmatch(r"\*/(\d+)", field)
        if step and size % int(step[1]):
            how = f'it begins anew with each {whole}; "every {step[1]}{unit}" does not'
            found.append(f"{field} does not divide the {whole}: {how}")
    return found


def tick_of(timing: Timing, at_ms: int) -> Tick:
    """A moment, as it is shown."""
    utc = datetime.fromtimestamp(at_ms / 1000, UTC)
    return Tick(
        at_ms=at_ms, utc=utc.isoformat().replace("+00:00", "Z"),
        local=timing.local(at_ms).isoformat(),
    )  # fmt: skip


def _of_clocks(timing: Timing, after_ms: int) -> Iterator[str]:
    if timing.cron is None:
        return
    for change in _changes(timing, after_ms):
        before = (_local(timing, change - _SECOND) + _SECOND).replace(tzinfo=None)
        after = _local(timing, change).replace(tzinfo=None)
        first, behind = min(before, after), max(before, after)
        named = [f"{each:%H:%M}" for each in islice(local_times(timing.cron, first, behind), 3)]
        if not named:
            continue
        is_gap = before < after
        # The moments to look at: behind a gap, and both times that have the same local time.
        begin_ms = _ms(change if is_gap else change - (behind - first))
        end_ms = _ms(change + (behind - first))
        ticks = islice(timing.ticks(begin_ms - 1), 4)
        fires = [f"{timing.local(each):%H:%M%z}" for each in ticks if each < end_ms]
        yield (
            f"{before:%Y-%m-%d}: in {timing.tz} clocks go from {before:%H:%M} to {after:%H:%M}, so "
            f"{', '.join(named)} {'is left out' if is_gap else 'comes twice'}; "
            f"it ticks then at {', '.join(fires) or 'no time'}"
        )


def _changes(timing: Timing, after_ms: int) -> Iterator[datetime]:
    """The moments within a year at which the zone's clocks change, to the second."""
    low = datetime.fromtimestamp(after_ms // 1000, UTC)
    end = low + AHEAD
    while low < end:
        high = low + _DAY
        if _local(timing, low).utcoffset() != _local(timing, high).utcoffset():
            yield _change_between(timing, low, high)
        low = high


def _change_between(timing: Timing, low: datetime, high: datetime) -> datetime:
    offset = _local(timing, low).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if _local(timing, middle).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


def _local(timing: Timing, at: datetime) -> datetime:
    return at.astimezone(zone_of(timing.tz))


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
