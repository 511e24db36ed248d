"""The judge of overlaps excuses what a fault explains, and nothing else; so do its neighbours."""

from __future__ import annotations

import pytest
from checkers import missing
from history import (
    ACCEPTED,
    ATTENDED,
    CUT,
    DIED,
    ENDED,
    FROZEN,
    KILLED,
    MENDED,
    PUBLISHED,
    REFUSED,
    STARTED,
    STOOD_STILL,
    THAWED,
    TOOK,
    Fact,
)
from tenures import (
    DOUBTFUL,
    LEFT,
    LOST,
    Tenures,
    accepted_late,
    accepted_twice,
    judge,
    shared_epochs,
    strays,
    taken_early,
)
from timings import unserved_s

pytestmark = pytest.mark.gate

SLOTS = 1
LIMIT = 10
WORDS = {
    "p": PUBLISHED, "s": STARTED, "e": ENDED, "T": TOOK, "left": LEFT, "lost": LOST, "f": FROZEN,
    "th": THAWED, "cut": CUT, "mend": MENDED, "kill": KILLED, "died": DIED, "doubt": DOUBTFUL,
    "still": STOOD_STILL, "ok": ACCEPTED, "no": REFUSED, "sign": ATTENDED,
}  # fmt: skip


def story(text: str) -> list[Fact]:
    """Facts: each word is `time:what@worker`, and `/` the message's number or the epoch taken.

    Of a fault, `/` is since when it may have been. All is of slot 0, but for `T1`, which takes the
    first of the two into which it was split.
    """
    facts = []
    for word in text.split():
        at, _, rest = word.partition(":")
        rest, _, number = rest.partition("/")
        what, _, by = rest.partition("@")
        slot = int(what == "T1")
        what = what.removesuffix("1")
        is_taking, is_answer = what == "T", what in ("ok", "no")
        facts.append(
            Fact(
                WORDS[what], int(at), by, "" if by and what in ("f", "th", "cut") else "t", "k",
                int(number or 0), f"m{number}",
                since_ns=int(number) if number and what in ("f", "cut", "still") else int(at),
                slots=[slot] if is_taking or is_answer or what in ("left", "lost") else [],
                texts=[f"{number:0>16}"] if is_taking else [f"0:{number}"] if is_answer else [],
            )
        )  # fmt: skip
    return facts


def violations(text: str) -> int:
    facts = story(text)
    return len(judge(facts, Tenures(facts, "t", SLOTS, 2), LIMIT).violations)


def excused(text: str) -> dict[str, int]:
    facts = story(text)
    judgement = judge(facts, Tenures(facts, "t", SLOTS, 2), LIMIT)
    assert judgement.violations == []
    return dict(judgement.excused)


GOOD = "1:T@a/1 2:s@a/0 3:e@a/0 4:ok@a/0 5:left@a 6:T@b/2 7:s@b/1 8:e@b/1 9:ok@b/1"
FREEZE = "1:T@a/1 2:s@a/0 3:f@a 20:T@b/2 21:s@b/0 {} 30:th@a 31:doubt@a 31:lost@a 33:e@a/0"


def test_a_good_history_passes() -> None:
    facts = story(GOOD)
    tenures = Tenures(facts, "t", SLOTS)
    assert excused(GOOD) == {}
    assert strays(facts, tenures) == []
    assert accepted_late(facts, tenures) == []
    assert accepted_twice(facts) == []
    assert shared_epochs(tenures) == []


def test_what_is_told_late_of_one_tenure_does_not_end_the_next() -> None:
    facts = story("1:T@a/1 2:s@a/0 3:e@a/0 5:T@a/2 5:T@a/2 6:lost@a 7:s@a/1 8:lost@a 9:s@a/2")
    tenures = Tenures(facts, "t", SLOTS)
    assert [one.until_ns for one in tenures.all] == [6, 8]
    assert [(fact.at_ns, late_ns) for fact, late_ns in strays(facts, tenures)] == [(9, 1)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FREEZE.format("22:e@b/0"), FROZEN),
        ("1:T@a/1 2:s@a/0 3:cut@a 14:doubt@a 14:lost@a 20:T@b/2 21:s@b/0 22:e@a/0 30:mend@a", CUT),
        ("1:T@a/1 2:s@a/0 3:kill@a 4:T@b/2 5:s@b/0 6:died@a", KILLED),
        ("1:T@a/1 2:s@a/0 3:doubt@a 3:lost@a 4:T@b/2 5:s@b/0 6:e@a/0", DOUBTFUL),
        ("1:T@a/1 12:s@a/0 14:f@a/3 15:T@b/2 16:s@b/0 30:th@a 31:lost@a 33:e@a/0", FROZEN),
        ("1:T@a/1 2:s@a/0 14:still/3 15:T@b/2 16:s@b/0 17:doubt@a 17:lost@a 18:e@a/0", STOOD_STILL),
        (
            "1:T@a/1 2:s@a/0 14:still@a/3 15:T@b/2 16:s@b/0 17:doubt@a 17:lost@a 18:e@a/0",
            STOOD_STILL,
        ),
        ("1:T@a/1 2:s@a/0 3:f@a 20:T1@b/2 21:s@b/0 30:th@a 31:lost@a 33:e@a/0", FROZEN),
    ],
    ids=[
        "frozen",
        "cut off",
        "killed",
        "in doubt",
        "frozen at some time",
        "all stood still",
        "it got no processor",
        "frozen, and its slot was split",
    ],
)
def test_what_a_worker_had_in_hand_when_it_lost_its_right_is_excused(text: str, why: str) -> None:
    assert excused(text) == {why: 1}


@pytest.mark.parametrize(
    "text",
    [
        "1:T@a/1 2:s@a/0 20:T@b/2 21:s@b/0 33:e@a/0",
        "1:T@a/1 2:s@a/0 3:f@a 9:T@b/2 10:s@b/0 30:th@a 33:e@a/0",
        "1:T@a/1 2:s@a/0 3:f@a 8:th@a 20:T@b/2 21:s@b/0 33:e@a/0",
        "1:T@a/1 2:s@a/0 3:f@b 18:th@b 20:T@b/2 21:s@b/0 33:e@a/0",
        "1:T@a/1 3:f@a 20:T@b/2 21:s@b/0 22:th@a 23:s@a/0 24:lost@a 25:e@a/0 26:e@b/0",
        "1:T@a/1 3:f@a 20:T@b/2 22:th@a 23:s@a/0 24:lost@a 25:s@b/0 26:e@a/0",
        "1:T@a/1 2:s@a/0 3:f@a 20:th@a 21:s@b/0 33:e@a/0",
        "1:T@a/1 2:s@a/0 3:f@a 20:th@a 21:s@a/1 22:e@a/0 23:e@a/1",
        "1:s@a/0 3:f@a 20:T@b/2 21:s@b/0 30:th@a 33:e@a/0",
        "1:T@a/1 2:s@a/0 12:still/3 15:T@b/2 16:s@b/0 17:lost@a 18:e@a/0",
        "1:T@a/1 2:s@a/0 14:still@b/3 15:T@b/2 16:s@b/0 17:lost@a 18:e@a/0",
        "1:T@a/1 14:still/3 15:s@a/0 16:T@b/2 17:s@b/0 18:lost@a 19:e@a/0",
        "1:T@a/1 2:s@a/0 20:T1@b/2 21:s@b/0 33:e@a/0",
    ],
    ids=[
        "no fault", "frozen, but not for long enough yet", "frozen, but not for long enough",
        "another was frozen", "a thawed worker begins beside the new owner",
        "a thawed worker begins before the new owner does", "the other has not taken the slot",
        "two at once in one worker", "it never had the slot",
        "all stood still, but not for long enough", "another got no processor",
        "it began when all stood still no more",
        "no fault, and its slot was split",
    ],
)  # fmt: skip
def test_any_other_overlap_is_a_violation(text: str) -> None:
    assert violations(text) == 1


def test_a_handler_that_starts_when_the_slot_is_lost_is_a_stray() -> None:
    facts = story("1:T@a/1 2:s@a/0 3:e@a/0 5:T@b/2 7:s@a/1 8:e@a/1 9:s@c/2")
    [(first, late_ns), (second, _)] = strays(facts, Tenures(facts, "t", SLOTS))
    assert (first.number, late_ns, second.by) == (1, 2, "c")


def test_an_acknowledgement_that_another_owner_should_have_stopped_is_found() -> None:
    for answer, wrong in (("ok", 1), ("no", 0)):
        facts = story(f"1:T@a/1 2:s@a/0 5:T@b/2 7:{answer}@a/0")
        assert len(accepted_late(facts, Tenures(facts, "t", SLOTS))) == wrong


def test_a_message_settled_twice_is_found() -> None:
    assert len(accepted_twice(story("1:ok@a/0 2:ok@b/0"))) == 1
    assert accepted_twice(story("1:ok@a/0 2:no@b/0 3:ok@b/1")) == []


def test_epochs_that_are_shared_or_run_backwards_are_found() -> None:
    for text in ("1:T@a/1 2:T@b/1", "1:T@a/2 3:T@b/1"):
        assert len(shared_epochs(Tenures(story(text), "t", SLOTS))) == 1


def test_a_slot_that_is_taken_while_a_lease_has_still_to_run_is_found() -> None:
    for taken, end, wrong in ((20, "lost", 1), (25, "lost", 0), (20, "left", 0)):
        facts = story(f"1:sign@a 2:T@a/1 10:sign@a 11:f@a {taken}:T@b/2 30:th@a 31:{end}@a")
        assert len(taken_early(facts, Tenures(facts, "t", SLOTS), 12)) == wrong


def test_a_message_that_only_a_killed_worker_began_is_lost() -> None:
    assert len(missing(story("1:p/0 2:T@a/1 3:s@a/0 4:kill@a 5:died@a"))) == 1


def test_a_kill_lasts_until_another_has_taken_the_slot() -> None:
    facts = story("1:T@a/1 3:kill@a 4:died@a 2000000003:T@b/2")
    assert unserved_s(facts, Tenures(facts, "t", SLOTS)) == {"kill": [2.0]}
