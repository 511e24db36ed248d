"""`rediss://`: messages go over TLS, and only to a server whose certificate is the right one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from certificates import certificate
from eventually import eventually
from redis_servers import Sentinel
from servers import RedisServer, free_port
from serving import Publishing, Serving

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


@pytest.mark.gate
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


def test_a_certificate_that_is_not_trusted_is_told_from_a_server_that_is_away(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    url, trusted = server
    other, _ = certificate(tmp_path / "tls", "other")
    elsewhere = f"{url}?ssl_ca_certs={trusted}".replace("localhost", "127.0.0.2")
    for wrong, remedy in (
        (f"{url}?ssl_ca_certs={other}", r"file of the authority .* \(ssl_ca_certs=…\)"),
        (elsewhere, "name in the URL the host that it is for"),
    ):
        with QFrame(wrong) as app, pytest.raises(StoreUnavailable, match="not trusted") as caught:
            app.publish(Topic("orders"), 1)
        assert "certificate verify failed" in str(caught.value)
        assert re.search(remedy, str(caught.value))


def test_a_scheme_without_tls_at_a_port_with_it_and_the_reverse_are_told_the_other_scheme(
    server: tuple[str, Path], redis_server: RedisServer
) -> None:
    place, plain = server[0].partition("://")[2], f"localhost:{redis_server.port}"
    for scheme, path in (("redis", ""), ("redis+cluster", ""), ("redis+sentinel", "/primary")):
        secure = scheme.replace("redis", "rediss")
        with pytest.raises(StoreUnavailable, match="does not answer in TLS") as caught:
            open_store(f"{secure}://{plain}{path}?socket_connect_timeout=0.5")
        assert f"without TLS, write {scheme}://" in str(caught.value)
        with pytest.raises(StoreUnavailable) as caught:
            open_store(f"{scheme}://{place}{path}")
        assert f"if it speaks TLS there, write {secure}://" in str(caught.value)


def test_a_key_that_does_not_fit_its_certificate_is_named_with_its_remedy(tmp_path: Path) -> None:
    (made, key), (_, wrong) = (certificate(tmp_path, name) for name in ("one", "two"))
    locked, secret = certificate(tmp_path, "three", password="hunter2")
    for options, why in (
        (f"ssl_certfile={made}&ssl_keyfile={wrong}", "not that of the certificate.; name the key"),
        (f"ssl_certfile={made}", f"no private key in {made}.; name the file of the key, too"),
        (f"ssl_certfile={key}&ssl_keyfile={made}", f"no certificate in {key}"),
        (f"ssl_keyfile={key}", f"names the key {key} without its certificate; name both"),
        (f"ssl_certfile={locked}&ssl_keyfile={secret}", "the key has a password.; name its"),
        (f"ssl_certfile={locked}&ssl_keyfile={secret}&ssl_password=hunter3", "another password"),
        ("ssl_cert_reqs=nothing", "ssl_cert_reqs=nothing is none of none, optional, required"),
        ("ssl_cacert=/etc/ca.pem", "option is unknown .*ssl_cacert"),
    ):
        with pytest.raises(BadUrl, match=why) as caught:
            open_store(f"rediss://localhost?{options}")
        assert "hunter" not in str(caught.value)


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


@pytest.fixture
def failing_over(tmp_path: Path) -> Iterator[tuple[RedisServer, str, Path]]:
    """A primary that a replica replaces, all by TLS; their URL, and the folder of certificates."""
    made, key = certificate(tmp_path / "tls", "server")

    def tls(port: int) -> dict[str, str]:
        return {
            "tls-port": str(port), "tls-cert-file": str(made), "tls-key-file": str(key),
            "tls-ca-cert-file": str(made), "tls-auth-clients": "yes", "tls-replication": "yes",
        }  # fmt: skip

    ports = [free_port() for _ in range(5)]
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer(tmp_path / "primary", config=tls(ports[0])))
        config = {**tls(ports[1]), "replicaof": f"127.0.0.1 {ports[0]}"}
        replica = stack.enter_context(RedisServer(tmp_path / "replica", config=config))
        eventually(lambda: b"connected" in replica.call("ROLE"))
        sentinels = [
            stack.enter_context(Sentinel(tmp_path / str(port), "primary", ports[0], tls(port)))
            for port in ports[2:]
        ]
        for each in sentinels:
            eventually(lambda each=each: knows_all(each))
        hosts = ",".join(f"localhost:{port}" for port in ports[2:])
        yield primary, f"rediss+sentinel://{hosts}/primary", tmp_path / "tls"


def knows_all(sentinel: Sentinel) -> bool:
    """Whether it may have the replica promoted."""
    with sentinel.client() as client:
        known = client.sentinel_master("primary")
    return bool(known["num-slaves"] == 1 and known["num-other-sentinels"] == 2)


def test_a_failover_is_followed_with_the_files_as_they_are_by_then(
    failing_over: tuple[RedisServer, str, Path],
) -> None:
    """A client's certificate is renewed on disk under a running worker."""
    primary, url, folder = failing_over
    files = {"ssl_certfile": "crt", "ssl_keyfile": "key"}
    for ending in files.values():
        shutil.copy(folder / f"server.{ending}", folder / f"client.{ending}")
    own = "&".join(f"{option}={folder}/client.{ending}" for option, ending in files.items())
    topic, faults = Topic("orders", "ordered", slots=2), list[str]()
    with Serving(f"{url}?ssl_ca_certs={folder}/server.crt&{own}", topic) as serving:
        serving.app.events.listen(lambda _, facts: faults.append(str(facts.get("error"))))
        serving.app.publish(topic, 0, key="k0")
        serving.await_bodies({0})
        other, key = certificate(folder, "other")  # which no server trusts
        shutil.copy(other, folder / "client.crt")
        shutil.copy(key, folder / "client.key")
        primary.kill()
        eventually(lambda: any("not accept" in fault for fault in faults))
        for ending in files.values():
            shutil.copy(folder / f"server.{ending}", folder / f"client.{ending}")
        with Publishing(serving.app, topic, most=40) as publishing:
            publishing.await_more(40)
        serving.await_bodies(set(range(40)))


@pytest.mark.gate
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
