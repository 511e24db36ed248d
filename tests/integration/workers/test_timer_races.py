"""Timers that are cancelled and moved while workers take them and are killed."""

from __future__ import annotations

import pytest

from benchmarks.capacity import opened
from benchmarks.timer_races import race


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_cancelled_timer_never_fires_and_a_moved_one_never_at_its_old_time(store: str) -> None:
    """`python -m benchmarks.timer_races` has 10,000 rounds on each store."""
    with opened(store) as url:
        found = race(url, 80, kill_every_s=0.2)
    assert found.wrong == []
    assert found.kills > 0
    assert {"cancel done", "edit done"} <= set(found.acts)
