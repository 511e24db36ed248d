"""The timing of a schedule: which moments are its ticks.

A tick is a moment in whole seconds. Cron texts are read by the library cronsim, with the rules of
Debian's cron on the nights when clocks change; `dst="literal"` takes local times as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from qframe.errors import BadOption
from qframe.topic import duration_ms

MAX_TEXT: Final = 256
MAX_EXCLUSIONS: Final = 100
PATIENCE: Final = 10_000
"""How many excluded ticks, or spans of them, are passed at once; for more it is looked again."""

DstRule = Literal["debian", "literal"]

_NOTHING: Final = timedelta()
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_MINUTE_MS: Final = 60_000
_QUARTER_MS: Final = 15 * _MINUTE_MS  # of an hour: clocks change at quarters
_LAST_YEAR: Final = 2200
ENDS_MS: Final = round(datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()) * 1000
"""No tick comes at that moment or later."""
_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip
_EVERY: Final = re.compile(r"every\s+(\S+)(?:\s+phase\s+(\S+))?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


class Timing(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The moments at which a schedule ticks; made by `checked_timing`.

    Attributes:
        when: five or six fields of cron, a nickname such as "@daily", or an interval such as
            "every 15m" or "every 1h phase 5m", counted from 1970 in UTC.
        tz: the IANA name of the time zone in which cron fields and dates are read.
        dst: on the nights when clocks change, "debian" as Debian's cron does, or "literal".
        start_ms: no tick comes before it.
        end_ms: no tick comes at it or later.
        exclude: dates ("2026-12-24"), ranges of dates ("2026-12-24/2027-01-01", both included) and
            cron texts; a tick that one of them meets, by local time, is left out.
    """

    when: str
    tz: str = "UTC"
    dst: DstRule = "debian"
    start_ms: int | None = None
    end_ms: int | None = None
    exclude: tuple[str, ...] = ()

    def ticks(self, after_ms: int, until_ms: int | None = None) -> Iterator[int]:
        """The ticks after a moment, in order, as milliseconds since 1970.

        Args:
            after_ms: the moment.
            until_ms: none after that one. Without it they also end before a span in which very many
                in a row are excluded; `look_after` leads on.
        """
        found = self._found(after_ms, until_ms)
        return (tick_ms for tick_ms, is_excluded in found if not is_excluded)

    def next_after(self, after_ms: int) -> int | None:
        """The first tick after a moment; None where there is none."""
        return next(self.ticks(after_ms), None)

    def look_after(self, after_ms: int) -> int | None:
        """The first tick after a moment, or an excluded one before it, from which to look again.

        Returns:
            None where nothing is to come.
        """
        return next((tick_ms for tick_ms, _ in self._found(after_ms)), None)

    def _found(self, after_ms: int, until_ms: int | None = None) -> Iterator[tuple[int, bool]]:
        """The ticks after a moment; at last, where patience ends, one that is excluded."""
        if self.start_ms is not None:
            after_ms = max(after_ms, self.start_ms - 1)
        passed = 0
        found = self._all(after_ms)
        while (tick_ms := next(found, None)) is not None:
            if self.end_ms is not None and tick_ms >= self.end_ms:
                return
            if until_ms is not None and tick_ms > until_ms:
                return
            excluded_ms = self._excluded_until(tick_ms)
            if excluded_ms is None:
                passed = 0
                yield tick_ms, False
                continue
            passed += 1
            if passed > PATIENCE and until_ms is None:
                yield tick_ms, True
                return
            if excluded_ms > tick_ms:
                found = self._all(excluded_ms - 1)

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        """The last tick at or before a moment, and after another; None where there is none."""
        span_ms = 60_000
        while True:
            from_ms = max(after_ms, until_ms - span_ms)
            last = None
            for tick_ms in self.ticks(from_ms, until_ms):
                last = tick_ms
            if last is not None or from_ms == after_ms:
                return last
            span_ms *= 4

    def local(self, tick_ms: int) -> datetime:
        """A tick in the schedule's own time zone."""
        return datetime.fromtimestamp(tick_ms / 1000, zone_of(self.tz))

    @property
    def cron(self) -> str | None:
        """The fields of cron; None for an interval."""
        return None if _EVERY.fullmatch(self.when) else _NICKNAMES.get(self.when, self.when)

    def _all(self, after_ms: int) -> Iterator[int]:
        """The ticks after a moment, those that are excluded too."""
        if after_ms >= ENDS_MS:
            return
        interval = _EVERY.fullmatch(self.when)
        if interval is not None:
            step_ms, phase_ms = (duration_ms(each or "0s", "when") for each in interval.groups())
            tick_ms = phase_ms + ((after_ms - phase_ms) // step_ms + 1) * step_ms
            yield from range(tick_ms, ENDS_MS, step_ms)
            return
        zone = zone_of(self.tz)
        for moment in _moments(self.cron or "", after_ms, zone, self.dst):
            if moment.year > _LAST_YEAR:
                return
            yield round(moment.timestamp() * 1000)

    def _excluded_until(self, tick_ms: int) -> int | None:
        """Until when ticks are excluded, if this one is: a moment at or after it."""
        local = self.local(tick_ms)
        for text in self.exclude:
            span = _dates(text)
            if span is not None and span[0] <= local.date() <= span[1]:
                return max(tick_ms, _end_of(span[1], local))
            if span is None and _meets(text, local.replace(tzinfo=None)):
                return max(tick_ms, _end_of_span(text, tick_ms, local))
        return None


def checked_timing(timing: Timing, after_ms: int = 0) -> Timing:
    """The timing itself, with its texts trimmed, if it makes sense and has a tick after a moment.

    Raises:
        BadOption: otherwise.
    """
    when = _text("when", timing.when, 'use five fields such as "0 9 * * 1-5", or "every 15m"')
    if len(timing.exclude) > MAX_EXCLUSIONS:
        raise BadOption("exclude", f"{len(timing.exclude)} of them",
                        f"there may be {MAX_EXCLUSIONS}", "use ranges of dates")  # fmt: skip
    exclude = tuple(
        _text("exclude", each, 'use a date such as "2026-12-24", or five fields of cron')
        for each in timing.exclude
    )
    checked = msgspec.structs.replace(timing, when=when, exclude=exclude)
    check_fields(checked)
    if checked.cron is None and checked.dst != "debian":
        raise BadOption("dst", checked.dst, "an interval has no local times, whatever clocks do",
                        "leave it out, or use fields of cron")  # fmt: skip
    if checked.next_after(after_ms) is None:
        raise BadOption("when", when, "no tick is to come",
                        "look at its fields, start, end and exclude")  # fmt: skip
    return checked


def check_fields(timing: Timing) -> None:
    """Checks that its ticks can be found here: another machine may know more zones and fields.

    Raises:
        BadOption: if they cannot.
    """
    when = timing.when
    zone_of(timing.tz)
    if timing.dst not in ("debian", "literal"):
        raise BadOption("dst", timing.dst, "there is no such rule", 'use "debian" or "literal"')
    if interval := _EVERY.fullmatch(when):
        if duration_ms(interval[1], "when") < 1000 or duration_ms(interval[1], "when") % 1000:
            raise BadOption("when", when, "an interval has whole seconds, at least one",
                            'use "every 1s" or more')  # fmt: skip
        duration_ms(interval[2] or "0s", "when")
    elif when.startswith("@") and when not in _NICKNAMES:
        names = ", ".join(sorted(_NICKNAMES))
        raise BadOption("when", when, "there is no such nickname", f"use one of {names}")
    else:
        _check_cron("when", _NICKNAMES.get(when, when))
    if timing.end_ms is not None and timing.end_ms <= (timing.start_ms or 0):
        raise BadOption("end", timing.end_ms, "it is not after start", "give a later end")
    for each in timing.exclude:
        if _dates(each) is None:
            _check_cron("exclude", each)


def zone_of(name: object) -> ZoneInfo:
    """The time zone of a name.

    Raises:
        BadOption: if there is none.
    """
    try:
        if isinstance(name, str) and 0 < len(name) <= MAX_TEXT:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise BadOption("tz", name, "there is no such time zone", 'use a name such as "Europe/Berlin"')


def in_words(timing: Timing) -> str:
    """The timing in English."""
    cron = timing.cron
    if cron is None:
        return timing.when
    return f"{CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)).explain()} ({timing.tz})"


def local_times(cron: str, first: datetime, behind: datetime) -> Iterator[datetime]:
    """The local times that cron fields name in a span of them, whatever the clocks do."""
    for naive in CronSim(cron, first - _SECOND):
        if naive >= behind:
            return
        yield naive


def _moments(cron: str, after_ms: int, zone: ZoneInfo, dst: DstRule) -> Iterator[datetime]:
    """The moments after another at which cron fields tick, in order."""
    after = datetime.fromtimestamp(after_ms // 1000, UTC)
    moments = _fixed if dst == "debian" and _is_fixed(cron) else _literal
    # Without a zone, since in a zone cronsim steps over times where clocks change by half an hour.
    named = CronSim(cron, _earliest_behind(after, zone))
    return (each for each in moments(named, zone) if each > after)


def _is_fixed(cron: str) -> bool:
    """Whether its hours and minutes are named, so that its ticks are those of a fixed time."""
    minutes, hours = cron.split()[-5:-3]
    return not minutes.startswith("*") and not hours.startswith("*")


def _earliest_behind(after: datetime, zone: ZoneInfo) -> datetime:
    """A local time no later than that of any moment after another.

    It is earlier than the moment's own where clocks are about to go back.
    """
    local = after.astimezone(zone)
    back = _offset(local) - _offset((after + timedelta(hours=25)).astimezone(zone))
    is_near = back > _NOTHING and _offset((after + back).astimezone(zone)) < _offset(local)
    return local.replace(tzinfo=None, fold=0) - (back if is_near else _NOTHING)


def _fixed(named: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """One moment for each local time: the first, or where it is left out the end of the gap."""
    last = None
    for naive in named:
        moment = naive.replace(tzinfo=zone)
        while _offset(moment) < _offset(moment.replace(fold=1)):
            moment = moment.replace(second=0) + _MINUTE
        if moment != last:
            last = moment
            yield moment.astimezone(UTC)


def _literal(named: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """Each local time that is there, and twice where it comes twice."""
    again: list[datetime] = []
    for naive in named:
        first, second = (naive.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if _offset(first) > _offset(second):
            again.append(second)
        else:  # behind the times that come twice: they have come once
            yield from (each.astimezone(UTC) for each in again)
            again.clear()
        if _offset(first) >= _offset(second):
            yield first.astimezone(UTC)
    yield from (each.astimezone(UTC) for each in again)


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or _NOTHING


def _dates(text: str) -> tuple[date, date] | None:
    """The first and last date that a text excludes; None for a cron text.

    Raises:
        BadOption: if it looks like dates and is none.
    """
    if not _DATE.match(text):
        return None
    first, _, last = text.partition("/")
    try:
        span = date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError:
        span = None
    if span is None or span[1] < span[0] or span[1].year >= _LAST_YEAR:
        raise BadOption("exclude", text, "it is no date, or no range of dates",
                        'use "2026-12-24" or "2026-12-24/2027-01-01"')  # fmt: skip
    return span


def _end_of(day: date, local: datetime) -> int:
    """When a day is over, in the time zone of a local time."""
    after = day + timedelta(days=1)
    return (
        round(datetime(after.year, after.month, after.day, tzinfo=local.tzinfo).timestamp()) * 1000
    )


def _end_of_span(cron: str, tick_ms: int, local: datetime) -> int:
    """Until when a cron text that names a moment surely names all that follow it."""
    fields = CronSim(cron, local)
    if len(cron.split()) > 5 and len(fields.seconds) < 60:
        return tick_ms
    if len(fields.minutes) < 60:
        return tick_ms // _MINUTE_MS * _MINUTE_MS + _MINUTE_MS
    if len(fields.hours) < 24:
        return tick_ms // _QUARTER_MS * _QUARTER_MS + _QUARTER_MS
    return _end_of(local.date(), local)


def _meets(cron: str, local: datetime) -> bool:
    """Whether a cron text names a local time; to the minute, if it has no seconds."""
    if len(cron.split()) == 5:
        local = local.replace(second=0)
    local = local.replace(microsecond=0, fold=0)
    return next(CronSim(cron, local - _SECOND), None) == local


def _text(what: str, text: object, remedy: str) -> str:
    if isinstance(text, str) and text.strip() and len(text) <= MAX_TEXT:
        return text.strip()
    raise BadOption(what, text, f"it must be a text of 1 to {MAX_TEXT} characters", remedy)


@lru_cache(maxsize=256)
def _check_cron(what: str, text: str) -> None:
    try:
        if next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)), None) is not None:
            return
    except CronSimError as error:
        _refuse(what, text, str(error).lower())
    _refuse(what, text, "it never comes")


def _refuse(what: str, text: str, why: str) -> NoReturn:
    raise BadOption(
        what, text, why,
        'use five fields such as "0 9 * * 1-5", a nickname such as "@daily", or "every 15m"',
    ) from None  # fmt: skip
