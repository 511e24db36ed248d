"""The ZooKeeper driver keeps sessions, tells when they are lost, and how long they may last."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import eventually
from kazoo.exceptions import ConnectionLoss
from servers import Proxy, ZooKeeperEnsemble3, ZooKeeperServer
from zookeeping import Open, ask, nobody, root_of

from qframe.drivers.zookeeper import ZooKeeper


def test_sessions_are_kept_over_a_restart_of_the_server(
    open_zookeeper: Open, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_zookeeper(server.url, session_s=6)
        session = driver.session_id
        for _ in range(4):
            server.kill()
            eventually(lambda: not driver.connected)
            server.restart()
            eventually(lambda: driver.connected)
            assert driver.session_id == session


@pytest.mark.parametrize("user", ["", "anna:s3cret@"])
def test_a_server_that_has_lost_its_data_begins_another_session_and_has_the_chroot_again(
    open_zookeeper: Open, tmp_path: Path, user: str
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_zookeeper(server.url.replace("://", f"://{user}") + "/a/b", session_s=1)
        first = driver.session_id
        ask(driver.client.create_async("/node"))
        server.kill()
        eventually(lambda: not driver.connected)
        shutil.rmtree(str(server.config["dataDir"]))
        server.restart()
        eventually(lambda: driver.session_id not in (0, first))
        assert ask(driver.client.exists_async("/node")) is None
        assert ask(driver.client.create_async("/node")) == "/node"


@pytest.mark.gate
def test_another_session_follows_one_that_has_expired(
    open_zookeeper: Open, zookeeper: ZooKeeperServer
) -> None:
    told: list[tuple[bool, int, float]] = []
    driver = open_zookeeper(
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
    open_zookeeper: Open, zookeeper: ZooKeeperServer
) -> None:
    with Proxy(zookeeper.port) as proxy:
        driver = open_zookeeper(f"zookeeper://127.0.0.1:{proxy.port}", session_s=4.0)
        first, path = driver.session_id, f"/cut-off-{proxy.port}"
        ask(driver.client.create_async(path, ephemeral=True))
        proxy.stall()
        with nobody(zookeeper) as other:
            eventually(lambda: not other.exists(path))
        eventually(lambda: not driver.connected)
        assert driver.session_id == first  # nobody has said yet that it is lost
        proxy.resume()
        eventually(lambda: driver.connected and driver.session_id not in (0, first))


def test_what_is_on_its_way_when_the_connection_breaks_is_unknown(
    open_zookeeper: Open, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    with Proxy(zookeeper.port) as proxy:
        # With so long a session no ping comes first, whose reply would be the one that is dropped.
        url = f"zookeeper://127.0.0.1:{proxy.port}{root_of(zookeeper_url)}"
        driver = open_zookeeper(url, session_s=60)
        proxy.drop_replies(1)
        with pytest.raises(ConnectionLoss):
            ask(driver.client.create_async("/node"))
        eventually(lambda: driver.connected)
        assert ask(driver.client.exists_async("/node"))


def test_another_server_takes_a_session_over_when_one_is_killed(
    open_zookeeper: Open, tmp_path: Path
) -> None:
    with ZooKeeperEnsemble3(tmp_path) as servers:
        driver = open_zookeeper(servers.url, session_s=6)
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
    open_zookeeper: Open, asked_s: float, granted_s: float
) -> None:
    driver = open_zookeeper(session_s=asked_s)
    eventually(lambda: driver.session_s == granted_s)  # a short one may be over, and another begun


def test_what_the_server_grants_is_read_again_when_it_changes(
    open_zookeeper: Open, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        driver = open_zookeeper(server.url, session_s=6)
        assert driver.session_s == 6
        server.config["maxSessionTimeout"] = 5000
        server.restart()
        eventually(lambda: driver.connected and driver.session_s == 5)


def test_an_error_that_kazoo_does_not_know_costs_the_session_and_no_more(
    open_zookeeper: Open, capfd: pytest.CaptureFixture[str]
) -> None:
    driver = open_zookeeper()
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


@pytest.mark.gate
def test_after_a_fork_the_child_has_a_session_of_its_own(zookeeper: ZooKeeperServer) -> None:
    code = """
import os, sys
from qframe.drivers.zookeeper import ZooKeeper
from qframe.drivers.zookeeper_servers import Connections, servers_of
driver = ZooKeeper(sys.argv[1], session_s=30, on_state=lambda: None)
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
assert driver.client.exists_async("/").get(timeout=60)
driver.close()
"""
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, zookeeper.url]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (ended.returncode, ended.stderr) == (0, "")
