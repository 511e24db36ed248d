"""Gateways and clients that vanish lose nothing, and no key is in two hands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gatewaying import GatewayProcess
from ports import free_port
from servers import RedisServer

from qframe import QFrame, Topic

ROOT = Path(__file__).parents[3]


def test_killed_gateways_and_clients_lose_nothing_and_keep_the_order(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """`python -m benchmarks.gateway_kills` is the same at full size."""
    ports = [str(free_port()) for _ in range(3)]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.gateway_kills", "--store", redis_server.url,
         "--namespace", tmp_path.name, "--messages", "600", "--keys", "30", "--clients", "4",
         "--kills", "1", "--every", "0.3", "--ports", *ports],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    found = json.loads(ran.stdout.splitlines()[-1])
    assert (found["lost"], found["disorder"], found["overlaps"]) == (0, 0, 0), found
    assert (ran.returncode, found["gateways_killed"]) == (0, 1), ran


@pytest.mark.gate
def test_a_killed_gateway_costs_no_attempt_of_what_no_client_has_seen(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    short = {"QFRAME_SESSION_TIMEOUT": "1s", "QFRAME_NAMESPACE": tmp_path.name}
    with QFrame(redis_server.url, namespace=tmp_path.name) as app:
        app.publish_many(Topic("orders", slots=4), list(range(50)))
    with GatewayProcess(tmp_path, redis_server.url, **short) as gateway:
        [seen] = gateway.pull("orders", "billing", wait="20s", max=1)
        gateway.kill()
    with GatewayProcess(tmp_path, redis_server.url, **short) as gateway:
        found: list[dict[str, Any]] = []
        while len(found) < 50:
            found += gateway.pull("orders", "billing", wait="20s", lease="5m", max=50)
        attempts = {each["id"]: each["attempt"] for each in found}
        assert attempts.pop(seen["id"]) == 2
        assert set(attempts.values()) == {1}
