"""The example of the outbox, run as its head says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_shows_that_every_order_was_billed_once_and_no_other() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "examples.outbox"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "80 orders, 80 bills" in answer.stdout
    assert "every order billed once, and no other: yes" in answer.stdout
