"""Gateways that vanish, stand still, or are stopped: nothing is lost, or in two hands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from gatewaying import GatewayProcess, gateways
from ports import HOST, free_port
from servers import RedisServer

from qframe import QFrame, Topic

ROOT = Path(__file__).parents[3]
ORDERS = "/v1/topics/orders"
LINES = "application/x-ndjson"


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


@pytest.mark.gate
def test_a_stopped_gateway_waits_for_settlements_and_exits_with_0(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with GatewayProcess(tmp_path, url, "--grace", "1m") as gateway, QFrame(url) as app:
        app.publish(Topic("orders", slots=1), 1)
        [one] = gateway.pull("orders", "billing", wait="20s")
        gateway.process.send_signal(signal.SIGTERM)
        eventually(lambda: gateway.request("GET", "/readyz").status == 503)
        assert gateway.post(f"{ORDERS}/groups/billing/pull", {}).status == 503
        assert gateway.settle("orders", "billing", ack=[one["receipt"]]).status == 200
        assert gateway.stop() == 0
        [slot] = app.store.stats(Topic("orders", slots=1), "billing")
        assert (slot.settled, slot.doing, slot.todo) == (1, 0, 0)


@pytest.mark.gate
@pytest.mark.parametrize("secret", ["a secret of both", ""])
def test_a_settlement_at_the_wrong_gateway_is_passed_on_or_told_where_to_go(
    tmp_path: Path, secret: str
) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    secrets = {"QFRAME_GATEWAY_SECRET": secret}
    with gateways(tmp_path, url, 2, **secrets) as (one, two), QFrame(url) as app:
        app.publish(Topic("orders", slots=1), 1)
        [delivery] = one.pull("orders", "billing", wait="20s")
        reply = two.settle("orders", "billing", ack=[delivery["receipt"]])
        if secret:
            assert reply.json["results"][0]["outcome"] == "settled"
        else:
            assert (reply.status, reply.json["type"]) == (421, "urn:qframe:problem:other-gateway")
            assert reply.json["results"][0]["gateway"] == one.url
            assert one.settle("orders", "billing", ack=[delivery["receipt"]]).status == 200


@pytest.mark.gate
def test_a_gateway_that_stood_still_extends_nothing_that_another_has_handed_out(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """On Redis: a process that stands still amid a transaction of SQLite's would lock the file."""
    url, namespace = redis_server.url, tmp_path.name
    short = {"QFRAME_SESSION_TIMEOUT": "1s", "QFRAME_NAMESPACE": namespace}
    with gateways(tmp_path, url, 2, **short) as (one, two), QFrame(url, namespace=namespace) as app:
        app.publish(Topic("orders", slots=1), 1)
        [before] = one.pull("orders", "billing", wait="20s", lease="10m")
        one.process.send_signal(signal.SIGSTOP)
        [after] = eventually(lambda: two.pull("orders", "billing", wait="1s", lease="10m"))
        assert (after["id"], after["attempt"]) == (before["id"], 2)
        one.process.send_signal(signal.SIGCONT)
        extend = [{"receipt": before["receipt"], "lease": "10m"}]
        reply = one.settle("orders", "billing", extend=extend)
        assert (reply.status, reply.json["results"][0]["outcome"]) == (409, "stale")
        assert two.settle("orders", "billing", ack=[after["receipt"]]).status == 200


def test_a_stream_of_lines_ends_with_a_whole_reply_when_its_gateway_is_stopped(
    tmp_path: Path,
) -> None:
    with GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db") as gateway:
        gateway.request("PUT", "/v1/topics/events", {"slots": 1})
        connection = HTTPConnection(HOST, gateway.port, timeout=60)
        connection.putrequest("POST", "/v1/topics/events/messages")
        connection.putheader("content-type", LINES)
        connection.putheader("transfer-encoding", "chunked")
        connection.endheaders()
        part = b'{"body": 1}\n{"body": 2}\n{"bo'
        connection.send(b"%x\r\n%s\r\n" % (len(part), part))
        reply = connection.getresponse()
        first = [reply.readline(), reply.readline()]
        assert gateway.stop() == 0
        assert [json.loads(line)["outcome"] for line in first] == ["stored", "stored"]
        assert reply.read() == b""  # its end, not a connection that broke
        assert "Traceback" not in gateway.log.read_text(encoding="utf-8")
        connection.close()
