"""Gateways and clients that vanish lose nothing, and no key is in two hands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ports import free_port
from servers import RedisServer

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
