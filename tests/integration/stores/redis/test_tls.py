"""`rediss://`: messages go over TLS, and only to a server whose certificate is the right one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate
from servers import RedisServer, free_port

from qframe import BadUrl, Message, Outgoing, QFrame, StoreUnavailable, Topic
from qframe.stores.open import open_store


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Where a server speaks TLS, and the certificate to trust."""
    made, key = certificate(tmp_path / "tls", "server")
    port = free_port()
    config = {
        "bind": "127.0.0.1 127.0.0.2",  # the certificate does not name the second
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


def test_a_certificate_that_is_not_trusted_is_told_from_a_server_that_is_away(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    url, trusted = server
    other, _ = certificate(tmp_path / "tls", "other")
    for wrong in (f"{url}?ssl_ca_certs={other}", f"{url}?ssl_ca_certs={trusted}".replace(
        "localhost", "127.0.0.2"
    )):  # fmt: skip
        with QFrame(wrong) as app, pytest.raises(StoreUnavailable, match="not trusted") as caught:
            app.publish(Topic("orders"), 1)
        assert "certificate verify failed" in str(caught.value)
        assert "name in the URL the file of the authority" in str(caught.value)


def test_sentinels_whose_certificate_is_not_trusted_are_told_from_those_that_are_away(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    place = server[0].removeprefix("rediss://")
    other, _ = certificate(tmp_path / "tls", "other")
    away = f"localhost:{free_port()}"
    url = f"rediss+sentinel://{away},{place},{away}/primary?ssl_ca_certs={other}"
    with QFrame(url) as app, pytest.raises(StoreUnavailable, match="not trusted") as caught:
        app.publish(Topic("orders"), 1)
    said = str(caught.value)
    assert "no Sentinel can be asked: Error 111" in said
    assert said.count("Connection refused") == 1, "each kind of fault is told once"
    assert "certificate verify failed" in said
    assert "name in the URL the file of the authority" in said


def test_a_host_is_not_checked_where_the_url_says_so(server: tuple[str, Path]) -> None:
    url, trusted = server
    other = url.replace("localhost", "127.0.0.2")
    with QFrame(f"{other}?ssl_ca_certs={trusted}&ssl_check_hostname=false") as app:
        app.publish(Topic("orders"), 1)


@pytest.mark.parametrize("scheme", ["rediss", "rediss+sentinel", "rediss+cluster"])
@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
def test_a_file_that_cannot_be_read_is_named(scheme: str, option: str, tmp_path: Path) -> None:
    path = "name" if "sentinel" in scheme else ""
    empty = tmp_path / "empty"
    empty.touch()
    for file, why in ((tmp_path / "absent", "No such file"), (empty, "")):
        with pytest.raises(BadUrl, match=f"{file} cannot be used .*{why}"):
            open_store(f"{scheme}://localhost/{path}?{option}={file}")


def test_options_of_tls_in_a_url_without_tls_are_refused() -> None:
    """The messages, and the password, would go in plain text."""
    for scheme in ("redis://localhost", "redis+cluster://localhost"):
        for option in ("ssl_ca_certs=/etc/ca.pem", "ssl=true"):
            with pytest.raises(BadUrl, match="write rediss://"):
                open_store(f"{scheme}?{option}")


def test_a_certificate_that_is_renewed_is_used_by_the_next_connection(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    url, trusted = server
    named = tmp_path / "authority.pem"
    named.write_bytes(trusted.read_bytes())
    topic = Topic("orders")
    with QFrame(f"{url}?ssl_ca_certs={named}") as app:
        app.publish(topic, 1)
        named.unlink()  # as while it is replaced
        app.store.reconnect()
        with pytest.raises(StoreUnavailable):
            app.publish(topic, 2)
        named.write_bytes(trusted.read_bytes())
        app.publish(topic, 2)
