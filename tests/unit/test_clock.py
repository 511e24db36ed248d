"""Clocks: the machine's tells the time, the virtual one stands still until it is told to move."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from absence import absent
from hypothesis import given
from hypothesis import strategies as st
from namespaces import AS_ONESELF, may_administer, refusal

from qframe.clock import SYSTEM_CLOCK, VirtualClock


def test_the_systems_clock_tells_wall_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    now = SYSTEM_CLOCK.now_ms()
    after = time.time_ns() // 1_000_000
    assert before <= now <= after


def test_the_systems_elapsed_time_is_in_seconds_and_never_runs_backwards() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    seen = [SYSTEM_CLOCK.monotonic_s() for _ in range(1000)]
    assert seen == sorted(seen)
    assert before <= seen[0]
    assert seen[-1] <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_systems_elapsed_time_counts_what_the_machine_has_slept() -> None:
    # In a time namespace of its own a process sees a machine that has slept for an hour.
    asleep = ("unshare", "--time", "--boottime", "3600", "--fork")
    if not may_administer():
        asleep = (*AS_ONESELF, *asleep[1:])
    if why := refusal(asleep):
        absent(f"no machine can be shown that has slept, since {why}")
    program = (
        "import json, time; from qframe.clock import SYSTEM_CLOCK;"
        "print(json.dumps([time.monotonic(), SYSTEM_CLOCK.monotonic_s(), time.monotonic()]))"
    )
    done = subprocess.run(
        [*asleep, sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, told, after = json.loads(done.stdout)
    assert before + 3590 < told < after + 3610


def test_a_virtual_clock_stands_still_where_it_was_set() -> None:
    clock = VirtualClock(5_000)
    assert [clock.now_ms() for _ in range(3)] == [5_000] * 3
    assert [clock.monotonic_s() for _ in range(3)] == [0.0] * 3


@given(start_ms=st.integers(0, 2**45), steps=st.lists(st.integers(0, 10**9), max_size=20))
def test_a_virtual_clock_moves_both_times_by_what_it_is_told(
    start_ms: int, steps: list[int]
) -> None:
    clock = VirtualClock(start_ms)
    for step in steps:
        clock.advance(step)
    assert clock.now_ms() == start_ms + sum(steps)
    assert clock.monotonic_s() == sum(steps) / 1000


def test_virtual_clocks_move_each_for_itself() -> None:
    one, other = VirtualClock(), VirtualClock()
    one.advance(7)
    assert one.now_ms() - other.now_ms() == 7
