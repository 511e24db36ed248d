"""The ZooKeeper driver begins sessions, keeps them, tells when they are lost, and ends them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate
from eventually import eventually
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError
from servers import Proxy, ZooKeeperEnsemble3, ZooKeeperServer, free_port

from qframe import CoordinatorUnavailable
from qframe.drivers.zookeeper import ZooKeeper

Open = Callable[..., ZooKeeper]


@pytest.fixture
def open_(zookeeper_url: str) -> Iterator[Open]:
    """Starts drivers, on the server of all tests unless told otherwise; closes them in the end."""
    opened: list[ZooKeeper] = []

    def open_(
        url: str = zookeeper_url,
        session_s: float = 4.0,
        on_state: Callable[[], None] = lambda: None,
        within: float = 10.0,
    ) -> ZooKeeper:
        made = ZooKeeper(url, session_s=session_s, on_state=on_state)
        opened.append(made)
        made.start(within)
        return made

    yield open_
    for each in opened:
        each.close()


@contextmanager
def nobody(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client without a user, and without a chroot."""
    client = KazooClient(server.address)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def shorter_than(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


def ask(asked: Any) -> Any:
    return asked.get(timeout=5)


def root_of(url: str) -> str:
    return "/" + url.rpartition("/")[2]


def test_without_a_server_a_typed_error_comes_in_time(open_: Open) -> None:
    with shorter_than(2), pytest.raises(CoordinatorUnavailable, match="Connection refused") as told:
        open_(f"zookeeper://u:s3cret@127.0.0.1:{free_port()}/a", within=0.5)
    assert "s3cret" not in str(told.value)
    assert told.value.coordinator.startswith("zookeeper://***@127.0.0.1:")


def test_an_unknown_host_is_told(open_: Open) -> None:
    with (
        shorter_than(3),
        pytest.raises(CoordinatorUnavailable, match="Cannot resolve no-such-host"),
    ):
        open_("zookeeper://no-such-host.invalid/a", within=1.0)


def test_a_server_that_says_nothing_is_given_up_in_time(
    open_: Open, zookeeper: ZooKeeperServer
) -> None:
    with Proxy(zookeeper.port) as proxy:
        proxy.stall()
        with shorter_than(3), pytest.raises(CoordinatorUnavailable, match="time"):
            open_(f"zookeeper://127.0.0.1:{proxy.port}", session_s=30, within=1.0)


def test_one_of_two_servers_that_says_nothing_costs_its_share_of_the_session(
    open_: Open, zookeeper: ZooKeeperServer
) -> None:
    for _ in range(3):  # which is asked first is chance
        with Proxy(zookeeper.port) as proxy, shorter_than(3):
            proxy.stall()
            open_(f"zookeeper://127.0.0.1:{proxy.port},{zookeeper.address}").close()


def test_a_failed_start_may_be_followed_by_another(tmp_path: Path) -> None:
    port = free_port()
    driver = ZooKeeper(f"zookeeper://127.0.0.1:{port}", session_s=4, on_state=lambda: None)
    with pytest.raises(CoordinatorUnavailable):
        driver.start(0.2)
    assert not driver.connected
    with ZooKeeperServer(tmp_path, port=port):
        driver.start(10)
        assert driver.connected
        driver.close()


def test_the_chroot_is_made_and_kept_to(
    open_: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    driver = open_(f"{zookeeper_url}/b/c")
    path, stat = ask(driver.client.create_async("/node", b"x", include_data=True))
    assert (path, driver.root) == ("/node", f"{root_of(zookeeper_url)}/b/c")
    with nobody(zookeeper) as other:
        assert other.get(f"{driver.root}/node") == (b"x", stat)
    open_(f"{zookeeper_url}/b/c").close()  # which is there already
    assert ask(driver.client.get_children_async("/")) == ["node"]


def test_an_ephemeral_node_names_the_session(open_: Open) -> None:
    driver = open_()
    _, stat = ask(driver.client.create_async("/node", ephemeral=True, include_data=True))
    assert stat.ephemeralOwner == driver.session_id != 0


def with_user(url: str, user: str) -> str:
    return url.replace("://", f"://{user}@")


def test_nodes_of_a_user_are_closed_to_another_and_to_nobody(
    open_: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    driver = open_(with_user(zookeeper_url, "anna:s3cret"))
    ask(driver.client.create_async("/node", b"x"))
    assert ask(driver.client.get_async("/node"))[0] == b"x"
    ask(driver.client.set_async("/node", b"y"))
    for user in ("", "berta:s3cret@", "anna:other@"):
        url = f"zookeeper://{user}{zookeeper.address}"
        other = open_(url)
        for asked in (
            other.client.get_async(f"{driver.root}/node"),
            other.client.set_async(f"{driver.root}/node", b"z"),
            other.client.get_children_async(driver.root),
            other.client.create_async(f"{driver.root}/other"),
            other.client.delete_async(f"{driver.root}/node"),
        ):
            with pytest.raises(NoAuthError):
                ask(asked)
    again = open_(with_user(zookeeper_url, "anna:s3cret"))
    assert ask(again.client.get_async("/node"))[0] == b"y"
    ask(again.client.delete_async("/node"))


@pytest.mark.parametrize("user", ["", "berta:s3cret@", "anna:wr0ng@"])
def test_a_chroot_of_another_user_is_refused(
    open_: Open, zookeeper: ZooKeeperServer, zookeeper_url: str, user: str
) -> None:
    open_(with_user(zookeeper_url, "anna:s3cret"))
    url = zookeeper_url.replace("://", f"://{user}")
    for path in ("", "/below"):
        with pytest.raises(CoordinatorUnavailable, match="not open to this user") as told:
            open_(url + path)
        assert "wr0ng" not in str(told.value)


def test_a_server_that_takes_no_digest_refuses_the_user(open_: Open, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_(with_user(server.url, "anna:s3cret"), session_s=2)
        session = driver.session_id
        server.config["DigestAuthenticationProvider.enabled"] = "false"
        server.restart()
        eventually(lambda: "AUTH_FAILED" in driver.trouble)
        with shorter_than(5), pytest.raises(CoordinatorUnavailable, match="refuses the user"):
            open_(with_user(server.url, "anna:s3cret"))
        open_(server.url).close()
        # Whoever was refused in between is back once it is taken again.
        server.config["DigestAuthenticationProvider.enabled"] = "true"
        server.restart()
        eventually(lambda: driver.connected and driver.session_id not in (0, session))
        assert ask(driver.client.exists_async("/"))


def test_sessions_are_kept_over_a_cut_that_is_shorter(
    open_: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    states: list[bool] = []
    with Proxy(zookeeper.port) as proxy:
        url = f"zookeeper://127.0.0.1:{proxy.port}{root_of(zookeeper_url)}"
        driver = open_(url, on_state=lambda: states.append(driver.connected))
        session = driver.session_id
        ask(driver.client.create_async("/node", ephemeral=True))
        for _ in range(3):
            states.clear()
            proxy.refuse()
            proxy.reset_all()
            eventually(lambda: states == [False])
            assert driver.session_id == session
            proxy.accept()
            eventually(lambda: states == [False, True])
            assert driver.session_id == session
            assert ask(driver.client.exists_async("/node"))


def test_sessions_are_kept_over_a_restart_of_the_server(open_: Open, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_(server.url, session_s=6)
        session = driver.session_id
        for _ in range(4):
            server.kill()
            eventually(lambda: not driver.connected)
            server.restart()
            eventually(lambda: driver.connected)
            assert driver.session_id == session


def test_another_session_follows_one_that_has_expired(
    open_: Open, zookeeper: ZooKeeperServer
) -> None:
    told: list[tuple[bool, int, float]] = []
    driver = open_(
        on_state=lambda: told.append((driver.connected, driver.session_id, driver.session_s))
    )
    first = driver.session_id
    ask(driver.client.create_async("/node", ephemeral=True))
    told.clear()
    zookeeper.expire(*driver.client.client_id)
    eventually(lambda: driver.session_id not in (0, first))
    eventually(lambda: len(told) == 3)
    assert told == [(False, first, 4.0), (False, 0, 0.0), (True, driver.session_id, 4.0)]
    assert ask(driver.client.exists_async("/node")) is None
    assert driver.trouble


def test_a_session_is_lost_when_its_worker_is_cut_off_for_longer(
    open_: Open, zookeeper: ZooKeeperServer
) -> None:
    with Proxy(zookeeper.port) as proxy:
        driver = open_(f"zookeeper://127.0.0.1:{proxy.port}", session_s=1.0)
        first, path = driver.session_id, f"/cut-off-{proxy.port}"
        ask(driver.client.create_async(path, ephemeral=True))
        proxy.stall()
        with nobody(zookeeper) as other:
            eventually(lambda: not other.exists(path), within=3)
        eventually(lambda: not driver.connected)
        assert driver.session_id == first  # nobody has said yet that it is lost
        proxy.resume()
        eventually(lambda: driver.connected and driver.session_id not in (0, first))


def test_what_is_on_its_way_when_the_connection_breaks_is_unknown(
    open_: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    with Proxy(zookeeper.port) as proxy:
        driver = open_(f"zookeeper://127.0.0.1:{proxy.port}{root_of(zookeeper_url)}")
        proxy.drop_replies(1)
        with pytest.raises(ConnectionLoss):
            ask(driver.client.create_async("/node"))
        eventually(lambda: driver.connected)
        assert ask(driver.client.exists_async("/node"))


def test_another_server_takes_a_session_over_when_one_is_killed(
    open_: Open, tmp_path: Path
) -> None:
    with ZooKeeperEnsemble3(tmp_path) as servers:
        driver = open_(servers.url, session_s=6)
        session = driver.session_id
        ask(driver.client.create_async("/node", ephemeral=True))
        servers.servers[servers.leader()].kill()
        eventually(lambda: driver.connected and answers(driver, "/node"))
        assert driver.session_id == session


def answers(driver: ZooKeeper, path: str) -> bool:
    try:
        return bool(ask(driver.client.exists_async(path)))
    except ConnectionLoss:
        return False


@pytest.mark.parametrize(("asked_s", "granted_s"), [(0.1, 0.4), (3.5, 3.5), (600.0, 60.0)])
def test_the_session_lasts_as_long_as_the_server_grants(
    open_: Open, asked_s: float, granted_s: float
) -> None:
    assert open_(session_s=asked_s).session_s == granted_s


def test_what_the_server_grants_is_read_again_when_it_changes(open_: Open, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_(server.url, session_s=6)
        assert driver.session_s == 6
        server.config["maxSessionTimeout"] = 5000
        server.restart()
        eventually(lambda: driver.connected and driver.session_s == 5)


def test_closing_frees_ephemeral_nodes_at_once(
    open_: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    driver = open_(session_s=60)
    ask(driver.client.create_async("/node", ephemeral=True))
    with nobody(zookeeper) as other:
        path = f"{root_of(zookeeper_url)}/node"
        assert other.exists(path)
        with shorter_than(2):
            driver.close()
        assert not other.exists(path)
    assert (driver.connected, driver.session_id) == (False, 0)
    driver.close()
    with pytest.raises(CoordinatorUnavailable, match="not started"):
        driver.client  # noqa: B018
    driver.start(10)
    assert driver.connected


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_closing_ends_soon_though_the_server_is_away(
    open_: Open, tmp_path: Path, fault: str
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_(server.url, session_s=60)
        getattr(server, fault)()
        with shorter_than(5):
            driver.close()
        assert not driver.connected
        server.thaw()


def test_closing_ends_soon_though_a_server_is_being_looked_for(
    open_: Open, zookeeper: ZooKeeperServer
) -> None:
    with Proxy(zookeeper.port) as proxy:
        driver = open_(f"zookeeper://127.0.0.1:{proxy.port}", session_s=60)
        proxy.reset_all()
        proxy.stall()
        eventually(lambda: not driver.connected)
        with shorter_than(2):
            driver.close()


def test_an_error_that_kazoo_does_not_know_costs_the_session_and_no_more(
    open_: Open, capfd: pytest.CaptureFixture[str]
) -> None:
    driver = open_()
    first = driver.session_id

    class Odd:
        type = 99

        def serialize(self) -> bytes:
            raise ArithmeticError("odd")

    driver.client._call(Odd(), driver.client.handler.async_result())
    eventually(lambda: driver.trouble == "ArithmeticError: odd")
    eventually(lambda: driver.connected and driver.session_id not in (0, first))
    assert ask(driver.client.exists_async("/"))
    assert capfd.readouterr().err == ""


def test_kazoo_writes_no_log_and_tells_no_password(
    open_: Open,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(1), ZooKeeperServer(tmp_path) as server:
        driver = open_(with_user(server.url, "anna:s3cret"))
        ask(driver.client.create_async("/node"))
        server.kill()
        eventually(lambda: "refused" in driver.trouble)
        server.restart()
        eventually(lambda: driver.connected)
        driver.close()
    written = [each for each in caplog.records if each.levelno >= logging.INFO]
    assert written == []
    assert "s3cret" not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_after_a_fork_the_child_has_a_session_of_its_own(zookeeper: ZooKeeperServer) -> None:
    code = """
import os, sys
from qframe.drivers.zookeeper import ZooKeeper
driver = ZooKeeper(sys.argv[1], session_s=4, on_state=lambda: None)
driver.start(10)
first = driver.session_id
child = os.fork()
if child == 0:
    assert not driver.connected and driver.session_id == 0
    driver.close()
    driver.start(10)
    assert driver.connected and driver.session_id not in (0, first)
    driver.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert driver.connected and driver.session_id == first
assert driver.client.exists_async("/").get(timeout=5)
driver.close()
"""
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, zookeeper.url]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_process_ends_though_nobody_has_closed(zookeeper: ZooKeeperServer) -> None:
    code = """
import sys
from qframe.drivers.zookeeper import ZooKeeper
driver = ZooKeeper(sys.argv[1], session_s=4, on_state=lambda: None)
driver.start(10)
"""
    run = [sys.executable, "-c", code, zookeeper.url]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=20, env=os.environ)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that speaks TLS, with those who show its own certificate."""
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    with ZooKeeperServer(folder, tls=True, asks_clients=True) as server:
        yield server


def shown_by(server: ZooKeeperServer) -> str:
    return f"ssl_certfile={server.certificate}&ssl_keyfile={server.key}"


def test_over_tls_all_is_as_without(open_: Open, secured: ZooKeeperServer) -> None:
    driver = open_(f"{secured.url}&{shown_by(secured)}".replace("?", "/a/b?"))
    assert driver.root == "/a/b"
    ask(driver.client.create_async("/node", b"x" * 100_000))
    with shorter_than(5):  # several answers come in one record
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


def test_tls_goes_by_the_name_in_the_certificate(
    open_: Open, secured: ZooKeeperServer, tmp_path: Path
) -> None:
    by_name = secured.url.replace("127.0.0.1", "localhost")
    open_(f"{by_name}&{shown_by(secured)}").close()
    by_another = secured.url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(CoordinatorUnavailable):
        open_(f"{by_another}&{shown_by(secured)}", within=1)


def test_a_server_with_another_certificate_is_not_spoken_to(
    open_: Open, secured: ZooKeeperServer, tmp_path: Path
) -> None:
    other, _ = certificate(tmp_path, "other")
    for trusted in (f"ssl_ca_certs={other}", "ssl_check_hostname=false"):
        url = f"zookeepers://{secured.address}?{trusted}&{shown_by(secured)}"
        with pytest.raises(CoordinatorUnavailable, match="certificate verify failed"):
            open_(url, within=1)
    open_(f"zookeepers://{secured.address}?ssl_cert_reqs=none&{shown_by(secured)}").close()


def test_without_a_certificate_or_tls_such_a_server_is_not_reached(
    open_: Open, secured: ZooKeeperServer
) -> None:
    for url in (secured.url, f"zookeeper://{secured.address}"):
        with pytest.raises(CoordinatorUnavailable):
            open_(url, within=1)
