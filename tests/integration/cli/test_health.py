"""`qframe worker --health-port` and `--health-file`, and a real store that is away."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from absence import absent
from cli_program import Program
from eventually import eventually
from namespaces import AS_ONESELF, may_administer, refusal
from ports import free_port
from processes import WITHIN_S, Running, children_of, title_of
from servers import RedisServer

import qframe_ping
from qframe import Message, QFrame, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.runtime.process.health import Health

NUMBERS = """
from qframe import Topic, consumer

@consumer(Topic("numbers", slots=2), group="g")
def note(number: int) -> None: ...
"""


class Said(NamedTuple):
    status: int
    value: Any


def ask(port: int, path: str) -> Said:
    connection = HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return Said(reply.status, json.loads(reply.read()))
    finally:
        connection.close()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.write("numbers_of.py", NUMBERS)
    return program


@pytest.mark.gate
def test_one_port_and_one_file_tell_of_all_workers_of_a_supervisor(
    program: Program, start: Callable[..., Running]
) -> None:
    port, file = free_port(), program.directory / "health"
    words = ["numbers_of", "--processes", "2", "--health-port", f"127.0.0.1:{port}"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(program.directory / "notify"))
        manager.settimeout(WITHIN_S)
        address = manager.getsockname()
        with start(
            "worker", *words, QFRAME_HEALTH_FILE=str(file), NOTIFY_SOCKET=address
        ) as running:
            running.wait_for("supervisor.started")
            assert ask(port, "/livez").status == 200
            eventually(lambda: ask(port, "/readyz").status == 200, within=WITHIN_S)
            assert ask(port, "/startupz").value == {
                "state": "serving", "live": True, "ready": True, "faults": []
            }  # fmt: skip
            eventually(lambda: qframe_ping.run(file=str(file), ready=True) == 0, within=WITHIN_S)
            eventually(lambda: manager.recv(64) == b"READY=1", within=WITHIN_S)

            (victim,) = (pid for pid in running.children if "1/2" in title_of(pid))
            os.kill(victim, signal.SIGKILL)
            running.wait_for("worker.died")
            eventually(lambda: ask(port, "/readyz").status == 503, within=WITHIN_S)
            assert ask(port, "/livez").status == 200
            assert ask(port, "/startupz").status == 200
            eventually(lambda: ask(port, "/readyz").status == 200, within=WITHIN_S)

            running.signal(signal.SIGTERM)
            eventually(lambda: manager.recv(64) == b"STOPPING=1", within=WITHIN_S)
            assert running.code() == 0
    assert not file.exists()


WAITING = ["worker", "numbers_of", "--wait", "60s"]


def test_a_worker_that_waits_for_its_store_is_starting_and_says_so(
    program: Program, start: Callable[..., Running]
) -> None:
    port = free_port()
    words = [*WAITING, "--health-port", f"127.0.0.1:{port}"]
    with start(*words, QFRAME_STORE="redis://127.0.0.1:1") as running:
        eventually(lambda: qframe_ping.run(port=str(port)) == 0, within=WITHIN_S)
        assert ask(port, "/livez").status == 200
        assert ask(port, "/startupz").status == 503
        status, value = ask(port, "/readyz")
        assert (status, value["state"]) == (503, "starting")
        assert value["faults"] == ["store and coordinator are waited for"]
        running.signal(signal.SIGTERM)
        assert running.code() == -signal.SIGTERM


def test_silent_clients_fail_no_probe_of_a_worker(
    program: Program, start: Callable[..., Running]
) -> None:
    port = free_port()
    words = [*WAITING, "--health-port", f"127.0.0.1:{port}"]
    with start(*words, QFRAME_STORE="redis://127.0.0.1:1") as running, ExitStack() as silent:
        eventually(lambda: qframe_ping.run(port=str(port)) == 0, within=WITHIN_S)
        for _ in range(100):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert [ask(port, "/livez").status for _ in range(10)] == [200] * 10
        running.signal(signal.SIGTERM)


def test_a_containers_first_process_ends_at_sigterm_also_while_it_waits(program: Program) -> None:
    container = ("unshare", "--pid", "--fork")
    if not may_administer():
        container = (*AS_ONESELF, *container[1:])
    if why := refusal(container):
        absent(f"no process can be the first one here, since {why}")
    file = program.directory / "health"
    environment = program.environment(
        QFRAME_STORE="redis://127.0.0.1:1", QFRAME_HEALTH_FILE=str(file)
    )
    command = [*container, sys.executable, "-m", "qframe", *WAITING]
    with Running(command, program.directory, environment) as running:
        eventually(file.exists, within=WITHIN_S)
        (first,) = children_of(running.pid)
        os.kill(first, signal.SIGTERM)
        assert running.code() == 128 + signal.SIGTERM


@pytest.mark.parametrize("way", ["stopped", "frozen"])
def test_a_store_that_is_away_restarts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The limits are scaled: the store is away for several times as long as each of them."""
    monkeypatch.setattr("qframe.runtime.process.worker.HEARD_WITHIN_S", 0.5)
    monkeypatch.setattr("qframe.runtime.process.live_settings.EVERY_S", 0.05)
    monkeypatch.setattr("qframe.drivers.redis.PATIENCE_S", 0.1)  # of each call, as of a membership
    seen: list[int] = []
    topic = Topic("numbers", slots=2)
    with (
        RedisServer(tmp_path, aof=True) as server,
        QFrame(f"{server.url}?socket_timeout=0.2", grace=1, session_timeout=0.5) as app,
    ):

        @app.consumer(topic, group="g")
        def note(message: Message) -> None:
            seen.append(message.body)

        app.events.listen(lambda name, facts: None)
        serving = threading.Thread(target=app.run)
        serving.start()
        eventually(lambda: app.health().ready)
        worker = app.parts.opened.worker
        assert worker is not None
        worker._live_within_s = 1.5
        server.stop() if way == "stopped" else server.freeze()
        eventually(lambda: len(app.health().faults) == 2)
        wrong: list[Health] = []
        until_s = SYSTEM_CLOCK.monotonic_s() + 5.0

        def look() -> bool:
            health = app.health()
            if not health.live or health.ready:
                wrong.append(health)
            return SYSTEM_CLOCK.monotonic_s() > until_s

        eventually(look)
        assert wrong == []
        server.restart() if way == "stopped" else server.thaw()
        eventually(lambda: app.health().ready)
        app.publish(topic, 7)
        eventually(lambda: seen == [7])
        assert serving.is_alive()
        app.stop()
        serving.join(WITHIN_S)
