"""`zookeepers://`: all goes over TLS, and only to a server whose certificate is the right one."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate
from eventually import eventually
from servers import ZooKeeperServer
from zookeeping import Open, ask, shorter_than

from qframe import CoordinatorUnavailable, Message, QFrame, Topic
from qframe.drivers.zookeeper_servers import Connections, servers_of


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that speaks TLS, with those who show its own certificate."""
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    with ZooKeeperServer(folder, tls=True, asks_clients=True) as server:
        yield server


def shown_by(server: ZooKeeperServer) -> str:
    return f"ssl_certfile={server.certificate}&ssl_keyfile={server.key}"


@pytest.mark.gate
def test_over_tls_all_is_as_without(open_zookeeper: Open, secured: ZooKeeperServer) -> None:
    driver = open_zookeeper(f"{secured.url}&{shown_by(secured)}".replace("?", "/a/b?"), 60)
    assert driver.root == "/a/b"
    ask(driver.client.create_async("/node", b"x" * 100_000))
    with shorter_than(15):  # several answers come in one record
        asked = [driver.client.get_async("/node") for _ in range(50)]
        asked += [driver.client.exists_async("/node") for _ in range(1000)]
        answered = [ask(each) for each in asked]
    assert answered[0][0] == b"x" * 100_000
    session = driver.session_id
    secured.kill()
    eventually(lambda: not driver.connected)
    secured.restart()
    eventually(lambda: driver.connected)
    assert driver.session_id == session


def test_what_tls_has_read_ahead_is_seen(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made, key)
    servers = servers_of(f"zookeepers://a?ssl_ca_certs={made}")
    connections = Connections(servers, 4.0, lambda error: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            near, _ = listener.accept()
            with context.wrap_socket(near, server_side=True) as secured:
                secured.sendall(b"two answers in one record")
                secured.recv(1)

        serving = threading.Thread(target=serve)
        serving.start()
        with connections.create_connection(listener.getsockname(), "localhost") as connection:
            assert connections.select([connection], [], [], 60.0)[0] == [connection]
            assert connection.recv(3) == b"two"
            assert connections.select([connection], [], [], 0.0)[0] == [connection]
            connection.recv(100)
            assert connections.select([connection], [], [], 0.0)[0] == []
        serving.join()


def test_a_file_that_is_renewed_is_read_by_the_next_connection(
    secured: ZooKeeperServer, tmp_path: Path
) -> None:
    """A client's certificate lives for a day, maybe, and its worker for a month."""
    named, (other, _) = tmp_path / "authority.pem", certificate(tmp_path, "other")
    named.write_bytes(other.read_bytes())
    url = f"zookeepers://{secured.address}?ssl_ca_certs={named}&{shown_by(secured)}"
    servers = servers_of(url)
    connections = Connections(servers, 4.0, lambda error: None)
    host, _, port = secured.address.rpartition(":")
    with pytest.raises(ssl.SSLCertVerificationError):
        connections.create_connection((host, int(port)), "localhost")
    named.unlink()  # as while it is replaced
    with pytest.raises(ConnectionAbortedError, match=f"{named} cannot be used"):
        connections.create_connection((host, int(port)), "localhost")
    named.write_bytes(secured.certificate.read_bytes())
    connections.create_connection((host, int(port)), "localhost").close()


def test_tls_goes_by_the_name_in_the_certificate(
    open_zookeeper: Open, secured: ZooKeeperServer, tmp_path: Path
) -> None:
    by_name = secured.url.replace("127.0.0.1", "localhost")
    open_zookeeper(f"{by_name}&{shown_by(secured)}").close()
    by_another = secured.url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(CoordinatorUnavailable):
        open_zookeeper(f"{by_another}&{shown_by(secured)}", within=1)


def test_a_server_with_another_certificate_is_not_spoken_to(
    open_zookeeper: Open, secured: ZooKeeperServer, tmp_path: Path
) -> None:
    other, _ = certificate(tmp_path, "other")
    for trusted in (f"ssl_ca_certs={other}", "ssl_check_hostname=false"):
        url = f"zookeepers://{secured.address}?{trusted}&{shown_by(secured)}"
        with pytest.raises(
            CoordinatorUnavailable, match=r"not trusted.*verify failed.*ssl_ca_certs="
        ):
            open_zookeeper(url, within=3)
    open_zookeeper(f"zookeepers://{secured.address}?ssl_cert_reqs=none&{shown_by(secured)}").close()


def test_without_a_certificate_or_tls_such_a_server_is_not_reached(
    open_zookeeper: Open, secured: ZooKeeperServer
) -> None:
    for url, why in (
        (secured.url, "does not accept this client's TLS|breaks off TLS"),
        (f"zookeeper://{secured.address}", "if it speaks TLS there, write zookeepers://"),
    ):
        with pytest.raises(CoordinatorUnavailable, match=why):
            open_zookeeper(url, within=3)


def test_tls_to_a_server_without_it_is_told_the_other_scheme(
    open_zookeeper: Open, zookeeper: ZooKeeperServer
) -> None:
    with pytest.raises(CoordinatorUnavailable, match="without TLS, write zookeeper://"):
        open_zookeeper(f"zookeepers://{zookeeper.address}", within=3)


def test_a_worker_says_why_a_coordinator_that_was_there_is_not_reached(tmp_path: Path) -> None:
    """It said `ConnectionLoss`, and nothing of the certificate that had been replaced by then."""
    said: list[str] = []
    with ZooKeeperServer(tmp_path / "zookeeper", tls=True) as server:
        url = f"sqlite:///{tmp_path}/q.db"
        with QFrame(url, coordinator=server.url, session_timeout=2) as app:

            @app.consumer(Topic("orders", slots=2), group="billing")
            def bill(message: Message) -> None: ...

            app.events.listen(lambda name, facts: said.append(f"{name} {facts.get('error')}"))
            running = threading.Thread(target=app.run)
            running.start()
            try:
                eventually(lambda: any("slot.taken" in text for text in said))
                made, key = certificate(tmp_path, "other")
                before = Path(str(server.config["ssl.keyStore.location"]))
                kept = before.read_bytes()
                before.write_bytes(key.read_bytes() + made.read_bytes())
                server.restart()
                eventually(lambda: any("not trusted" in text for text in said))
                before.write_bytes(kept)
                server.restart()
                eventually(lambda: sum("slot.taken" in text for text in said) == 2)
            finally:
                app.stop()
                running.join()
