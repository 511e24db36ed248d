"""Plants each fault in a copy of the project, and says who finds it."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from simulation.kept import KEPT as SEEDS

from mutants.kept import KEPT
from mutants.mutant import Finder, Mutant

ROOT: Final = Path(__file__).parent.parent.parent
GATE: Final = "gate"
LOOKS: Final = (GATE, "test-all", "simulator")
TESTS_S: Final = 600
SIMULATOR_S: Final = 7200
CORE_S: Final = 60
GATE_S: Final = 3600
PYTEST: Final = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
# What the gate has on every day.
IN_GATE: Final = ("--gate", "--draw", "-1")
IN_FILES: Final = ("-n", "3", "--dist", "loadfile")
SIMULATION: Final = "tests/simulation/test_simulation.py"
NOT_OF_FAULTS: Final = "--ignore=tests/unit/test_mutants.py"  # it would find any
FAILED, STOPPED, NO_TESTS = 1, 2, 5
SIMULATED: Final = (
    "admin/groups.py", "runtime/", "coordination/", "outbox/", "producing/", "schedules/",
    "stores/bucket.py", "stores/doubling.py", "stores/splitting.py", "stores/model/growing.py",
    "stores/model/standing.py",
)  # fmt: skip
"""What the simulator runs; its coordinator is that of leases."""


def main() -> int:
    """Returns 1 if a fault has survived, or tests fail without one."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names and files; all faults without")
    parser.add_argument("--seeds", default="0:", help="which runs of the simulator")
    parser.add_argument(
        "--seconds", type=float, default=CORE_S, help="how long it runs at most, of one core's time"
    )
    parser.add_argument("--only", choices=LOOKS, help="asks nobody else")
    parser.add_argument(
        "--kept", action="store_true", help="runs each kept seed with its fault, and nothing else"
    )
    parser.add_argument("--jobs", type=int, default=3, help="how many faults at once")
    asked = parser.parse_args()
    if asked.kept:
        return _look_at_kept_seeds()
    chosen = [each for each in KEPT if _is_asked(each, asked.words)]
    if asked.only == "simulator":
        chosen = [each for each in chosen if _is_simulated(each)]
    unsound: set[str] = set()
    benches: SimpleQueue[Bench] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(asked.jobs):
            benches.put(
                Bench(
                    Path(folder, str(number)), seeds=asked.seeds, seconds=asked.seconds,
                    only=asked.only,
                )
            )  # fmt: skip
        with ThreadPoolExecutor(asked.jobs) as jobs:
            if asked.only != "simulator":
                tests = sorted({each.tests for each in chosen})
                unsound = set(filter(None, jobs.map(partial(_unsound, benches), tests)))
                chosen = [each for each in chosen if each.tests not in unsound]
            finders = list(jobs.map(partial(_found, benches), chosen))
    counts = Counter(filter(None, finders))
    shares = ", ".join(f"{count} by {finder}" for finder, count in counts.items())
    say(f"{counts.total()} of {len(chosen)} are found: {shares}")
    for mutant, finder in zip(chosen, finders, strict=True):
        if finder is None:
            say(f"survives: {mutant.name}")
        elif finder != mutant.finder and asked.only is None:
            say(f"is found by {finder}, not by {mutant.finder} as it says: {mutant.name}")
    return int(None in finders or bool(unsound))


def _look_at_kept_seeds() -> int:
    """Says which kept seeds find their faults; returns 1 if one does not."""
    faults = {mutant.name: mutant for mutant in KEPT}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder), seeds="", seconds=CORE_S, only="simulator")
        missed = 0
        for seed, name in SEEDS.items():
            bench.seeds = f"{seed}:{seed + 1}"
            is_found = bench.finder_of(faults[name]) is not None
            missed += not is_found
            say(f"{'found' if is_found else 'MISSED':10} by seed {seed}: {name}")
    return int(missed > 0)


def _unsound(benches: SimpleQueue[Bench], tests: str) -> str | None:
    """The tests, if they fail without a fault: they would find any."""
    bench = benches.get()
    try:
        if not bench.fails_tests(tests):
            return None
    finally:
        benches.put(bench)
    say(f"FAILS without a planted fault: {tests}")
    return tests


def _found(benches: SimpleQueue[Bench], mutant: Mutant) -> Finder | None:
    bench, started = benches.get(), time.monotonic()
    bench.runs = ""
    try:
        finder = bench.finder_of(mutant)
    finally:
        benches.put(bench)
    took_s = time.monotonic() - started
    runs = f"  {bench.runs}" if bench.runs else ""
    say(f"{finder or 'SURVIVES':10}  {took_s:4.0f} s{runs}  {mutant.path}: {mutant.name}")
    return finder


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - for people


def _is_asked(mutant: Mutant, words: list[str]) -> bool:
    return not words or any(word in mutant.name or word in mutant.path for word in words)


class Bench:
    """A copy of the project, in which one fault at a time is planted.

    Args:
        folder: where the copy is made.
        seeds: which runs of the simulator.
        seconds: how long it runs at most, of one core's time.
        only: who alone looks for faults, of `LOOKS`; all do if it is None.

    Attributes:
        seeds: as given.
        runs: how much the simulator has run, in its words.
    """

    def __init__(self, folder: Path, *, seeds: str, seconds: float, only: str | None) -> None:
        self.runs = ""
        self._copy = folder
        self.seeds, self._seconds = seeds, seconds
        self._only = only
        self._said = ""
        for name in _tracked():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)

    def finder_of(self, mutant: Mutant) -> Finder | None:
        """Who finds a fault, the cheapest first.

        The gate is asked by the tests that the fault names and by its simulated runs, then
        `make test-all` by the same tests, then other simulated runs, then the whole gate.
        """
        path = self._copy / "qframe" / mutant.path
        before = path.read_text(encoding="utf-8")
        path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
        _forget_bytecode(path)
        is_simulated = _is_simulated(mutant)
        looks: list[tuple[Finder, Callable[[], bool]]] = [
            (GATE, lambda: self.fails_tests(mutant.tests, *IN_GATE)),
            (GATE, lambda: is_simulated and self.fails_tests(SIMULATION, *IN_GATE)),
            ("test-all", lambda: self.fails_tests(mutant.tests)),
            ("simulator", lambda: is_simulated and self._fails_simulated()),
            (
                GATE,
                lambda: self._fails([*PYTEST, *IN_GATE, *IN_FILES, NOT_OF_FAULTS], GATE_S),
            ),
        ]
        if self._only is not None:
            looks = [look for look in looks if look[0] == self._only][:2]
        try:
            return next((finder for finder, is_found in looks if is_found()), None)
        finally:
            path.write_text(before, encoding="utf-8")
            _forget_bytecode(path)

    def _fails_simulated(self) -> bool:
        words = ["--seeds", self.seeds, "--seconds", str(self._seconds), "--stop", "--whole"]
        fails = self._fails(["-m", "simulation", *words], SIMULATOR_S)
        told = re.findall(r"^\d+ runs in [\d.]+ s", self._said, re.MULTILINE)
        self.runs = f"({told[-1]} of one core)" if told else "(it hangs)"
        return fails

    def fails_tests(self, tests: str, *options: str) -> bool:
        """Whether some tests fail now; if the gate has none of them, they do not."""
        return self._fails([*PYTEST, *options, *shlex.split(tests)], TESTS_S)

    def _fails(self, words: list[str], within_s: float) -> bool:
        """Whether something fails, or hangs.

        Raises:
            RuntimeError: if it could not be run.
        """
        paths = os.pathsep.join([str(self._copy / "tests"), str(self._copy)])
        environment = {**os.environ, "PYTHONPATH": paths}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            done = subprocess.run(
                [sys.executable, *words], cwd=self._copy, env=environment, timeout=within_s,
                check=False, capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self._said = ""
            return True
        self._said = done.stdout
        if done.returncode == NO_TESTS and "--gate" in words:
            return False
        # Who runs tests in several processes stops the others after the first one that fails.
        if done.returncode == STOPPED and "stopping after 1 failures" in done.stdout:
            return True
        if done.returncode > FAILED:
            raise RuntimeError(f"{shlex.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.returncode != 0


def _tracked() -> list[str]:
    """The files of the project, those that are not committed too."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def _is_simulated(mutant: Mutant) -> bool:
    """Whether the simulator runs what the fault is in."""
    return mutant.path.startswith(SIMULATED) and "zookeeper" not in mutant.path


def _forget_bytecode(path: Path) -> None:
    """A source of the same size and second is taken for the same one."""
    for each in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        each.unlink()


if __name__ == "__main__":
    sys.exit(main())
