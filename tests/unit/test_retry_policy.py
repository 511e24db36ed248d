"""What becomes of a delivery whose handler raised."""

from __future__ import annotations

import json

import pytest

from qframe.errors import UndecodableBody
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.retry import Backoff, NeedRetry, Reject
from qframe.runtime.handler.retry_policy import (
    MAX_TRACEBACK_CHARS,
    disposition_of,
    pause_s,
    retries_locally,
    signal_in,
    summary,
)


def delivery(attempt: int = 1) -> Delivery:
    return Delivery("m", None, None, b"1", receipt="r", attempt=attempt)


def end(error: BaseException, attempt: int = 1) -> tuple[Verdict, int, int | None]:
    disposition = disposition_of(
        delivery(attempt), error, max_attempts=3, backoff=Backoff(first=10, cap=10)
    )
    return disposition.verdict, disposition.delay_ms, disposition.at_ms


def test_any_error_is_a_delayed_retry_until_the_attempts_are_spent() -> None:
    verdict, delay_ms, _ = end(ValueError("no"), attempt=2)
    assert verdict is Verdict.RETRY
    assert 0 <= delay_ms <= 10_000
    assert end(ValueError("no"), attempt=3)[0] is Verdict.DEAD


def test_a_retry_keeps_a_short_traceback_and_a_wish_for_one_keeps_none() -> None:
    def failing() -> None:
        json.loads("{")

    with pytest.raises(ValueError, match="Expecting") as raised:
        failing()
    disposition = disposition_of(delivery(), raised.value, max_attempts=3, backoff=Backoff())
    assert disposition.traceback is not None
    assert 'json.loads("{")' in disposition.traceback
    assert disposition.traceback.endswith(disposition.error.removeprefix("JSONDecodeError: "))  # type: ignore[union-attr]
    assert len(disposition.traceback) <= 2000
    wish = disposition_of(delivery(), NeedRetry(delay=1), max_attempts=3, backoff=Backoff())
    assert wish.traceback is None


def test_of_a_long_traceback_a_dead_letter_has_the_end_where_the_error_is() -> None:
    error = ValueError("x" * 9000 + " and that is why")
    trace = disposition_of(delivery(3), error, max_attempts=3, backoff=Backoff()).traceback
    assert trace is not None
    assert trace.startswith("…")
    assert trace.endswith(" and that is why\n")
    assert len(trace) <= MAX_TRACEBACK_CHARS + 1


def test_a_time_that_is_asked_for_is_kept_exactly() -> None:
    assert end(NeedRetry(delay="2m")) == (Verdict.RETRY, 120_000, None)
    assert end(NeedRetry(at=1_800_000_000)) == (Verdict.RETRY, 0, 1_800_000_000_000)
    assert end(NeedRetry(delay=1), attempt=3)[0] is Verdict.DEAD


def test_a_signal_alone_in_a_group_counts_and_an_error_or_several_stay_a_group() -> None:
    wish = NeedRetry(delay=1)
    assert signal_in(ExceptionGroup("outer", [ExceptionGroup("inner", [wish])])) is wish
    for others in ([ValueError("no")], [wish, ValueError("no")]):
        group = ExceptionGroup("tasks", others)
        assert signal_in(group) is group


@pytest.mark.parametrize("error", [Reject("never"), UndecodableBody("m", "int", "no")])
def test_what_no_retry_can_help_dies_at_once(error: Exception) -> None:
    disposition = disposition_of(delivery(), error, max_attempts=16, backoff=Backoff())
    assert disposition.verdict is Verdict.DEAD
    assert disposition.error is not None
    assert disposition.error.startswith(type(error).__name__)
    assert type(error).__name__ in (disposition.traceback or "")


@pytest.mark.parametrize("most", [0, 3, 5])
def test_a_plain_need_retry_stays_in_the_worker_as_often_as_its_consumer_says(most: int) -> None:
    stays = [retries_locally(NeedRetry(), number, most) for number in range(7)]
    assert stays == [True] * most + [False] * (7 - most)
    assert not retries_locally(NeedRetry(delay=1), 0, 3)
    assert not retries_locally(ValueError(), 0, 3)


def test_the_pause_before_a_local_retry_doubles_up_to_five_seconds() -> None:
    assert 0.025 <= pause_s(NeedRetry(), 1) <= 0.05
    assert 0.1 <= pause_s(NeedRetry(), 3) <= 0.2
    assert 2.5 <= pause_s(NeedRetry(), 1_000_000) <= 5


def test_an_error_is_summed_up_in_one_line_of_bounded_length() -> None:
    assert summary(ValueError("a\nb")) == "ValueError: a b"
    assert summary(KeyError()) == "KeyError"
    assert len(summary(ValueError("x" * 9999))) == 500


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Noted(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise LookupError("no notes")


ODD_ERRORS = [
    SyntaxError("m", ("f", 1, 1, 123)),  # type: ignore[arg-type]
    Exiting(),
    Noted("bad"),
]


@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_that_cannot_be_formatted_is_told_by_its_type_and_place(error: Exception) -> None:
    def place_of_the_fault() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        place_of_the_fault()
    for most, verdict in ((1, Verdict.DEAD), (2, Verdict.RETRY)):
        disposition = disposition_of(delivery(), caught.value, max_attempts=most, backoff=Backoff())
        assert disposition.verdict is verdict
        assert (disposition.error or "").startswith(type(error).__name__)
        assert "place_of_the_fault" in (disposition.traceback or "")
        assert type(error).__name__ in (disposition.traceback or "")


def test_an_errors_text_is_made_such_that_every_store_takes_it() -> None:
    error = OSError("odd \0 and \ud800 and ü\x1b")
    disposition = disposition_of(delivery(), error, max_attempts=1, backoff=Backoff())
    assert disposition.error == r"OSError: odd \x00 and \ud800 and ü" + "\x1b"
    assert r"odd \x00 and \ud800" in (disposition.traceback or "")
    (disposition.error + (disposition.traceback or "")).encode()
