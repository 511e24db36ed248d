"""What a gateway passes on to another one, and what it makes of the reply."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from certificates import certificate

from qframe.clock import VirtualClock
from qframe.web.gateway.deliveries import Settle, SettleOutcome, SettleReply, Verb
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.receipts import Receipts
from qframe.web.gateway.wire import SettledOut, SettleIn

pytestmark = pytest.mark.gate

SECRET = "s" * 20


class OtherGateway(HTTPServer):
    """A gateway that extends whatever it is asked to, and says that the rest is settled."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.receipts = Receipts(self.address, SECRET)
        self.asked: list[tuple[str, dict[str, str], SettleIn]] = []
        self.hangs_up = False


class Handler(BaseHTTPRequestHandler):
    """The requests of an `OtherGateway`."""

    server: OtherGateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = msgspec.json.decode(body, type=SettleIn)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, asked))
        if self.server.hangs_up:
            return
        results = [
            SettleReply(one.receipt, SettleOutcome.EXTENDED if one.verb is Verb.EXTEND
                        else SettleOutcome.SETTLED)
            for one in asked.wanted()
        ]  # fmt: skip
        self.send_response(200)
        self.end_headers()
        self.wfile.write(msgspec.json.encode(SettledOut(results)))

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def other() -> Iterator[OtherGateway]:
    with OtherGateway() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def passed_on(
    forwarder: Forwarder, wanted: list[Settle], authorization: str = "Bearer x"
) -> list[SettleReply]:
    results = [SettleReply(one.receipt, SettleOutcome.ELSEWHERE) for one in wanted]
    asyncio.run(forwarder.settle("a b", "g", wanted, results, authorization))
    return results


def test_each_reply_is_that_of_its_receipt_whatever_the_order(other: OtherGateway) -> None:
    verbs = [Verb.EXTEND, Verb.ACK, Verb.REJECT, Verb.RETRY, Verb.ACK]
    wanted = [Settle(other.receipts.new(), verb, lease_s=5.0) for verb in verbs]
    replies = passed_on(Forwarder(Receipts("", SECRET)), wanted)
    assert [one.receipt for one in replies] == [one.receipt for one in wanted]
    assert [one.outcome for one in replies] == ["extended", *["settled"] * 4]


def test_the_request_has_the_clients_token_and_is_not_passed_on_again(other: OtherGateway) -> None:
    forwarder = Forwarder(Receipts("", SECRET))
    passed_on(forwarder, [Settle(other.receipts.new())])
    passed_on(forwarder, [Settle(other.receipts.new())], "")
    [(path, headers, _), (_, without, _)] = other.asked
    assert path == "/v1/topics/a%20b/groups/g/settle"
    assert (headers["authorization"], headers["qframe-forwarded"]) == ("Bearer x", "1")
    assert "authorization" not in without


def test_a_gateway_is_asked_over_tls_where_its_address_says_so(
    other: OtherGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path, "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    other.socket = context.wrap_socket(other.socket, server_side=True)
    receipts = Receipts(f"https://localhost:{other.server_port}", SECRET)
    [reply] = passed_on(Forwarder(Receipts("", SECRET)), [Settle(receipts.new())])
    assert reply.outcome == "settled"


def test_nobody_is_asked_whose_address_is_not_believed(other: OtherGateway) -> None:
    stranger = Receipts(other.address, "another secret")
    [reply] = passed_on(Forwarder(Receipts("", SECRET)), [Settle(stranger.new())])
    assert (reply.outcome, other.asked) == (SettleOutcome.ELSEWHERE, [])


def test_a_reply_that_is_lost_is_unknown_and_its_gateway_is_left_alone_for_a_while(
    other: OtherGateway,
) -> None:
    clock = VirtualClock()
    forwarder = Forwarder(Receipts("", SECRET), clock)
    other.hangs_up = True
    outcomes = []
    for _ in range(3):
        [reply] = passed_on(forwarder, [Settle(other.receipts.new())])
        outcomes.append(reply.outcome)
        other.hangs_up = False
        clock.advance(2500)
    assert outcomes == ["unknown", "elsewhere", "settled"]
