"""Servers that are refused at start, are not there yet, or have another time than the client."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_program import SHOP, Program
from eventually import eventually
from redis_servers import Sentinel
from servers import RedisServer, free_port
from serving import Serving

from qframe import (
    BadTopic,
    BadUrl,
    Message,
    Outgoing,
    QFrame,
    RedisChecker,
    StoreForbidden,
    StoreUnavailable,
    Topic,
)
from qframe.clock import SYSTEM_CLOCK, SystemClock
from qframe.doctor.examine import examine
from qframe.stores.open import open_store
from qframe.stores.redis.store import RedisStore

HOUR_MS = 3_600_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "server") as server:
        yield server


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


# What is refused.


@pytest.mark.gate
def test_a_topic_from_before_the_first_layout_is_refused_and_hides_no_other(
    server: RedisServer,
) -> None:
    with QFrame(store=server.url) as app:
        app.declare(Topic("orders", slots=1))
        [key] = [key for key in server.client().keys("*") if key.endswith(b":topics")]
        options = server.client().hget(key, "orders").split(b" ", 2)[2]
        server.client().hset(key, "old", b"stream 1 " + options)
        for refuse in (app.declare, lambda topic: app.publish(topic, 1)):
            with pytest.raises(BadTopic, match="before the first release") as refused:
                refuse(Topic("old", slots=1))
            assert "use another namespace=" in str(refused.value)
        assert server.client().hget(key, "old") == b"stream 1 " + options
        found = app.store.topics()
        assert ([topic.name for topic in found], len(found.unread)) == (["orders"], 1)
        app.publish("orders", 1)


@pytest.mark.gate
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_would_evict_messages_is_refused(server: RedisServer, policy: str) -> None:
    server.call("CONFIG", "SET", "maxmemory-policy", policy)
    with pytest.raises(BadUrl, match=policy) as refused:
        QFrame(store=server.url).declare(Topic("t"))
    assert "set maxmemory-policy to noeviction" in str(refused.value)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"redis_version": "6.2.14"}, "6.2.14"),
        ({"redis_version": "5.0.3"}, "5.0.3"),
        ({"redis_version": "255.255.255", "valkey_version": "6.9.0"}, "6.9.0"),
    ],
)
def test_a_server_that_is_too_old_is_refused(
    server: RedisServer, facts: dict[str, Any], shown: str
) -> None:
    store = RedisStore(server.url)
    with pytest.raises(BadUrl, match=shown) as refused:
        store._check(facts)
    assert "use Redis 7, Valkey 7 or newer" in str(refused.value)
    store._check({"redis_version": "7.2.4", "valkey_version": "8.0.1"})
    store._check({"redis_version": "7.0.0", "maxmemory_policy": "noeviction"})
    store.close()


@pytest.mark.gate
@pytest.mark.parametrize("credentials", [":hunter2@", "somebody:hunter2@", ""])
def test_a_wrong_password_is_refused_and_never_shown(server: RedisServer, credentials: str) -> None:
    server.call("CONFIG", "SET", "requirepass", "secret")
    where = f"127.0.0.1:{server.port}"
    with pytest.raises(StoreForbidden, match="refuses its user") as refused:
        QFrame(store=f"redis://{credentials}{where}").declare(Topic("t"))
    assert "hunter2" not in f"{refused.value} {refused.value.store}"
    with QFrame(store=f"redis://:secret@{where}") as app:
        app.declare(Topic("t"))
        assert "secret" not in app.store.url  # type: ignore[attr-defined]


def test_a_password_with_quotes_is_not_in_the_log_of_a_worker(
    server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.call("CONFIG", "SET", "requirepass", "it's secret")
    url = f"redis://:it's secret@127.0.0.1:{server.port}"
    with QFrame(store=url, log_level="info", log_format="json") as app:
        app.consumer(Topic("t"), "g")(lambda: None)
        app.run(burst=True)
    said = capsys.readouterr().err
    assert "worker.started" in said
    assert "secret" not in said


def test_sentinels_that_want_a_password_are_given_it_and_who_has_none_is_told(
    server: RedisServer, tmp_path: Path
) -> None:
    """It was told that none of them knows a primary, and a worker waited for that without end."""
    with Sentinel(tmp_path / "sentinel", "primary", server.port) as sentinel:
        sentinel.call("ACL", "SETUSER", "qframe", "on", ">hunter2", "+@all", "~*", "&*")
        sentinel.call("ACL", "SETUSER", "default", "resetpass", ">hunter3")
        url = sentinel.url.replace("redis://", "redis+sentinel://") + "/primary"
        for options in ("", "?sentinel_password=hunter2"):
            with pytest.raises(StoreForbidden, match="a Sentinel refuses the name") as refused:
                open_store(url + options)
            assert "hunter" not in str(refused.value)
        for options in ("?sentinel_password=hunter3",
                        "?sentinel_username=qframe&sentinel_password=hunter2"):  # fmt: skip
            open_store(url + options).close()


# Unix sockets.


@pytest.fixture
def socket_server(tmp_path: Path) -> Iterator[tuple[RedisServer, str]]:
    """A server, and its socket, whose path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="qframe-redis-") as folder:
        path = f"{folder}/the socket"
        with RedisServer(tmp_path / "redis", config={"unixsocket": f'"{path}"'}) as server:
            yield server, path.replace(" ", "%20")


@pytest.mark.gate
def test_a_unix_socket_serves_as_a_port_does(socket_server: tuple[RedisServer, str]) -> None:
    server, path = socket_server
    server.call("ACL", "SETUSER", "shop", "on", ">hunter2", "~*", "&*", "+@all")
    handled: list[int] = []
    with QFrame(f"unix://shop:hunter2@{path}?db=3&socket_timeout=5") as app:
        checker = RedisChecker(f"unix://{path}")

        @app.consumer(Topic("orders", "ordered", slots=2), "billing", idempotent_checker=checker)
        def handle(message: Message) -> None:
            handled.append(message.body)

        app.publish_many("orders", [Outgoing(n, key="a") for n in range(3)])
        app.run(burst=True)
        assert handled == [0, 1, 2]
        found = examine(app.settings, SYSTEM_CLOCK)
        assert [each for each in found.findings if each.level == "error"] == []
        assert "redis" in found.versions
    with server.client() as client:
        assert "db3" in client.info("keyspace")


def test_a_unix_socket_that_is_not_there_is_a_server_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"store unix://{tmp_path}/no.sock cannot be reach"):
        open_store(f"unix://{tmp_path}/no.sock")


# The command.


def test_a_worker_whose_server_is_not_there_says_so_in_one_line(program: Program) -> None:
    program.write("shop.py", SHOP)
    url = f"redis://:hunter2@127.0.0.1:{free_port()}"
    said = program.refused("worker", "shop", "--store", url)
    assert f"127.0.0.1:{url[-5:]}" in said
    assert "hunter2" not in said


def test_a_worker_that_is_refused_does_not_wait_for_its_server(
    program: Program, server: RedisServer
) -> None:
    program.write("shop.py", SHOP)
    url, began_s = f"redis://:hunter2@127.0.0.1:{server.port}", time.monotonic()
    said = program.refused("worker", "shop", "--wait", "10m", "--store", url)
    assert "refuses its user" in said
    assert time.monotonic() - began_s < 300


@pytest.mark.gate
def test_a_worker_waits_for_its_server_and_serves_when_it_comes(
    program: Program, tmp_path: Path
) -> None:
    program.write("shop.py", SHOP)
    port = free_port()
    command = [sys.executable, "-m", "qframe", "worker", "shop", "--wait", "60s"]
    with subprocess.Popen(
        [*command, "--store", f"redis://127.0.0.1:{port}"],
        cwd=program.directory, env=program.environment(), stderr=subprocess.PIPE, encoding="utf-8",
    ) as worker:  # fmt: skip
        try:
            # It asks before there is a server: it meets somebody who hangs up.
            with socket.create_server(("127.0.0.1", port)) as nobody:
                nobody.settimeout(60)
                nobody.accept()[0].close()
            with RedisServer(tmp_path / "server", port=port) as server:
                assert worker.stderr is not None
                assert json.loads(worker.stderr.readline())["event"] == "worker.started"
                with QFrame(store=server.url) as app:
                    app.publish("orders", {"n": 7}, key="k")
                handled = tmp_path / "handled.txt"
                eventually(lambda: handled.exists() and handled.read_text() == "k 7\n")
                worker.terminate()
                assert worker.wait(60) == 0
        finally:
            worker.kill()


# Time.


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_delay_counts_by_the_servers_clock_whatever_the_clients_is(
    server: RedisServer, kind: str, off_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it the client's, the delayed would come an hour late, or those of an hour at once."""
    now_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + off_ms)
    topic = Topic("t", kind=kind, slots=2)
    published_s: dict[str, float] = {}
    handled_s: dict[str, float] = {}
    with Serving(server.url, topic) as serving:

        def publish(name: str, **options: Any) -> None:
            published_s[name] = time.monotonic()
            serving.app.publish(topic, name, key=name, **options)

        server_s = server.call("TIME")[0]
        publish("soon", delay=0.3)
        publish("at once")
        publish("late", delay="10m")
        serving.app.publish_many(
            topic, [Outgoing("moment", key="m", at=float(server_s + 1)),
                    Outgoing("never", key="n", at=float(server_s + 600))],
        )  # fmt: skip
        eventually(lambda: {"soon", "at once", "moment"} <= set(serving.bodies))
        handled_s["soon"] = time.monotonic()
        assert handled_s["soon"] - published_s["soon"] >= 0.3
        assert server.call("TIME")[0] >= server_s + 1
        assert set(serving.bodies) == {"soon", "at once", "moment"}
        assert sum(one.waiting for one in serving.app.store.stats(topic, "g")) == 2
        serving.verify()


def test_a_sentinel_that_says_nothing_is_asked_once_before_another_is() -> None:
    """Asked again and again with pauses, as redis-py does, it holds a failover up by seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]}/primary?socket_timeout=0.2"
        with pytest.raises(StoreUnavailable, match="no Sentinel can be asked"):
            open_store(url).now_ms()
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # it was asked no second time
            silent.accept()
