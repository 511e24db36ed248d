"""What a topic refuses is asked again ever more seldom, and at once when that may have changed."""

from __future__ import annotations

import pytest

from qframe.clock import VirtualClock
from qframe.outbox.blocked_lines import FIRST_S, LONGEST_S, BlockedLines


class Bench:
    """Blocked lines on a virtual clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.blocked = BlockedLines(self.clock)

    def pause_s(self, line: int | None = 1) -> float:
        """How long the next pause of a line of the topic takes."""
        self.blocked.begin("orders", line)
        length_s = self.blocked.at_most(1e9)
        self.clock.advance(round(length_s * 1000) + 1)
        assert not self.blocked.in_force()
        return length_s


def test_pauses_double_up_to_the_longest() -> None:
    bench = Bench()
    found = [bench.pause_s() for _ in range(12)]
    assert found[:4] == pytest.approx([FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S])
    assert found[-2:] == pytest.approx([LONGEST_S, LONGEST_S])


def test_a_line_that_is_paused_is_not_paused_again_and_a_wait_for_its_end_is_never_none() -> None:
    bench = Bench()
    bench.blocked.begin("orders", 1)
    assert not bench.blocked.begin("orders", 1)
    assert bench.blocked.at_most(60) == pytest.approx(FIRST_S)
    bench.blocked.forget_if_new(7)  # nobody has asked for that since
    assert bench.blocked
    bench.clock.advance(60_000)
    assert bench.blocked.at_most(60) > 0


@pytest.mark.parametrize("line", [1, None])
def test_a_success_begins_anew_for_its_line_and_for_its_topic(line: int | None) -> None:
    bench = Bench()
    for _ in range(4):
        bench.pause_s(line)
    bench.blocked.end("orders", 1)
    assert bench.pause_s(line) == pytest.approx(FIRST_S)


def test_a_success_of_another_line_changes_no_pause() -> None:
    bench = Bench()
    bench.pause_s()
    bench.blocked.end("orders", 2)
    bench.blocked.end("bills", 1)
    assert bench.pause_s() == pytest.approx(2 * FIRST_S)


def test_only_the_first_pause_since_a_success_is_news() -> None:
    bench = Bench()
    assert bench.blocked.begin("orders", 1)
    bench.clock.advance(1000)
    assert bench.blocked.in_force() == {}
    assert not bench.blocked.begin("orders", 1)


def test_a_topic_that_is_paused_is_so_with_all_of_its_lines() -> None:
    bench = Bench()
    bench.blocked.begin("orders", 1)
    assert bench.blocked.in_force() == {"orders": {1}}
    bench.blocked.begin("orders", None)
    bench.blocked.begin("orders", 2)
    assert bench.blocked.in_force() == {"orders": None}
    assert bench.blocked.has("orders", 7)
    assert not bench.blocked.has("bills", 1)


def test_whoever_asks_again_ends_all_pauses_and_their_growth() -> None:
    bench = Bench()
    bench.blocked.forget_if_new(1)
    for _ in range(4):
        bench.pause_s()
    bench.blocked.begin("orders", 1)
    bench.blocked.forget_if_new(1)
    assert bench.blocked
    bench.blocked.forget_if_new(2)
    assert not bench.blocked
    assert bench.pause_s() == pytest.approx(FIRST_S)
