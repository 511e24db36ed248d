"""Simulated runs: the promises hold in each, and each is the same run whenever it is run.

`tests/simulation/__init__.py` says what a run is. One that fails prints its seed.
"""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.kept import KEPT
from simulation.plan import drawn
from simulation.shrink import failure_of
from simulation.threads import simulated
from simulation.world import World

RUNS, PARTS = 360, 6
TESTS = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def in_simulation() -> Iterator[None]:
    with simulated():
        yield
    gc.collect()


def digest(seed: int) -> str:
    """What happened in a run, to the last step."""
    world = World(drawn(seed), tells=True)
    world.run()
    return hashlib.sha256(repr(world.history).encode()).hexdigest()


@pytest.mark.promise(1, 2, 3, 4, 5, 6, 9, 10, on="model")
@pytest.mark.parametrize("part", [pytest.param(0, marks=pytest.mark.gate), *range(1, PARTS)])
def test_the_promises_hold_in_simulated_runs(part: int) -> None:
    failed = {}
    for seed in range(part, RUNS, PARTS):
        error = failure_of(drawn(seed))
        if error is not None:
            failed[seed] = f"{type(error).__name__}: {error}"
    assert not failed, 'make simulate ARGS="--seed N --history" shows it: ' + str(failed)


@pytest.mark.gate
@pytest.mark.promise(2, 6, on="model")
@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"{seed}") for seed in KEPT])
def test_a_seed_that_has_shown_a_fault_runs_clean(seed: int) -> None:
    error = failure_of(drawn(seed))
    assert error is None, f"{KEPT[seed]}: {error}"


@pytest.mark.gate
def test_a_run_is_the_same_in_another_process() -> None:
    """Whatever hashes and addresses are there, and however long the machine takes."""
    seeds = range(8, 128, 12)
    program = (
        "import time\nfrom itertools import count\n"
        "def leaping(_, ticks=count()): return 10.0 * next(ticks)\n"
        "time.clock_gettime = leaping\n"
        "from simulation.test_simulation import digest\n"
        "from simulation.threads import simulated\n"
        "ballast = [object() for _ in range(12345)]\n"
        f"with simulated(): print(*[digest(seed) for seed in {list(seeds)}])\n"
    )
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "7"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.split() == [digest(seed) for seed in seeds]
