"""The servers that tests start, and the proxy before them, do what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from absence import absent
from eventually import eventually
from kazoo.client import KazooClient
from ports import give_back
from servers import (
    MariaDbServer,
    PostgresServer,
    Proxy,
    RedisServer,
    ZooKeeperServer,
    connect,
    free_port,
)


def through(proxy: Proxy, timeout_s: float = 5.0) -> redis.Redis:
    """A client of a proxy that is connected already."""
    client = connect(proxy.port, timeout_s)
    client.ping()
    return client


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


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


class Sort(NamedTuple):
    """A sort of server, and what is written to one and read of it.

    Attributes:
        start: starts one.
        write: writes something.
        read: returns what was written.
    """

    start: Callable[..., Any]
    write: Callable[[Any], object]
    read: Callable[[Any], object]


def in_table(server: Any) -> None:
    server.call("CREATE TABLE kept (n INTEGER)", name_of(server))
    server.call("INSERT INTO kept VALUES (7)", name_of(server))


def of_table(server: Any) -> object:
    return list(server.call("SELECT n FROM kept", name_of(server)))


def name_of(server: Any) -> str:
    return "postgres" if isinstance(server, PostgresServer) else "mysql"


def in_node(server: ZooKeeperServer) -> None:
    with connected(server.address) as client:
        client.create("/node", b"7")


def of_node(server: ZooKeeperServer) -> object:
    with connected(server.address, 60.0) as client:
        return client.get("/node")[0]


SORTS = {
    "redis": Sort(
        partial(RedisServer, aof=True), lambda server: server.call("SET", "k", 7),
        lambda server: server.call("GET", "k"),
    ),
    "postgres": Sort(PostgresServer, in_table, of_table),
    "mariadb": Sort(MariaDbServer, in_table, of_table),
    "zookeeper": Sort(ZooKeeperServer, in_node, of_node),
}  # fmt: skip


@pytest.fixture(params=SORTS)
def sort(request: pytest.FixtureRequest) -> Sort:
    return SORTS[request.param]


def test_a_server_answers_once_it_is_thawed_keeps_what_it_has_when_killed_and_leaves_no_trace(
    sort: Sort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = Path(tempfile.mkdtemp(prefix="qframe-outside-"))
    outside.chmod(0o755)  # PostgreSQL's user is to come to its own folder in it
    monkeypatch.setattr("tempfile.tempdir", str(outside))
    with sort.start(tmp_path / "server") as server, ThreadPoolExecutor(1) as reading:
        sort.write(server)
        before = sort.read(server)
        server.freeze()
        asked = reading.submit(sort.read, server)
        with pytest.raises(TimeoutError):
            asked.result(0.3)
        server.thaw()
        assert asked.result(60) == before
        port, pid = server.port, server.pid
        server.kill()
        assert not server.is_running
        server.restart()
        assert (server.port, server.pid != pid) == (port, True)
        assert sort.read(server) == before
        server.freeze()
    assert not server.is_running
    outside.rmdir()  # as nothing is left in it


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("redis", "redis-server 7 or newer: install it"), ("zookeeper", "ZooKeeper 3.8 or newer")],
)
def test_a_server_that_cannot_start_shows_its_log_and_one_that_is_missing_says_so(
    name: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SORTS[name].start
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=r"(?si)did not start; its log ends:.*in use"):
            start(tmp_path / "server", port=port)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=f"the tests need {wanted}"):
        start(tmp_path / "other")


def test_a_server_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, servers\n"
        f"server = servers.RedisServer(pathlib.Path({str(tmp_path)!r}))\n"
        "print(server.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = Path(__file__).parents[2] / "support"
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    with connect(int(ended.stdout)) as client:
        eventually(lambda: not answers(client))


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.gate
def test_no_port_is_given_twice() -> None:
    ports = {free_port() for _ in range(50)}
    assert len(ports) == 50
    assert max(ports) < 50_000


def test_a_port_that_is_given_to_one_process_is_given_to_no_other() -> None:
    # Nobody listens on it yet, so that looking would find it free.
    port = free_port()
    code = f"import ports; ports.PORTS = [{port}]; ports.free_port()"
    folder = Path(__file__).parents[2] / "support"
    other = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert other.stderr.endswith("RuntimeError: no free port found\n")
    give_back(port)
    assert not subprocess.run([sys.executable, "-c", code], cwd=folder).returncode


def test_a_server_that_does_not_start_fails_the_first_test_alone_and_is_told_of_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_many.py").write_text(
        "import pytest\n"
        "from servers import RedisServer\n"
        "@pytest.fixture(scope='session')\n"
        "def server(tmp_path_factory):\n"
        "    return RedisServer(tmp_path_factory.mktemp('it'), config={'no-such-option': '1'})\n"
        "@pytest.mark.parametrize('number', range(50))\n"
        "def test_of_the_server(server, number): pass\n"
        "def test_of_something_else(): pass\n",
        encoding="utf-8",
    )
    folder = Path(__file__).parents[2] / "support"
    command = [sys.executable, "-m", "pytest", "-p", "absence", "-ra", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    for name in ("CI", "BUILD_NUMBER"):  # with these, pytest repeats whole errors in its summary
        env.pop(name, None)
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert "1 passed, 49 skipped, 1 error" in done.stdout
    assert done.stdout.count("*** FATAL CONFIG FILE ERROR") == 1
    [short] = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert short.startswith("SKIPPED [49] ")
    assert short.endswith("not run, see the error above: redis-server did not start; its log ends:")


def test_a_means_that_the_machine_lacks_is_a_failure_in_ci_and_a_skipped_test_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="it has none"):
        absent("it has none")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="it has none"):
        absent("it has none")


@pytest.mark.gate
def test_a_proxy_resets_connections_and_takes_new_ones(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as raw:
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            raw.recv(100)
    through(proxy).close()


@pytest.mark.parametrize("server", [MariaDbServer, RedisServer])
def test_eight_servers_are_installed_and_started_at_once(
    server: type[MariaDbServer] | type[RedisServer], tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    # Servers die with the threads that have started them, so these last until all have ended.
    with ThreadPoolExecutor(8) as starting, ExitStack() as stack:
        started = [stack.enter_context(each) for each in starting.map(server, folders)]
        assert all(each.is_running for each in started)
        assert len({each.port for each in started}) == 8


def test_a_database_that_starts_leaves_the_temporary_tables_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    anothers = shared / "#sql-temptable-1-1-1.MAI"
    anothers.touch()
    with MariaDbServer(tmp_path / "database"):
        assert anothers.exists()


def test_requests_are_counted(zookeeper: ZooKeeperServer) -> None:
    with connected(zookeeper.address) as client:
        before = zookeeper.packets()
        for _ in range(100):
            client.exists("/")
        assert 100 <= zookeeper.packets() - before <= 105
    assert "Mode: standalone" in zookeeper.word("srvr")
