"""Plants each fault in a copy of the project, and says who finds it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants.kept import KEPT, Mutant

ROOT = Path(__file__).parent.parent.parent
SIMULATOR_S = 600
TESTS_S = 600
SERVERS = "postgres or mariadb or redis-cluster or redis-sentinel"
QUICK = ["tests/conformance", "tests/unit", "-k", f"not ({SERVERS})"]


def main() -> int:
    """Returns 1 if a fault has survived."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names; all faults without")
    parser.add_argument("--seeds", default="0:400", help="which runs of the simulator")
    parser.add_argument("--quick", action="store_true", help="runs the quick suite last")
    asked = parser.parse_args()
    chosen = [each for each in KEPT if _is_asked(each, asked.words)]
    survived = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = _copied(Path(folder))
        for mutant in chosen:
            started = time.monotonic()
            found = _found(copy, mutant, seeds=asked.seeds, quick=asked.quick)
            if found is None:
                survived.append(mutant.name)
            say(f"{found or 'SURVIVES':32}  {time.monotonic() - started:4.0f} s  {mutant.name}")
    say(f"{len(chosen) - len(survived)} of {len(chosen)} are found")
    return int(bool(survived))


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - for people


def _is_asked(mutant: Mutant, words: list[str]) -> bool:
    return not words or any(word in mutant.name or word in mutant.path for word in words)


def _copied(folder: Path) -> Path:
    """A copy of what is tracked, changed files as they are."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _found(copy: Path, mutant: Mutant, *, seeds: str, quick: bool) -> str | None:
    """Who finds a fault: the simulator, its tests, the quick suite, or nobody."""
    path = copy / "qframe" / mutant.path
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    _forget_bytecode(path)
    try:
        simulate = ["-m", "simulation", "--seeds", seeds, "--stop", "--whole"]
        if not mutant.path.startswith("stores/") and _fails(copy, simulate, SIMULATOR_S):
            return "the simulator"
        pytest = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        if _fails(copy, [*pytest, *mutant.tests.split()], TESTS_S):
            return mutant.tests.split()[0].removeprefix("tests/")
        if quick and _fails(copy, [*pytest, "-n", "3", "--dist", "loadfile", *QUICK], 3 * TESTS_S):
            return "the quick suite"
    finally:
        path.write_text(before, encoding="utf-8")
        _forget_bytecode(path)
    return None


def _forget_bytecode(path: Path) -> None:
    """A source of the same size and second is taken for the same one."""
    for each in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        each.unlink()


def _fails(copy: Path, words: list[str], within_s: float) -> bool:
    """Whether something fails, or hangs."""
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'tests'}{os.pathsep}{copy}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=copy, env=environment, timeout=within_s, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)  # 5: no test was chosen


if __name__ == "__main__":
    sys.exit(main())
