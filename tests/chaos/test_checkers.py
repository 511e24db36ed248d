"""Each checker passes a good history, and finds the one thing that is wrong with another."""

from __future__ import annotations

import pytest
from checkers import (
    handlings,
    missing,
    out_of_order,
    overlapping,
    overtaking,
    too_often,
    unexplained,
    unwanted,
)
from history import CANCELLED, DIED, ENDED, FAILED, PUBLISHED, STARTED, UNWANTED, Fact

pytestmark = pytest.mark.gate

WORDS = {
    "p": PUBLISHED, "s": STARTED, "e": ENDED, "c": CANCELLED, "d": DIED, "f": FAILED, "u": UNWANTED,
}  # fmt: skip


def story(text: str) -> list[Fact]:
    """Facts in their order: each word is what, number, `/` attempt, `@` worker, `.` key, `#` call.

    The messages of one call, in whatever order they stand there, are those of a batch.
    """
    facts = []
    for at_ns, word in enumerate(text.split()):
        word, _, call = word.partition("#")
        word, _, key = word.partition(".")
        word, _, by = word.partition("@")
        word, _, attempt = word.partition("/")
        number = int(word[1:] or 0)
        key = key or "k"
        facts.append(
            Fact(
                WORDS[word[0]], at_ns, by or "a", "t", key, number, f"{key}-{number}",
                int(attempt or 1), call=int(call or 0),
            )
        )  # fmt: skip
    return facts


GOOD = story("p0 p1 p0.q s0 s0.q e0 s1 d@a s0/2@b.q s1/2@b e1/2@b e0/2@b.q p2 s2@b e2@b")


def test_a_good_history_passes_every_checker() -> None:
    assert missing(GOOD) == []
    assert out_of_order(GOOD, "t") == []
    assert overtaking(GOOD, "t") == []
    assert overlapping(GOOD) == []
    assert too_often(GOOD, 2) == []
    assert unexplained(GOOD) == []


BATCHES = story(
    "p0 p1 p2 p0.q s0#1 s1#1 s0.q#1 e1#1 f0#1 f0.q#1 s0#2 s1#2 e0#2 e1#2 s0.q#3 s2#4 d@a "
    "s0/2@b.q#1 s2/2@b#1 e0/2@b.q#1 e2/2@b#1"
)


def test_good_batches_pass_every_checker() -> None:
    assert missing(BATCHES) == []
    assert out_of_order(BATCHES, "t") == []
    assert overtaking(BATCHES, "t") == []
    assert overlapping(BATCHES) == []
    assert unwanted(BATCHES) == []


def test_a_handling_lasts_until_its_end_or_its_workers_death() -> None:
    calls = handlings(story("s0@a s1@a.q s0@b.r e0@a d@a s0/2@c"))
    assert [(one.start.by, one.start.at_ns, one.succeeded) for one in calls] == [
        ("a", 0, True), ("a", 1, False), ("b", 2, False), ("c", 5, False),
    ]  # fmt: skip
    assert [one.end_ns for one in calls][:2] == [3, 4]
    assert min(one.end_ns for one in calls[2:]) > 10**18


def test_a_handling_that_failed_is_over_and_has_not_succeeded() -> None:
    [failed, done] = handlings(story("s0 f0 s0/2 e0/2"))
    assert (failed.end_ns, failed.succeeded, done.succeeded) == (1, False, True)


@pytest.mark.parametrize(
    "lost",
    ["p0", "p0 s0 d@a", "p0 s0 c0", "p0.q p0 s0 e0", "p0 s0 f0", "p0 p1 s0#1 s1#1 e1#1 f0#1"],
    ids=[
        "never started", "never ended", "only cancelled", "a namesake of another key",
        "only failed", "another of its batch ended",
    ],
)  # fmt: skip
def test_what_was_acked_and_never_handled_is_missing(lost: str) -> None:
    assert len(missing(story(lost))) == 1


def test_what_was_never_acked_or_is_excused_is_not_missing() -> None:
    assert missing(story("s0 d@a")) == []
    assert missing(story("p0"), excused={"k-0"}) == []


def test_a_message_that_starts_behind_a_later_one_is_out_of_order() -> None:
    assert len(out_of_order(story("s0 e0 s2 e2 s1 e1"), "t")) == 1
    assert len(out_of_order(story("s1 d@a s0@b s1/2@b"), "t")) == 1
    assert out_of_order(story("s1.q s0 s1 s0/2 s1/2 s2"), "t") == []
    assert out_of_order(story("s1 s0"), "another") == []


def test_a_message_that_starts_before_the_one_before_it_has_ended_overtakes() -> None:
    assert len(overtaking(story("s0 s1 e0 e1"), "t")) == 1
    assert len(overtaking(story("s0 d@a s1@b e1@b"), "t")) == 1
    assert len(overtaking(story("s0 c0 s1 e1"), "t")) == 1
    assert overtaking(story("s0 e0 d@a s0/2@b s0/2.q d@b s1@c"), "t") == []


def test_two_handlings_of_a_key_at_once_overlap_in_one_worker_and_between_two() -> None:
    assert len(overlapping(story("s0 s1 e0 e1"))) == 1
    assert len(overlapping(story("s0@a s0/2@b e0/2@b d@a"))) == 1
    assert len(overlapping(story("s0@a s0/2@b e0/2@b s1@b e1@b d@a"))) == 2
    assert overlapping(story("s0@a d@a s0/2@b e0/2@b")) == []
    assert overlapping(story("s0 s0.q e0.q e0 s1")) == []


@pytest.mark.parametrize(
    "text",
    [
        "s0#1 s1#2 e0#1 e1#2",
        "s0#1 s1@b#1 e0#1 e1@b#1",
        "s1#1 s0#1 e0#1 e1#1",
        "s0#1 s0#1 e0#1",
        "s0#1 s0#2 e0#1 e0#2",
        "s0#1 s1#1 e0#1 s2#2 e1#1 e2#2",
    ],
    ids=[
        "in two calls", "in a call of each worker", "in one call, out of order",
        "in one call, twice", "one in two calls", "while one of the batch is in hand",
    ],
)  # fmt: skip
def test_messages_of_a_key_in_two_batches_at_once_or_in_one_out_of_order_overlap(text: str) -> None:
    assert len(overlapping(story(text))) == 1


def test_a_message_overtakes_what_stands_in_another_batch_and_not_what_is_before_it() -> None:
    assert len(overtaking(story("s0#1 s1#2"), "t")) == 1
    assert len(overtaking(story("s0#1 f0#1 s1#2"), "t")) == 1
    assert len(overtaking(story("s0@b#1 s1#1"), "t")) == 1
    assert len(overtaking(story("s1#1 s0#1"), "t")) == 1
    assert overtaking(story("s0#1 s1#1 f1#1 f0#1 s0#2 e0#2 s1#3"), "t") == []


def test_a_message_of_other_tags_that_comes_to_a_handler_is_unwanted() -> None:
    assert len(unwanted(story("p0 u1 s0 e0 s1 e1"))) == 1
    assert unwanted(story("p0 u1 s0 e0 s1.q")) == []


def test_a_delivery_beyond_the_bound_is_too_often() -> None:
    assert len(too_often(story("s0/16 s0/17"), 16)) == 1


def test_a_message_that_comes_twice_to_one_worker_is_unexplained() -> None:
    assert len(unexplained(story("s0 e0 s0/2 e0/2"))) == 1
    assert len(unexplained(story("s0 s0"))) == 1
    assert unexplained(story("s0@a d@a s0/2@b")) == []
