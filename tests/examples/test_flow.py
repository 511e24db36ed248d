"""The example of flow control, run as its head says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_keeps_its_limit_and_pays_every_payment_once_and_in_order() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "examples.flow"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "every payment once: yes" in answer.stdout
    assert "every customer in order: yes" in answer.stdout
    [(refused, most)] = re.findall(r"(\d+) of them refused; at most (\d+) in", answer.stdout)
    assert int(most) <= 60
    assert 3 <= int(refused) <= 60
