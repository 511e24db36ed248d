"""What a group refrains from: each checker finds the worker that does not."""

from __future__ import annotations

import pytest
from dials import HAS_PAUSED
from history import HANDED, PAUSED, RESUMING, STARTED, STARTING, Fact
from restraint import begun_by_newcomers, begun_too_often, handed_while_paused

pytestmark = pytest.mark.gate

SECOND = 10**9
WORDS = {
    "pause": PAUSED, "resume": RESUMING, "said": HAS_PAUSED, "new": STARTING, "got": HANDED,
    "s": STARTED,
}  # fmt: skip


def story(text: str) -> list[Fact]:
    """Facts in their order: each word is what, `@` the worker."""
    words = [word.partition("@") for word in text.split()]
    return [Fact(WORDS[what], at_ns, by, "t") for at_ns, (what, _, by) in enumerate(words)]


def starts(*at_s: float) -> list[Fact]:
    """Handlers that start at these times."""
    return [Fact(STARTED, round(each_s * SECOND), "a", "t") for each_s in at_s]


GOOD = (
    "new@a s@a pause s@a got@a said@a got@a s@a new@b said@b resume got@a got@a s@a s@b new@c s@c"
)


def test_a_pause_that_is_kept_passes() -> None:
    assert begun_by_newcomers(story(GOOD)) == []
    assert handed_while_paused(story(GOOD)) == []


def test_who_hears_of_a_pause_when_it_is_over_may_hear_of_its_end_at_any_time() -> None:
    assert handed_while_paused(story("pause resume said@a got@a got@a")) == []


@pytest.mark.parametrize(
    "text", ["pause new@a s@a resume", "new@a pause new@b s@a s@b resume", "pause new@a s@a"]
)
def test_a_worker_that_came_into_a_pause_and_begins_is_found(text: str) -> None:
    assert len(begun_by_newcomers(story(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "pause said@a got@a got@a resume",
        "pause said@a said@b got@a got@b got@b resume",
        "pause said@a got@a resume pause said@a got@a got@a",
    ],
)
def test_a_worker_that_goes_on_pulling_when_it_has_paused_is_found(text: str) -> None:
    assert len(handed_while_paused(story(text))) == 1


def test_more_starts_than_a_rate_allows_in_any_span_are_found() -> None:
    assert begun_too_often(starts(1, 1, 1, 2, 3), 1.0, 3) == []
    assert len(begun_too_often(starts(1, 1, 1, 1), 1.0, 3)) == 1
    assert len(begun_too_often(starts(1, 1, 1, 2, 2.5), 1.0, 3)) == 1
    assert begun_too_often(starts(*(number / 10 for number in range(100))), 10.0, 1) == []
    assert len(begun_too_often(starts(*(number / 11 for number in range(100))), 10.0, 5)) > 20
