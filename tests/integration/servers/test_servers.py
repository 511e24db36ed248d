"""The servers that tests start, and the proxy before them, do what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from absence import absent
from eventually import eventually
from ports import give_back
from programs import program
from redis.cluster import ClusterNode, RedisCluster
from servers import Proxy, RedisCluster3, RedisServer, SentinelSet, connect, free_port


def through(proxy: Proxy, timeout_s: float = 5.0) -> redis.Redis:
    """A client of a proxy that is connected already."""
    client = connect(proxy.port, timeout_s)
    client.ping()
    return client


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def key() -> str:
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def everywhere(redis_cluster: RedisCluster3) -> Iterator[RedisCluster]:
    """A client of the whole cluster."""
    nodes = [ClusterNode("127.0.0.1", each.port) for each in redis_cluster.servers]
    client = RedisCluster(startup_nodes=nodes)
    yield client
    client.close()


def test_a_server_keeps_what_it_has_acknowledged_when_killed(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "server", aof=True) as server, server.client() as client:
        client.set("key", "value")
        port, pid = server.port, server.pid
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("key")
        server.restart()
        assert (server.port, server.pid != pid) == (port, True)
        assert client.get("key") == b"value"


def test_a_frozen_server_answers_once_it_is_thawed(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        with server.client() as patient, connect(server.port, 0.2) as hasty:
            patient.ping()
            server.freeze()
            with pytest.raises(redis.TimeoutError):
                hasty.ping()
            server.thaw()
            assert patient.ping()
        server.freeze()
    assert not server.is_running


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


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)did not start; its log ends:.*no-such-option"):
        RedisServer(tmp_path, config={"no-such-option": "1"})


def test_a_port_that_is_taken_is_not_mistaken_for_the_new_server(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with pytest.raises(RuntimeError, match="Address already in use"):
        RedisServer(tmp_path, port=redis_server.port)


def test_without_redis_a_test_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="the tests need redis-server 7 or newer: install it"):
        RedisServer(tmp_path / "server")


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


def test_a_program_is_found_where_only_roots_path_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(program("mariadbd", "it is missing")).name == "mariadbd"


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


def test_sentinels_promote_the_replica_when_the_primary_is_killed(tmp_path: Path) -> None:
    with SentinelSet(tmp_path) as servers:
        assert servers.current_primary_port() == servers.primary.port
        with servers.primary.client() as client:
            client.set("key", "value")
            assert client.wait(1, 5000) == 1
        servers.kill_primary()
        assert not servers.primary.is_running
        eventually(lambda: servers.current_primary_port() == servers.replica.port)
        with servers.replica.client() as client:
            assert client.role()[0] == b"master"
            assert client.get("key") == b"value"


def test_a_cluster_serves_a_key_on_each_node(
    redis_cluster: RedisCluster3, everywhere: RedisCluster, key: str
) -> None:
    nodes = set()
    for number in range(50):
        assert everywhere.set(f"{key}-{number}", number)
        assert everywhere.get(f"{key}-{number}") == str(number).encode()
        nodes.add(redis_cluster.node_of(everywhere.keyslot(f"{key}-{number}")))
    assert nodes == {0, 1, 2}


def refusal(client: redis.Redis, *words: str) -> str:
    """The name of the error that a command gets."""
    try:
        client.execute_command(*words)
    except redis.ResponseError as error:
        return type(error).__name__
    return ""


def test_a_slot_moves_with_all_its_keys_while_they_are_read(
    redis_cluster: RedisCluster3, everywhere: RedisCluster, key: str
) -> None:
    keys = [f"{{{key}}}-{number}" for number in range(60)]
    for each in keys:
        everywhere.set(each, each)
    slot = everywhere.keyslot(key)
    old = redis_cluster.node_of(slot)
    new = (old + 1) % 3
    held = redis_cluster.servers[old].call("CLUSTER", "COUNTKEYSINSLOT", slot)
    assert held >= 60  # and perhaps those of another test
    move = threading.Thread(target=lambda: redis_cluster.migrate_slot(slot, new, pause_s=0.05))
    refusals: set[str] = set()
    move.start()
    with redis_cluster.servers[old].client() as client:
        while move.is_alive():
            for each in keys:
                assert everywhere.get(each) == each.encode()
                refusals.add(refusal(client, "GET", f"{{{key}}}-absent"))
                refusals.add(refusal(client, "MGET", *keys))
    move.join()
    assert {"AskError", "TryAgainError"} <= refusals
    assert redis_cluster.node_of(slot) == new
    assert redis_cluster.servers[old].call("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
    assert redis_cluster.servers[new].call("CLUSTER", "COUNTKEYSINSLOT", slot) == held
    assert redis_cluster.servers[new].call("GET", keys[0]) == keys[0].encode()
    with pytest.raises(redis.exceptions.MovedError):
        redis_cluster.servers[old].call("GET", keys[0])


@pytest.mark.gate
def test_a_proxy_resets_connections_and_takes_new_ones(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as raw:
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            raw.recv(100)
    through(proxy).close()


@pytest.mark.gate
def test_a_proxy_swallows_the_reply_of_what_was_done(
    proxy: Proxy, redis_server: RedisServer, key: str
) -> None:
    with through(proxy) as client:
        proxy.drop_replies(1)
        with pytest.raises(redis.ConnectionError):
            client.incr(key)
        assert client.incr(key) == 2
    assert redis_server.call("GET", key) == b"2"


def test_a_stalled_proxy_holds_back_and_then_delivers(proxy: Proxy, key: str) -> None:
    with (
        socket.create_connection(("127.0.0.1", proxy.port)) as waiting,
        through(proxy, timeout_s=60.0) as patient,
    ):
        proxy.stall()
        waiting.sendall(f"INCR {key}\r\n".encode())
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(100)
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(patient.incr(f"{key}-patient")))
        asking.start()
        assert not answers
        proxy.resume()
        asking.join(60)
        assert answers == [1]
        # What was asked for before the stall ended was done, too.
        waiting.settimeout(60)
        assert waiting.recv(100) == b":1\r\n"
        assert patient.get(key) == b"1"


def test_a_refusing_proxy_keeps_the_connections_there_are(proxy: Proxy) -> None:
    with through(proxy) as client:
        proxy.refuse()
        assert client.ping()
        with pytest.raises(redis.ConnectionError, match="refused"):
            through(proxy)
        proxy.accept()
        through(proxy).close()


def test_a_proxy_passes_much_at_once_both_ways(proxy: Proxy, key: str) -> None:
    value = b"x" * 1_000_000
    with through(proxy) as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(10):
            pipeline.set(key, value).get(key)
        assert pipeline.execute()[1::2] == [value] * 10
        client.delete(key)
