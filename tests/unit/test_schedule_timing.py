"""Ticks of schedules: the nights when clocks change, intervals, exclusions, texts refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qframe.errors import BadOption
from qframe.schedules import timing as module
from qframe.schedules.timing import DstRule, Timing, checked_timing

NOW = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def utc(text: str) -> int:
    return ms(datetime.fromisoformat(text).replace(tzinfo=UTC))


def shown(when: str, tz: str, day: str, *, dst: DstRule = "debian", hours: float = 24) -> list[str]:
    """The ticks from a local midnight on, as local times with their offsets."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz))
    end_ms = ms(begin) + round(hours * 3_600_000)
    timing = Timing(when=when, tz=tz, dst=dst, end_ms=end_ms)
    return [
        timing.local(tick).isoformat(timespec="minutes") for tick in timing.ticks(ms(begin) - 1)
    ]


NIGHTS: list[tuple[str, str, str, float, list[str]]] = [
    # A fixed time in the gap comes once, right behind it, with seconds as well.
    ("30 2 * * *", "America/New_York", "2026-03-08", 24, ["03-08T03:00-04:00"]),
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-29", 24, ["03-29T03:00+02:00"]),
    ("*/20 30 2 * * *", "Europe/Berlin", "2026-03-29", 24, ["03-29T03:00+02:00"]),
    # A fixed time in the hour that comes twice comes once.
    ("30 1 * * *", "America/New_York", "2026-11-01", 24, ["11-01T01:30-04:00"]),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-25", 24, ["10-25T02:30+02:00"]),
    # Every second hour makes nothing up for the gap.
    (
        "0 */2 * * *", "Europe/Berlin", "2026-03-29", 6,
        ["03-29T00:00+01:00", "03-29T04:00+02:00", "03-29T06:00+02:00"],
    ),
    # A midnight that is left out comes at one, and no day is lost.
    (
        "0 0 * * *", "America/Santiago", "2026-09-06", 30,
        ["09-06T01:00-03:00", "09-07T00:00-03:00"],
    ),
    # Gaps and folds of half an hour and of two hours, and at a quarter.
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", 24, ["10-04T02:30+11:00"]),
    ("0 3 * * *", "Pacific/Chatham", "2026-09-27", 24, ["09-27T03:45+13:45"]),
    ("0 3 * * *", "Pacific/Chatham", "2026-04-05", 24, ["04-05T03:00+13:45"]),
    ("30 1 * * *", "Antarctica/Troll", "2026-03-29", 20, ["03-29T03:00+02:00"]),
    (
        "*/10 2 * * *", "Australia/Lord_Howe", "2026-04-05", 24,
        [f"04-05T02:{minute}0+10:30" for minute in range(6)],
    ),
    # Every half hour goes on through the hour that comes twice.
    (
        "*/30 * * * *", "America/New_York", "2026-11-01", 3,
        ["11-01T00:00-04:00", "11-01T00:30-04:00", "11-01T01:00-04:00", "11-01T01:30-04:00",
         "11-01T01:00-05:00", "11-01T01:30-05:00"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("when", "tz", "day", "hours", "expected"), NIGHTS)
def test_on_the_nights_when_clocks_change_ticks_come_as_by_debians_cron(
    when: str, tz: str, day: str, hours: float, expected: list[str]
) -> None:
    assert shown(when, tz, day, hours=hours) == [f"2026-{each}" for each in expected]


def test_a_fold_of_half_an_hour_leaves_no_second_out() -> None:
    assert len(shown("*/30 * 3 * * *", "Australia/Lord_Howe", "2026-04-05")) == 120


def test_literal_leaves_out_what_is_not_there_and_takes_twice_what_comes_twice() -> None:
    assert shown("30 2 * * *", "America/New_York", "2026-03-08", dst="literal") == []
    found = shown("0,30 1,2 * * *", "America/New_York", "2026-11-01", dst="literal", hours=5)
    assert [each[11:19] for each in found] == [
        "01:00-04", "01:30-04", "01:00-05", "01:30-05", "02:00-05", "02:30-05",
    ]  # fmt: skip


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll",
         "Pacific/Chatham", "America/Santiago", "UTC")  # fmt: skip
CRONS = ("30 2 * * *", "*/20 * * * *", "0 */2 * * *", "15,45 1-3 * * *", "0 0 * * *", "@hourly",
         "*/7 2 * * *", "0 0 3 * * *", "15 * 2 * * *", "*/30 30 1,2 * * *")  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("dst", ["debian", "literal"])
def test_a_year_of_fields_that_just_go_on_is_that_of_the_clocks(zone: str, dst: DstRule) -> None:
    begin, tz = datetime(2026, 1, 1, tzinfo=UTC), ZoneInfo(zone)
    minutes = [begin + timedelta(minutes=5 * number) for number in range(1, 365 * 288)]
    expected = [
        ms(each)
        for each in minutes
        if each.astimezone(tz).hour in (2, 3) and each.astimezone(tz).minute % 10 == 0
    ]
    timing = Timing(when="*/10 2,3 * * *", tz=zone, dst=dst)
    assert list(timing.ticks(ms(begin), ms(minutes[-1]))) == expected


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(ZONES), when=st.sampled_from(CRONS),
    dst=st.sampled_from(["debian", "literal"]),
    hour=st.integers(0, 8760), minute=st.integers(0, 59),
)  # fmt: skip
def test_ticks_are_the_same_wherever_they_are_counted_from(
    zone: str, when: str, dst: DstRule, hour: int, minute: int
) -> None:
    timing = Timing(when=when, tz=zone, dst=dst)
    begin = NOW + hour * 3_600_000
    ticks = timing.ticks(begin)
    found = [next(ticks) for _ in range(8)]
    assert found == sorted(set(found))
    between = begin + minute * 60_000
    behind = timing.ticks(between)
    expected = [each for each in found if each > between]
    assert [next(behind) for _ in expected] == expected
    assert timing.last_until(found[5], begin) == found[5]
    assert timing.last_until(found[0] - 1, begin) is None


def test_intervals_count_from_1970_and_keep_their_phase() -> None:
    timing = checked_timing(Timing(when="every 15m phase 5m"), NOW)
    ticks = timing.ticks(NOW)
    assert [(next(ticks) - NOW) // 60_000 for _ in range(3)] == [5, 20, 35]


def test_dates_ranges_and_cron_texts_are_left_out() -> None:
    timing = checked_timing(
        Timing(when="0 9 * * *", tz="Europe/Berlin",
               exclude=("2026-01-03", "2026-01-05/2026-01-07", "* * * * SUN")),
        NOW,
    )  # fmt: skip
    ticks = timing.ticks(NOW)
    days = [timing.local(next(ticks)).day for _ in range(5)]
    assert days == [1, 2, 8, 9, 10]  # the 4th is a Sunday, and so is the 11th


def test_start_is_the_first_moment_and_end_is_behind_the_last() -> None:
    timing = checked_timing(
        Timing(when="every 1h", start_ms=NOW + 3_600_000, end_ms=NOW + 3 * 3_600_000), NOW
    )
    assert [(each - NOW) // 3_600_000 for each in timing.ticks(NOW)] == [1, 2]


def test_a_day_of_the_month_and_a_day_of_the_week_are_met_by_either() -> None:
    found = shown("0 0 13 * FRI", "UTC", "2026-02-01", hours=24 * 28)
    assert [each[:10] for each in found] == [
        "2026-02-06", "2026-02-13", "2026-02-20", "2026-02-27"
    ]  # fmt: skip


WRONG: list[tuple[Timing, str]] = [
    (Timing(when="0 0 31 4 *"), "day-of-month"),
    (Timing(when="0 0 * * MON#9"), "day-of-week"),
    (Timing(when="0 0 \u0661 * *"), "day-of-month"),
    (Timing(when="* * * *"), "fields"),
    (Timing(when="0," * 200 + "0 * * * *"), "256"),
    (Timing(when="@often"), "@daily"),
    (Timing(when="every 1.5s"), "whole seconds"),
    (Timing(when="every 0s"), "whole seconds"),
    (Timing(when="every now and then"), "fields"),
    (Timing(when="@daily", tz="Europe/Atlantis"), "Europe/Berlin"),
    (Timing(when="@daily", tz="../etc/passwd"), "time zone"),
    (Timing(when="@daily", exclude=("2026-13-01",)), "no date"),
    (Timing(when="@daily", exclude=("2026-03-01/2026-02-01",)), "no date"),
    (Timing(when="0 9 * * *", exclude=("* * * * *",)), "no tick is to come"),
    (Timing(when="@daily", end_ms=NOW), "no tick is to come"),
    (Timing(when="@daily", start_ms=NOW + 5, end_ms=NOW), "later end"),
    (Timing(when="every 5m", dst="literal"), "dst 'literal': an interval has no local times"),
    (Timing(when="@daily", dst="other"), "literal"),  # type: ignore[arg-type]
]


def test_what_makes_no_sense_is_refused_with_its_value_and_a_remedy() -> None:
    for timing, word in WRONG:
        with pytest.raises(BadOption, match=word):
            checked_timing(timing, NOW)


def test_a_year_of_minutes_is_left_out_by_dates_without_looking_at_each() -> None:
    timing = checked_timing(Timing(when="* * * * *", exclude=("2026-01-01/2029-12-31",)), NOW)
    assert timing.local(timing.next_after(NOW) or 0).year == 2030


def test_weeks_of_minutes_are_left_out_by_a_cron_text() -> None:
    timing = checked_timing(
        Timing(when="* * * * *", tz="Europe/Berlin", exclude=("* * 1-20 * *", "* 0-12 * * *")), NOW
    )
    assert timing.local(timing.next_after(NOW) or 0).isoformat() == "2026-01-21T13:00:00+01:00"


@pytest.mark.parametrize(
    ("when", "exclude", "last", "following"),
    [
        ("*/30 * * * * *", "* * * * * 6,0", "2026-01-02T23:59:30", "2026-01-05T00:00:00"),
        ("every 30s", "0-59 * * * 6,0", "2026-01-02T23:59:30", "2026-01-05T00:00:00"),
        ("every 1s", "* * 9-17 * * 1-5", "2026-01-02T08:59:59", "2026-01-02T18:00:00"),
        ("every 5s", "*/1 19-23,0-7 * * *", "2026-01-02T18:59:55", "2026-01-03T08:00:00"),
        ("every 1s", "* 0-58 * * * *", "2026-01-02T18:59:59", "2026-01-02T19:59:00"),
        ("every 2s", "*/2 * 1-2 * * *", "2026-01-03T00:59:58", "2026-01-03T03:00:00"),
    ],
)
def test_a_cron_text_of_any_form_leaves_out_a_span_of_seconds(
    when: str, exclude: str, last: str, following: str
) -> None:
    timing = checked_timing(Timing(when=when, exclude=(exclude,)), NOW)
    ticks = timing.ticks(utc(last) - 1)
    found = [f"{timing.local(next(ticks)):%Y-%m-%dT%H:%M:%S}" for _ in range(2)]
    assert found == [last, following]


def test_where_too_much_in_a_row_is_excluded_it_is_looked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour of even seconds is 1,800 ticks, which no span leads over."""
    monkeypatch.setattr(module, "PATIENCE", 400)
    timing = checked_timing(Timing(when="every 2s", exclude=("*/2 * 2 2 * *",)), NOW)
    last, end = utc("2026-01-02T01:59:58"), utc("2026-01-02T03:00:00")
    assert timing.next_after(last) is None
    looks, at = 0, last
    while (look := timing.look_after(at)) is not None and look < end:
        looks, at = looks + 1, look
    assert looks == 4
    assert look == timing.next_after(at) == end
    assert next(timing.ticks(last, look)) == look
    assert timing.last_until(look + 3000, last) == look + 2000
