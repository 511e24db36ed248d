"""`rediss://`: messages go over TLS, and only to a server whose certificate is the right one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate
from servers import RedisServer, free_port

from qframe import Message, Outgoing, QFrame, StoreUnavailable, Topic


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Where a server speaks TLS, and the certificate to trust."""
    made, key = certificate(tmp_path / "tls", "server")
    port = free_port()
    config = {
        "tls-port": str(port), "tls-cert-file": str(made), "tls-key-file": str(key),
        "tls-ca-cert-file": str(made), "tls-auth-clients": "no",
    }  # fmt: skip
    with RedisServer(tmp_path / "redis", config=config):
        yield f"rediss://localhost:{port}", made


def test_messages_go_over_tls(server: tuple[str, Path]) -> None:
    url, trusted = server
    handled: list[int] = []
    with QFrame(f"{url}?ssl_ca_certs={trusted}") as app:
        topic = Topic("orders", "ordered", slots=4)

        @app.consumer(topic, "billing")
        def handle(message: Message) -> None:
            handled.append(message.body)

        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(20)])
        app.run(burst=True)
    assert sorted(handled) == list(range(20))


def test_a_server_with_another_certificate_is_not_spoken_to(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    url, _ = server
    other, _ = certificate(tmp_path / "tls", "other")
    with QFrame(f"{url}?ssl_ca_certs={other}") as app, pytest.raises(StoreUnavailable, match="ert"):
        app.publish(Topic("orders"), 1)
