"""Receivers by plain HTTP and by TLS: who is believed, and when one that takes its time is left."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from certificates import certificate
from receiving import OLD, Receiver
from typing_extensions import override

from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.push import Webhook, WebhookRefused
from qframe.push.addresses import AddressRefused
from qframe.push.contents import PushContent
from qframe.push.timed_connections import RequestEnd, TimedConnections

pytestmark = pytest.mark.gate

LIMIT_S = 60.0
STEP_MS = 10_000
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"), "receiver")


@pytest.fixture(scope="module")
def served_by(files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def tls(
    request: pytest.FixtureRequest, files: tuple[Path, Path], served_by: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> ssl.SSLContext | None:  # fmt: skip
    """How a server secures its connections, which clients trust."""
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    return served_by if request.param else None


@contextmanager
def listening(
    behave: Callable[[socket.socket], object], tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """The port of a server that behaves so towards its first client, and has then ended."""

    def serve() -> None:
        with suppress(OSError), server.accept()[0] as connection:
            stream = tls.wrap_socket(connection, server_side=True) if tls else connection
            with stream:
                behave(stream)

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind(("127.0.0.1", 0))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()


def sent(port: int, clock: Any, body: bytes = b"{}", *, tls: bool = True) -> None:
    url = f"{'https' if tls else 'http'}://localhost:{port}/"
    webhook = Webhook(url, OLD, timeout_s=LIMIT_S, private=True, clock=clock)
    webhook.send(PushContent("m", JSON, body))


def test_over_tls_a_message_goes_to_a_certificate_that_is_trusted_and_to_no_other(
    files: tuple[Path, Path], served_by: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    receiver.server.socket = served_by.wrap_socket(receiver.server.socket, server_side=True)
    receiver.server.handle_error = lambda *_: None  # type: ignore[method-assign]
    with receiver:
        port = receiver.server.server_port
        with pytest.raises(WebhookRefused, match="certificate verify failed"):
            sent(port, SYSTEM_CLOCK)
        assert receiver.got == []
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        sent(port, SYSTEM_CLOCK)
        assert [body for _, body in receiver.got] == [b"{}"]


def test_nothing_goes_to_a_private_address_that_a_name_turns_out_to_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name is looked up for each connection: it may have been public when it was registered."""
    addresses = ["93.184.215.14", "127.0.0.1"]
    monkeypatch.setattr("qframe.push.addresses.resolved", lambda host, port: addresses)
    webhook = Webhook("https://shop.example/", OLD, timeout_s=5, private=False, clock=SYSTEM_CLOCK)
    with pytest.raises(
        AddressRefused, match=r"has the address 127\.0\.0\.1, which is not a public"
    ):
        webhook.send(PushContent("m", JSON, b"{}"))


def test_a_receiver_that_answers_byte_by_byte_is_left_in_time(tls: ssl.SSLContext | None) -> None:
    """Each byte comes soon enough for a limit on silence, and the head has no end."""
    clock = VirtualClock()

    def dribble(connection: socket.socket) -> None:
        connection.recv(65_536)
        for _ in range(20):
            clock.advance(STEP_MS)
            connection.sendall(b"H")
        while connection.recv(65_536):
            pass  # its end would be an answer too

    with (
        listening(dribble, tls) as port,
        pytest.raises(WebhookRefused, match="not answered in time"),
    ):
        sent(port, clock, tls=tls is not None)


def test_of_an_answer_without_end_the_beginning_is_read() -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 500 No\r\n\r\n")
        while True:
            connection.sendall(b"x" * 10_000)

    with listening(answer) as port, pytest.raises(WebhookRefused, match=r"answered 500: x{200}$"):
        sent(port, SYSTEM_CLOCK, tls=False)


def test_a_receiver_that_takes_a_body_bit_by_bit_is_left_in_time(
    tls: ssl.SSLContext | None,
) -> None:
    clock, body, taken = VirtualClock(), bytes(32 * 2**20), 0

    def sip(connection: socket.socket) -> None:
        nonlocal taken
        while part := connection.recv(65_536):
            taken += len(part)
            clock.advance(STEP_MS)

    with listening(sip, tls) as port, pytest.raises(WebhookRefused, match="not answered in time"):
        sent(port, clock, body, tls=tls is not None)
    assert taken < len(body)


def test_a_handshake_has_what_the_connection_has_left_of_its_request() -> None:
    clock, limit = VirtualClock(), RequestEnd()

    class SlowNetwork(httpcore2.SyncBackend):
        @override
        def connect_tcp(self, *given: Any, **more: Any) -> httpcore2.NetworkStream:
            stream = super().connect_tcp(*given, **more)
            clock.advance(round(1000 * LIMIT_S))
            return stream

    with socket.create_server(("127.0.0.1", 0)) as server, limit.ending(LIMIT_S):
        network = TimedConnections(SlowNetwork(), limit, clock)
        stream = network.connect_tcp("127.0.0.1", server.getsockname()[1], 5.0)
        with pytest.raises(httpcore2.ReadTimeout):
            stream.start_tls(ssl.create_default_context(), "localhost", 0.5)
        stream.close()
