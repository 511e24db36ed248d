"""The example of several workers, run as its head says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_shows_that_every_event_came_once_and_in_order() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "examples.sharing"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "every event once: yes" in answer.stdout
    assert "every customer in order: yes" in answer.stdout
    assert sum(line.startswith("worker ") for line in answer.stdout.splitlines()) >= 1
