"""Real workers that lead schedules, and are killed: `python -m benchmarks.schedules` kills more."""

from __future__ import annotations

from pathlib import Path

from benchmarks.schedules import Killing


def test_leaders_that_are_killed_leave_one_message_for_each_second(tmp_path: Path) -> None:
    result = Killing(f"sqlite:///{tmp_path}/ticks.db").run(2)
    assert (result.missing, result.twice) == ([], [])
    assert result.ticks >= 4
