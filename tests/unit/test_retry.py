"""When a message comes again: the signals of a handler, the times it names, the backoff."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.errors import BadOption, QFrameError
from qframe.retry import Backoff, NeedRetry, Reject, checked_times

MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
MOMENT_MS = 1_714_979_289_123


def test_need_retry_without_a_time_stays_in_the_worker() -> None:
    signal = NeedRetry("busy")
    assert str(signal) == "busy"
    assert (signal.delay_ms, signal.at_ms, signal.is_local) == (None, None, True)
    assert str(NeedRetry()) == "the handler asked for a retry"


@pytest.mark.parametrize(
    ("delay", "ms"), [(0, 0), (1.5, 1500), ("10m", 600_000), (timedelta(seconds=2), 2000)]
)
def test_need_retry_with_a_delay_goes_back_to_the_store(delay: Any, ms: int) -> None:
    signal = NeedRetry(delay=delay)
    assert (signal.delay_ms, signal.at_ms, signal.is_local) == (ms, None, False)


def test_need_retry_at_a_moment_goes_back_to_the_store() -> None:
    signal = NeedRetry(at=MOMENT)
    assert (signal.delay_ms, signal.at_ms, signal.is_local) == (None, MOMENT_MS, False)


def test_reject_says_why() -> None:
    assert str(Reject("no such plane")) == "no such plane"
    assert str(Reject()) == "the handler rejected it"


@pytest.mark.parametrize("signal", [NeedRetry, Reject])
def test_a_signal_is_no_error_of_qframes(signal: type[Exception]) -> None:
    assert not issubclass(signal, QFrameError)


def test_without_delay_and_moment_there_are_no_times() -> None:
    assert checked_times(None, None) == (None, None)


@given(st.datetimes(datetime(1970, 1, 2), datetime(5138, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - bounds are naive
def test_a_moment_is_the_same_whatever_way_it_is_given(moment: datetime) -> None:
    _, expected_ms = checked_times(None, moment)
    assert checked_times(None, moment.astimezone(timezone(timedelta(hours=-8)))) == (
        None, expected_ms,
    )  # fmt: skip
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    exact_ms = (moment - epoch) / timedelta(milliseconds=1)
    assert expected_ms is not None
    assert abs(expected_ms - exact_ms) <= 1


@given(ms=st.integers(0, 2**42))
def test_a_moment_to_the_millisecond_is_that_millisecond(ms: int) -> None:
    assert checked_times(None, ms / 1000) == (None, ms)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert checked_times(None, at) == (None, ms)


def test_a_moment_may_be_given_as_seconds_since_1970() -> None:
    assert checked_times(None, MOMENT_MS / 1000) == (None, MOMENT_MS)


@pytest.mark.parametrize(
    ("delay", "at", "what", "why"),
    [
        (1, 2, "at", "delay 1 is given too"),
        (0, MOMENT, "at", "delay 0 is given too"),
        (None, MOMENT.replace(tzinfo=None), "at", "it has no time zone"),
        (None, "tomorrow", "at", "it is not a point in time"),
        (None, "10m", "at", "it is not a point in time"),
        (None, True, "at", "it is not a point in time"),
        (None, -1, "at", "it is not within 1970 and 5138"),
        (None, float("nan"), "at", "it is not within 1970 and 5138"),
        (None, MOMENT_MS, "at", "it is not within 1970 and 5138"),
        (None, datetime.max.replace(tzinfo=UTC), "at", "it is not within 1970 and 5138"),
        (None, datetime.min.replace(tzinfo=UTC), "at", "it is not within 1970 and 5138"),
        (-1, None, "delay", "it is not a duration"),
        (timedelta(seconds=-1), None, "delay", "it is not a duration"),
        ("soon", None, "delay", "it is not a duration"),
        (True, None, "delay", "it is not a duration"),
        ("9999999999d", None, "delay", "it is longer than 3000 years"),
        (timedelta.max, None, "delay", "it is longer than 3000 years"),
    ],
)
def test_a_wrong_time_is_refused_by_name(delay: Any, at: Any, what: str, why: str) -> None:
    for ask in (checked_times, lambda delay, at: NeedRetry(delay=delay, at=at)):
        with pytest.raises(BadOption) as caught:
            ask(delay, at)
        assert (caught.value.what, caught.value.why) == (what, why)


def test_a_time_is_not_taken_for_the_text_of_a_retry() -> None:
    times = {"delay": (5, 0.5, timedelta(seconds=5)), "at": (MOMENT, MOMENT.date())}
    for name, whys in times.items():
        for why in whys:
            with pytest.raises(BadOption, match=rf"write NeedRetry\({name}=…\) for a time"):
                NeedRetry(why)  # type: ignore[arg-type]


def test_the_bound_doubles_from_a_second_up_to_ten_minutes() -> None:
    backoff = Backoff()
    bounds = [backoff.bound_ms(attempt) for attempt in (1, 2, 3, 10, 11, 12, 1000)]
    assert bounds == [1000, 2000, 4000, 512_000, 600_000, 600_000, 600_000]


@given(
    first_ms=st.integers(0, 10_000),
    factor=st.floats(1, 10),
    further_ms=st.integers(0, 1_000_000),
    attempt=st.integers(1, 10_000),
)
def test_a_wait_is_between_nothing_and_its_bound_which_grows_up_to_the_cap(
    first_ms: int, factor: float, further_ms: int, attempt: int
) -> None:
    cap_ms = first_ms + further_ms
    backoff = Backoff(f"{first_ms}ms", factor, f"{cap_ms}ms")
    bound = backoff.bound_ms(attempt)
    assert bound <= backoff.bound_ms(attempt + 1) <= cap_ms
    assert backoff.bound_ms(1) == first_ms
    assert 0 <= backoff.delay_ms(attempt) <= bound


def test_a_first_wait_of_more_than_ten_minutes_is_not_cut() -> None:
    assert Backoff("2h").bound_ms(1) == Backoff("2h").bound_ms(9) == 7_200_000
    assert repr(Backoff("2h")) == "Backoff('7200s', factor=2, cap='7200s')"


def test_the_largest_backoff_there_is_does_not_overflow() -> None:
    backoff = Backoff("1000d", 100, "1000d")
    assert backoff.bound_ms(10**6) == backoff.cap_ms == 86_400_000_000


def test_the_jitter_is_full_so_that_waits_fill_the_whole_span() -> None:
    backoff = Backoff(first=1)
    waits = [backoff.delay_ms(1) for _ in range(2000)]
    # That none of 2000 falls into a given tenth has a chance of 0.9 ** 2000.
    assert {wait // 100 for wait in waits} >= set(range(10))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"first": -1}, "backoff first"),
        ({"first": "soon"}, "backoff first"),
        ({"cap": "ever"}, "backoff cap"),
        ({"first": "5s", "cap": "4s"}, "backoff cap"),
        ({"factor": 0.9}, "backoff factor"),
        ({"factor": "2"}, "backoff factor"),
        ({"factor": 100.1}, "backoff factor"),
        ({"factor": float("nan")}, "backoff factor"),
        ({"factor": float("inf")}, "backoff factor"),
    ],
)
def test_a_wrong_backoff_is_refused_by_name(options: dict[str, Any], what: str) -> None:
    with pytest.raises(BadOption) as caught:
        Backoff(**options)
    assert caught.value.what == what
