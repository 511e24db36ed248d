"""Examples of one program each, run as their heads say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import Program
from servers import RedisServer

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("outbox", ["80 orders, 80 bills", "every order billed once, and no other: yes"]),
        ("reminders", ["each reminder once, each year renewed once: yes"]),
        ("sharing", ["every event once: yes", "every customer in order: yes"]),
        ("ordering", ["every payment at its right end: yes"]),
    ],
)
def test_an_example_shows_what_it_claims(name: str, lines: list[str]) -> None:
    ran = Program(ROOT).ok(module=f"examples.{name}")
    assert [line for line in lines if line not in ran.out] == []


def test_the_example_of_events_out_of_order_runs_on_redis_too(redis_server: RedisServer) -> None:
    ran = Program(ROOT).ok(redis_server.url, module="examples.ordering")
    assert "every payment at its right end: yes" in ran.out


def test_the_example_of_flow_keeps_its_limit_and_pays_every_payment_once_and_in_order() -> None:
    ran = Program(ROOT).ok(module="examples.flow")
    assert "every payment once: yes" in ran.out
    assert "every customer in order: yes" in ran.out
    [(refused, most)] = re.findall(r"(\d+) of them refused; at most (\d+) in", ran.out)
    assert int(most) <= 60
    assert 3 <= int(refused) <= 60


def strictly(module: str) -> subprocess.CompletedProcess[str]:
    """A module's run, in which a warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", module], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_the_example_of_batching_writes_every_reading_once_in_far_fewer_inserts() -> None:
    answer = strictly("examples.batching")
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    found = re.fullmatch(r"5000 rows in (\d+) inserts, 0 messages left\n", answer.stdout)
    assert found is not None, answer.stdout
    assert int(found[1]) < 2500


def test_the_example_of_a_batch_consumer_writes_all_but_what_the_table_refuses() -> None:
    answer = strictly("examples.batch_consumer")
    assert answer.returncode == 0, answer.stderr
    [line] = answer.stderr.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["error"]) == (
        "delivery.dead", "IntegrityError",
    )  # fmt: skip
    found = re.fullmatch(r"4999 rows in (\d+) calls, 1 dead\n", answer.stdout)
    assert found is not None, answer.stdout
    assert int(found[1]) < 1000
