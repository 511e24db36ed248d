"""A gateway that others attack or listen at: secrets, TLS, connections that say nothing, limits."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from certificates import certificate
from eventually import eventually
from gatewaying import GatewayProcess
from ports import HOST, free_port

from benchmarks.gateway_fuzz import fuzz
from qframe.web.gateway.callers import new_token

ORDERS = "/v1/topics/orders"
BODY = "body-of-a-customer"


@pytest.mark.gate
def test_no_credential_and_no_body_is_in_the_log_or_in_a_file(tmp_path: Path) -> None:
    """Whatever is done with them: taken, refused, malformed, given up."""
    token, digest = new_token()
    rules = f'[tokens.shop]\nhashes = ["{digest}"]\n' + "".join(
        f'{right} = ["*"]\n' for right in ("publish", "consume", "admin")
    )
    (tmp_path / "tokens.toml").write_text(rules, encoding="utf-8")
    store = f"sqlite:///{tmp_path}/q.db"
    with GatewayProcess(tmp_path, store, "--sqs", "--tokens", "tokens.toml") as gateway:
        known = {"authorization": f"Bearer {token}"}
        gateway.request("PUT", ORDERS, {"kind": "ordered", "slots": 1}, **known)
        gateway.request("PUT", f"{ORDERS}/groups/billing", **known)
        for sent in ({"key": "k", "body": BODY}, {"key": "k", "body": BODY, "delay": BODY},
                     {"body": BODY}, f'{{"body": "{BODY}'.encode(), BODY.encode()):  # fmt: skip
            gateway.post(f"{ORDERS}/messages", sent, **known)
            gateway.post(f"{ORDERS}/messages", sent, authorization=f"Bearer {token}x")
            gateway.post(f"{ORDERS}/messages?token={token}", sent)
        reply = gateway.post(
            f"{ORDERS}/groups/billing/pull", {"max": 1, "wait": "20s"}, **known
        )  # fmt: skip
        [one] = reply.json["deliveries"]
        assert one["body"] == BODY
        reject = {"reject": [{"receipt": one["receipt"], "error": "no such card"}]}
        assert gateway.post(f"{ORDERS}/groups/billing/settle", reject, **known).status == 200
        signed = {"authorization": f"AWS4-HMAC-SHA256 Credential={token}/20260101/x/sqs/aws4"}
        for target in ("CreateQueue", "SendMessage", "Nothing"):
            body = json.dumps({"QueueName": "q", "QueueUrl": "q", "MessageBody": BODY}).encode()
            gateway.post("/", body, x_amz_target=f"AmazonSQS.{target}", **signed)
        assert gateway.stop() == 0
        log = gateway.log.read_text(encoding="utf-8")
        assert '"event": "delivery.dead"' in log
        for secret in (BODY, token, token[:20], one["receipt"]):
            assert secret not in log
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert token.encode() not in kept


@pytest.mark.gate
def test_it_serves_tls_by_a_certificate_and_by_one_that_renews_it(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, "gateway")
    port = free_port()
    command = [
        sys.executable, "-m", "qframe", "gateway", "--store", f"sqlite:///{tmp_path}/q.db",
        "--port", f"{HOST}:{port}", "--tls-cert", str(chain), "--tls-key", str(key),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        assert process.poll() is None
        trusting = ssl.create_default_context(cafile=chain)
        connection = HTTPSConnection(HOST, port, context=trusting, timeout=20)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    try:
        eventually(is_up, within=60)
        for file, new in zip((key, chain), reversed(certificate(tmp_path, "new")), strict=True):
            new.replace(file)
        eventually(is_up, within=60)
    finally:
        process.terminate()
        process.wait()


def test_connections_that_never_finish_a_request_stop_nobody_and_are_closed(
    tmp_path: Path,
) -> None:
    """Nothing at all, half a head, a byte after a whole request, half a body that is refused."""
    whole = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db") as gateway,
        ExitStack() as stack,
    ):
        held = []
        for number in range(160):
            connection = stack.enter_context(socket.create_connection((HOST, gateway.port), 60))
            if number % 4 == 0:
                connection.sendall(whole)
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            head = b"POST / HTTP/1.1\r\nHost: x\r\n"
            half = (b"G", head, b"", head + b"Content-Length: 9\r\n\r\n{")
            connection.sendall(half[number % 4])
            held.append(connection)
        assert gateway.request("GET", "/readyz").status == 200
        for connection in held:
            while connection.recv(65536):
                pass
        assert gateway.request("GET", "/readyz").status == 200


@pytest.mark.parametrize(
    ("flags", "why", "code"),
    [
        ("--tokens t.toml --port 0.0.0.0:1", "--address ''", 1),
        ("--address 10.0.0.7:8380", "--address '10.0.0.7:8380': it is no URL", 1),
        ("--address ftp://10.0.0.7", "--address 'ftp://10.0.0.7': it is no URL", 1),
        ("--address http://[::1", "--address 'http://[::1': it is no URL", 1),
        ("--port 0", "--port '0': nobody could tell which port that is", 1),
        ("--port 0.0.0.0:1", "--port '0.0.0.0:1': whoever reaches this address could", 1),
        ("--tokens none.toml", "tokens 'none.toml': it cannot be read", 1),
        ("--tls-cert t.toml", "--tls-cert 't.toml': it goes with --tls-key", 2),
        ("--tls-cert t.toml --tls-key t.toml", "--tls-cert 't.toml': t.toml with t.toml", 1),
        ("--port {taken} --idle 30 --grace 5", "--port '127.0.0.1:{taken}': it cannot be bound", 1),
        ("--sqs-region eu-1", "command 'gateway': beside no --sqs it has no use for", 2),
    ],
)
def test_a_wrong_start_is_one_line(tmp_path: Path, flags: str, why: str, code: int) -> None:
    (tmp_path / "t.toml").write_text("[tokens]\n", encoding="utf-8")
    with socket.create_server((HOST, 0)) as server:
        taken = str(server.getsockname()[1])
        words = ["gateway", "--store", "sqlite:///q.db", *flags.format(taken=taken).split()]
        ran = subprocess.run(
            [sys.executable, "-m", "qframe", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "QFRAME_GATEWAY_SECRET": "s" * 20},
        )  # fmt: skip
    assert ran.returncode == code
    assert ran.stderr.startswith(f"error: {why.format(taken=taken)}"), ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_its_numbers_are_shown_on_a_port_of_their_own(tmp_path: Path) -> None:
    shown = free_port()
    flags = ("--metrics-port", f"{HOST}:{shown}")
    with GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db", *flags) as gateway:
        gateway.request("PUT", ORDERS, {"slots": 1})
        gateway.request("PUT", f"{ORDERS}/groups/billing")
        gateway.post(f"{ORDERS}/messages", {"body": 1})
        [one] = gateway.pull("orders", "billing", wait="20s")
        gateway.settle("orders", "billing", ack=[one["receipt"]])
        port, gateway.port = gateway.port, shown
        text = gateway.request("GET", "/metrics").body.decode()
        gateway.port = port
    assert 'qframe_handled_total{group="billing",outcome="ack",topic="orders"} 1.0' in text


def test_a_secret_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "qframe", "gateway", "--store", "sqlite:///q.db"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "QFRAME_GATEWAY_SECRET": "a"},
    )  # fmt: skip
    assert ran.returncode == 1
    assert "QFRAME_GATEWAY_SECRET" in ran.stderr
    assert "secrets.token_urlsafe" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_malformed_requests_are_refused_and_the_gateway_goes_on(tmp_path: Path) -> None:
    """`python -m benchmarks.gateway_fuzz` is the same with 100,000."""
    with GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db", "--sqs") as gateway:
        gateway.request("PUT", "/v1/topics/orders", {})
        found = fuzz(gateway.port, 400, seed=7)
        assert (found[500], found[1]) == (0, 0), found
        assert found[400] > 100
        assert gateway.post("/v1/topics/orders/messages", {"body": 1}).status == 200
