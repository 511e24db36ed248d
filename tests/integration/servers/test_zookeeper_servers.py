"""The ZooKeeper servers that tests start do what they say."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from eventually import eventually
from kazoo.client import KazooClient
from servers import Proxy, ZooKeeperEnsemble3, ZooKeeperServer


@contextmanager
def connected(hosts: str, timeout_s: float = 10.0) -> Iterator[KazooClient]:
    """A client with a session of its own."""
    client = KazooClient(hosts, timeout=timeout_s)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_a_server_keeps_what_it_has_acknowledged_when_killed(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, connected(server.address, 30.0) as client:
        client.create("/node", b"value", ephemeral=True)
        port, pid = server.port, server.pid
        server.kill()
        eventually(lambda: not client.connected)
        server.restart()
        assert (server.port, server.pid != pid) == (port, True)
        with connected(server.address) as other:
            assert other.get("/node")[0] == b"value"


def test_a_session_ends_soon_after_its_time_while_its_worker_is_cut_off(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, connected(server.address) as other:
        with Proxy(server.port) as proxy, connected(f"127.0.0.1:{proxy.port}", 4.0) as client:
            session = client.client_id
            client.create("/node", ephemeral=True)
            proxy.stall()
            assert other.exists("/node")
            eventually(lambda: not other.exists("/node"))
            proxy.resume()
            eventually(lambda: client.client_id not in (None, session))
        assert server.url == f"zookeeper://{server.address}"


def test_an_ended_session_takes_its_nodes_with_it(zookeeper: ZooKeeperServer) -> None:
    with connected(zookeeper.address) as client, connected(zookeeper.address) as other:
        client.create("/ends", ephemeral=True)
        session = client.client_id
        zookeeper.expire(*session)
        assert not other.exists("/ends")
        eventually(lambda: client.client_id not in (None, session))


def test_a_frozen_server_answers_once_it_is_thawed(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        with connected(server.address) as client:
            asked = client.exists_async("/")
            assert asked.get(timeout=60)
            server.freeze()
            asked = client.exists_async("/")
            assert not asked.wait(0.3)
            server.thaw()
            assert asked.get(timeout=60)
        server.freeze()
    assert not server.is_running


def test_requests_are_counted(zookeeper: ZooKeeperServer) -> None:
    with connected(zookeeper.address) as client:
        before = zookeeper.packets()
        for _ in range(100):
            client.exists("/")
        assert 100 <= zookeeper.packets() - before <= 105
    assert "Mode: standalone" in zookeeper.word("srvr")


def test_three_servers_elect_another_leader_and_keep_sessions(tmp_path: Path) -> None:
    with ZooKeeperEnsemble3(tmp_path) as servers:
        hosts = ",".join(each.address for each in servers.servers)
        assert servers.url == f"zookeeper://{hosts}"
        first = servers.leader()
        with connected(hosts) as client:
            client.create("/node", b"value", ephemeral=True)
            session = client.client_id
            servers.servers[first].kill()
            [second] = eventually(lambda: leader(servers))
            assert second != first
            assert client.retry(client.get, "/node")[0] == b"value"
            assert client.client_id == session
            servers.expire(*session)
            eventually(lambda: client.client_id not in (None, session))
            assert not client.exists("/node")


def test_without_a_majority_nobody_is_served_until_there_is_one_again(tmp_path: Path) -> None:
    with ZooKeeperEnsemble3(tmp_path) as servers:
        with connected(servers.servers[0].address) as client:
            client.create("/node", b"value")
        for server in servers.servers[1:]:
            server.kill()
        eventually(lambda: not servers.servers[0].mode)
        assert leader(servers) == ()
        servers.servers[1].restart()
        eventually(lambda: leader(servers))
        with connected(servers.servers[1].address) as client:
            assert client.get("/node")[0] == b"value"


def leader(servers: ZooKeeperEnsemble3) -> tuple[int, ...]:
    try:
        return (servers.leader(),)
    except RuntimeError:
        return ()


def test_a_server_with_tls_takes_nothing_else(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path, tls=True) as server:
        context = ssl.create_default_context(cafile=server.certificate)
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            plain.sendall(b"ruok" * 2)
            assert b"imok" not in plain.recv(100)
        with (
            socket.create_connection(("127.0.0.1", server.port)) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as secured,
        ):
            assert secured.version() in {"TLSv1.2", "TLSv1.3"}
        assert server.url == (
            f"zookeepers://127.0.0.1:{server.port}?ssl_ca_certs={server.certificate}"
        )
        assert server.packets() > 0


def test_a_server_that_does_not_start_shows_its_log(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)did not start; its log ends:.*already in use"):
        ZooKeeperServer(tmp_path, port=zookeeper.port)


def test_without_zookeeper_a_test_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"the tests need ZooKeeper 3\.8 or newer and Java"):
        ZooKeeperServer(tmp_path / "server")
