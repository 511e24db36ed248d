"""The rules of a subject's head, which the model and the SQL stores share."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.outcomes import Verdict
from qframe.stores import rules
from qframe.stores.types import Entry, Settlement
from qframe.topic import Kind

KINDS = st.sampled_from(list(Kind))
TIMES = st.integers(0, 10_000)
COUNTS = st.integers(0, 20)


class AHead(msgspec.Struct):
    """A head without a message."""

    due_ms: int = 0
    seq: int = 0
    tries: int = 0
    lost: int = 0
    given: int = 0
    receipt: str | None = None
    error: str | None = None


HEADS = st.builds(
    AHead, due_ms=TIMES, seq=COUNTS, tries=st.integers(1, 20), lost=COUNTS,
    given=st.integers(1, 20), receipt=st.just("r"), error=st.none() | st.just("why"),
)  # fmt: skip


def entry(**due: int) -> Entry:
    return Entry(0, "k", "id", "id", "k", None, b"", **due)


def settlement(verdict: Verdict, **how: int) -> Settlement:
    return Settlement(0, "k", 0, "r", 1, "0" * 16, verdict, error="why", **how)


@pytest.mark.parametrize(
    ("due", "merges", "at_ms"),
    [
        ({}, False, 100),
        ({}, True, 100),
        ({"delay_ms": 5}, False, 105),
        ({"at_ms": 50}, False, 50),
        ({"within_ms": 7}, True, 107),
        ({"within_ms": 7}, False, 100),
        ({"within_ms": 7, "delay_ms": 0}, True, 100),
    ],
)
def test_an_entry_is_due_when_it_was_asked_to_be(
    due: dict[str, int], merges: bool, at_ms: int
) -> None:
    assert rules.due_of(entry(**due), 100, merges) == at_ms


@pytest.mark.parametrize(
    ("kind", "new_ms", "due_ms"),
    [
        (Kind.MERGE, 10, 200),
        (Kind.MERGE, 900, 200),
        (Kind.DELAY, 10, 10),
        (Kind.DELAY, 900, 900),
        (Kind.PRIORITY, 10, 10),
        (Kind.PRIORITY, 900, 900),
    ],
)
def test_a_head_due_at_200_that_is_published_again_at_100(
    kind: Kind, new_ms: int, due_ms: int
) -> None:
    assert rules.replaced_due(kind, 200, new_ms, 100) == due_ms


@given(TIMES, TIMES, TIMES)
def test_a_priority_published_anew_and_due_now_never_waits_longer(
    old_ms: int, new_ms: int, now_ms: int
) -> None:
    due_ms = rules.replaced_due(Kind.PRIORITY, old_ms, new_ms, now_ms)
    assert due_ms == (new_ms if new_ms > now_ms else min(old_ms, new_ms))


@given(KINDS, st.integers(-9, 9), st.integers(-9, 9))
def test_the_higher_priority_ranks_first_where_priority_counts(
    kind: Kind, one: int, other: int
) -> None:
    before = rules.rank_of(kind, one) < rules.rank_of(kind, other)
    assert before == (kind in rules.RANKED and one > other)


@given(HEADS, KINDS, TIMES, TIMES)
def test_a_replaced_head_keeps_its_number_and_starts_its_attempts_over(
    head: AHead, kind: Kind, due_ms: int, now_ms: int
) -> None:
    seq = head.seq
    rules.replace(head, kind, due_ms, now_ms)
    assert (head.seq, head.tries, head.lost, head.error) == (seq, 0, 0, None)


@given(HEADS, KINDS, COUNTS, TIMES, TIMES, COUNTS)
def test_the_next_message_is_in_doing_exactly_while_its_run_is(
    head: AHead, kind: Kind, seq: int, due_ms: int, now_ms: int, keeps: int
) -> None:
    rules.promote_next(head, kind, seq=seq, due_ms=due_ms, now_ms=now_ms, keeps=keeps)
    assert (head.seq, head.given, head.lost, head.error) == (seq, keeps, 0, None)
    assert (head.receipt, head.tries) == (("r", 1) if keeps else (None, 0))
    queues_anew = kind in (Kind.ORDERED, Kind.STREAM)
    assert head.due_ms == (max(now_ms, due_ms) if queues_anew else due_ms)


@given(HEADS, TIMES, TIMES)
def test_a_retry_counts_keeps_its_error_and_forgets_losses(
    head: AHead, delay_ms: int, now_ms: int
) -> None:
    tries = head.tries
    rules.retry(head, settlement(Verdict.RETRY, delay_ms=delay_ms), now_ms)
    assert (head.due_ms, head.tries, head.lost, head.error) == (now_ms + delay_ms, tries, 0, "why")
    rules.retry(head, settlement(Verdict.RETRY, delay_ms=delay_ms, at_ms=3), now_ms)
    assert head.due_ms == 3


@given(HEADS, KINDS)
def test_a_release_takes_the_attempt_back_and_a_loss_does_not(head: AHead, kind: Kind) -> None:
    tries, lost, due_ms = head.tries, head.lost, head.due_ms
    rules.release(head, kind)
    assert (head.tries, head.lost) == (tries - 1, lost)
    rules.lose(head, kind)
    assert (head.tries, head.lost) == (tries - 1, lost + 1)
    assert head.due_ms == (rules.FRONT if kind is Kind.STREAM else due_ms)


@given(HEADS)
def test_a_head_out_of_doing_has_neither_receipt_nor_run(head: AHead) -> None:
    rules.end_lease(head)
    assert (head.receipt, head.given) == (None, 0)


LIKE_OFFSETS = st.text("#05a", min_size=1, max_size=6)


@given(st.sets(LIKE_OFFSETS), st.sets(st.integers(0, 60)))
def test_no_two_keys_and_offsets_share_a_subject(keys: set[str], offsets: set[int]) -> None:
    subjects = [rules.subject_of_parked(key, 7) for key in keys]
    subjects += [rules.subject_of_parked(None, each) for each in offsets]
    assert len(set(subjects)) == len(keys) + len(offsets)


def test_a_message_without_a_key_stands_under_its_offset() -> None:
    assert rules.subject_of_parked(None, 7) == "7"
