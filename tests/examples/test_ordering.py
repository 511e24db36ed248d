"""The example of events out of order, with other disorders than it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.ordering.__main__ import ALL_PAYMENTS, run
from examples.ordering.by_state import NEXT, later
from examples.ordering.events import stories

MISTAKEN = sum(story[-2].state == "failed" for story in stories(ALL_PAYMENTS))


@pytest.mark.parametrize("seed", [1, 2])
def test_three_ways_end_right_where_taking_events_as_they_come_does_not(
    tmp_path: Path, seed: int
) -> None:
    naive, by_state, by_time, by_version = run(tmp_path, seed=seed)
    assert naive.right < ALL_PAYMENTS  # some third; which ones, the threads decide
    assert [each.right for each in (by_state, by_time, by_version)] == [ALL_PAYMENTS] * 3
    assert by_state.came_back > 0
    assert by_version.came_back > 0
    assert by_time.came_back == 0


def test_only_the_state_machine_finds_the_producers_mistakes(tmp_path: Path) -> None:
    results = {each.way: each.dead for each in run(tmp_path, seed=3)}
    assert results == {
        "as-it-comes": 0, "by-state": 2 * MISTAKEN, "by-time": 0, "by-version": 0,
    }  # fmt: skip
    assert MISTAKEN == ALL_PAYMENTS // 4


def test_no_payment_comes_to_a_state_twice() -> None:
    assert all(state not in later(state) for state in NEXT)
