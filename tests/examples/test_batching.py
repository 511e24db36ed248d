"""The examples of batching, run as their heads say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_writes_every_reading_once_in_far_fewer_inserts() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.batching"],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    found = re.fullmatch(r"5000 rows in (\d+) inserts, 0 messages left\n", answer.stdout)
    assert found is not None, answer.stdout
    assert int(found[1]) < 2500


def test_the_example_of_a_batch_consumer_writes_all_but_what_the_table_refuses() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.batch_consumer"],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    [line] = answer.stderr.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["error"]) == (
        "delivery.dead", "IntegrityError",
    )  # fmt: skip
    found = re.fullmatch(r"4999 rows in (\d+) calls, 1 dead\n", answer.stdout)
    assert found is not None, answer.stdout
    assert int(found[1]) < 1000
