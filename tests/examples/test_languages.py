"""The examples in other languages, run against a real gateway."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gatewaying import GatewayProcess
from node_packages import with_packages
from programs import program

EXAMPLES = Path(__file__).parents[2] / "examples" / "languages"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("languages")
    with GatewayProcess(folder, f"sqlite:///{folder}/q.db", "--sqs", "--grace", "0s") as gateway:
        yield gateway
        assert gateway.stop() == 0


def said(*words: str) -> str:
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran
    return ran.stdout


def test_curl_publishes_and_bills(gateway: GatewayProcess) -> None:
    program("curl", "curl is not installed")
    shell = program("sh", "there is no shell")
    lines = said(shell, str(EXAMPLES / "shop.sh"), gateway.url).splitlines()
    assert lines[0] == '{"id":"order-1","outcome":"stored"}'
    assert lines[3:] == ["billed order 1", "billed order 2", "billed order 3", "all billed"]


def test_node_publishes_and_bills_in_order(gateway: GatewayProcess) -> None:
    node = program("node", "Node.js is not installed: run scripts/servers.sh")
    shown = said(node, str(EXAMPLES / "shop.mjs"), gateway.url)
    assert shown.splitlines() == ["published: 30", "each customer in order: yes"]


def test_the_sdk_of_aws_for_node_sends_and_bills_in_order(gateway: GatewayProcess) -> None:
    node = program("node", "Node.js is not installed: run scripts/servers.sh")
    shown = said(node, str(with_packages(EXAMPLES) / "queue.mjs"), gateway.url)
    assert shown.splitlines() == ["billed: 30, twice: 0", "each customer in order: yes"]
