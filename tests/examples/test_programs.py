"""Examples of one program each, run as their heads say."""

from __future__ import annotations

import json
import re

import pytest
from cli_program import Program
from programs import ROOT, python
from servers import RedisServer


@pytest.mark.gate
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


@pytest.mark.gate
@pytest.mark.parametrize(
    ("name", "said", "most", "told"),
    [
        ("batching", r"5000 rows in (\d+) inserts, 0 messages left\n", 2500, []),
        ("batch_consumer", r"4999 rows in (\d+) calls, 1 dead\n", 1000,
         [("delivery.dead", "IntegrityError")]),
    ],
    ids=["batching", "batch_consumer"],
)  # fmt: skip
def test_an_example_of_batches_writes_every_row_once_but_what_the_table_refuses_in_few_calls(
    name: str, said: str, most: int, told: list[tuple[str, str]]
) -> None:
    answer = python("-W", "error", "-m", f"examples.{name}")
    assert answer.returncode == 0, answer.stderr
    lines = [json.loads(line) for line in answer.stderr.splitlines()]
    assert [(line["event"], line["error"]) for line in lines] == told
    found = re.fullmatch(said, answer.stdout)
    assert found is not None, answer.stdout
    assert int(found[1]) < most
