"""The ZooKeeper driver starts, or says why not; keeps to its chroot and its user; and ends."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from eventually import eventually
from kazoo.exceptions import NoAuthError
from servers import Proxy, ZooKeeperServer, free_port
from zookeeping import Open, ask, nobody, root_of, shorter_than, with_user

from qframe import CoordinatorUnavailable
from qframe.drivers.zookeeper import ZooKeeper


@contextmanager
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    eventually(lambda: ours() <= before)


def ours() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("qframe.")}


def test_without_a_server_a_typed_error_comes_in_time(open_zookeeper: Open) -> None:
    with (
        shorter_than(30),
        pytest.raises(CoordinatorUnavailable, match="Connection refused") as told,
    ):
        open_zookeeper(f"zookeeper://u:s3cret@127.0.0.1:{free_port()}/a", within=3)
    assert "s3cret" not in str(told.value)
    assert told.value.coordinator.startswith("zookeeper://***@127.0.0.1:")


def test_an_unknown_host_is_told(open_zookeeper: Open) -> None:
    with (
        shorter_than(30),
        pytest.raises(CoordinatorUnavailable, match="Cannot resolve no-such-host"),
    ):
        open_zookeeper("zookeeper://no-such-host.invalid/a", within=3)


def test_a_server_that_says_nothing_is_given_up_in_time(
    open_zookeeper: Open, zookeeper: ZooKeeperServer
) -> None:
    with Proxy(zookeeper.port) as proxy:
        proxy.stall()
        with shorter_than(30), pytest.raises(CoordinatorUnavailable, match="time"):
            open_zookeeper(f"zookeeper://127.0.0.1:{proxy.port}", session_s=60, within=1.0)


def test_one_of_two_servers_that_says_nothing_costs_its_share_of_the_session(
    open_zookeeper: Open, zookeeper: ZooKeeperServer
) -> None:
    for _ in range(3):  # which is asked first is chance
        with Proxy(zookeeper.port) as proxy, shorter_than(12):
            proxy.stall()
            url = f"zookeeper://127.0.0.1:{proxy.port},{zookeeper.address}"
            open_zookeeper(url, session_s=12, within=60).close()


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


@pytest.mark.gate
def test_the_chroot_is_made_and_kept_to(
    open_zookeeper: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    driver = open_zookeeper(f"{zookeeper_url}/b/c")
    path, stat = ask(driver.client.create_async("/node", b"x", include_data=True))
    assert (path, driver.root) == ("/node", f"{root_of(zookeeper_url)}/b/c")
    with nobody(zookeeper) as other:
        assert other.get(f"{driver.root}/node") == (b"x", stat)
    open_zookeeper(f"{zookeeper_url}/b/c").close()  # which is there already
    assert ask(driver.client.get_children_async("/")) == ["node"]


def test_nodes_of_a_user_are_closed_to_another_and_to_nobody(
    open_zookeeper: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    driver = open_zookeeper(with_user(zookeeper_url, "anna:s3cret"))
    ask(driver.client.create_async("/node", b"x"))
    assert ask(driver.client.get_async("/node"))[0] == b"x"
    ask(driver.client.set_async("/node", b"y"))
    for user in ("", "berta:s3cret@", "anna:other@"):
        url = f"zookeeper://{user}{zookeeper.address}"
        other = open_zookeeper(url)
        for asked in (
            other.client.get_async(f"{driver.root}/node"),
            other.client.set_async(f"{driver.root}/node", b"z"),
            other.client.get_children_async(driver.root),
            other.client.create_async(f"{driver.root}/other"),
            other.client.delete_async(f"{driver.root}/node"),
        ):
            with pytest.raises(NoAuthError):
                ask(asked)
    again = open_zookeeper(with_user(zookeeper_url, "anna:s3cret"))
    assert ask(again.client.get_async("/node"))[0] == b"y"
    ask(again.client.delete_async("/node"))


@pytest.mark.parametrize("user", ["", "berta:s3cret@", "anna:wr0ng@"])
def test_a_chroot_of_another_user_is_refused(
    open_zookeeper: Open, zookeeper: ZooKeeperServer, zookeeper_url: str, user: str
) -> None:
    open_zookeeper(with_user(zookeeper_url, "anna:s3cret"))
    url = zookeeper_url.replace("://", f"://{user}")
    for path in ("", "/below"):
        with pytest.raises(CoordinatorUnavailable, match="not open to this user") as told:
            open_zookeeper(url + path)
        assert "wr0ng" not in str(told.value)
        assert "name the user that made them in the URL" in told.value.remedy


def test_a_server_that_takes_no_digest_refuses_the_user(
    open_zookeeper: Open, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_zookeeper(with_user(server.url, "anna:s3cret"), session_s=2)
        session = driver.session_id
        server.config["DigestAuthenticationProvider.enabled"] = "false"
        server.restart()
        eventually(lambda: "AUTH_FAILED" in driver.trouble)
        with shorter_than(30), pytest.raises(CoordinatorUnavailable, match="refuses the user"):
            open_zookeeper(with_user(server.url, "anna:s3cret"), within=60)
        open_zookeeper(server.url).close()
        # Whoever was refused in between is back once it is taken again.
        server.config["DigestAuthenticationProvider.enabled"] = "true"
        server.restart()
        eventually(lambda: driver.connected and driver.session_id not in (0, session))
        assert ask(driver.client.exists_async("/"))


@pytest.mark.gate
def test_closing_frees_ephemeral_nodes_at_once(
    open_zookeeper: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    driver = open_zookeeper(session_s=60)
    ask(driver.client.create_async("/node", ephemeral=True))
    with nobody(zookeeper) as other:
        path = f"{root_of(zookeeper_url)}/node"
        assert other.exists(path)
        with shorter_than(30):
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
    open_zookeeper: Open, tmp_path: Path, fault: str
) -> None:
    with ZooKeeperServer(tmp_path) as server, no_thread_left():
        driver = open_zookeeper(server.url, session_s=60)
        getattr(server, fault)()
        with shorter_than(30):
            driver.close()
        assert not driver.connected


def test_closing_ends_soon_though_a_server_is_being_looked_for(
    open_zookeeper: Open, zookeeper: ZooKeeperServer
) -> None:
    with Proxy(zookeeper.port) as proxy, no_thread_left():
        driver = open_zookeeper(f"zookeeper://127.0.0.1:{proxy.port}", session_s=60)
        proxy.stall()
        proxy.reset_all()
        eventually(lambda: not driver.connected)
        with shorter_than(30):
            driver.close()


def test_a_server_is_looked_for_again_and_again(open_zookeeper: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tries: list[float] = []

        def turn_away() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()
                    tries.append(time.monotonic())

        turning_away = threading.Thread(target=turn_away)
        turning_away.start()
        with pytest.raises(CoordinatorUnavailable):
            open_zookeeper(
                f"zookeeper://127.0.0.1:{listener.getsockname()[1]}", session_s=1, within=6
            )
        listener.shutdown(socket.SHUT_RDWR)
        turning_away.join()
    assert len(tries) > 10
    # All but those in which the machine stood still.
    assert median(after - before for before, after in pairwise(tries)) < 1


def test_kazoo_writes_no_log_and_tells_no_password(
    open_zookeeper: Open,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(1), ZooKeeperServer(tmp_path) as server:
        driver = open_zookeeper(with_user(server.url, "anna:s3cret"))
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


def test_a_process_ends_though_nobody_has_closed(zookeeper: ZooKeeperServer) -> None:
    code = """
import sys
from qframe.drivers.zookeeper import ZooKeeper
from qframe.drivers.zookeeper_servers import Connections, servers_of
driver = ZooKeeper(sys.argv[1], session_s=4, on_state=lambda: None)
driver.start(10)
"""
    run = [sys.executable, "-c", code, zookeeper.url]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (ended.returncode, ended.stderr) == (0, "")
