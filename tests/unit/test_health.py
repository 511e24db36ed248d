"""The health of a worker: what its probes reply in each state, and who is told."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from eventually import eventually

import qframe_ping
from qframe import Message, QFrame, Topic
from qframe.cli.main import cli
from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.errors import BadOption
from qframe.events import Events
from qframe.http_port import HttpPort, HttpRequest
from qframe.retry import Backoff
from qframe.runtime.process.child import Child
from qframe.runtime.process.health import HEARD_WITHIN_S, LIVE_WITHIN_S, Health, combined
from qframe.runtime.process.probes import HealthFile, HealthReporter, Probes, Systemd
from qframe.runtime.process.stop_request import StopRequest
from qframe.runtime.process.watchdog import ASLEEP_S, DOUBTFUL_S, STALLED_S
from qframe.runtime.process.worker import Worker, WorkerParts

WELL = Health(state="serving", ready=True)
STUCK = Health(state="serving", live=False, faults=["qframe.pull.a.b stands still for 46 s"])


class Standing:
    """A loop that has been at one step for `seconds`."""

    name = "qframe.pull.orders.billing"
    alive = True
    seconds = 0.0

    def busy_s(self) -> float:
        return self.seconds

    def reconnect(self) -> None:
        """It has no connections."""


class Watched:
    """A worker that serves, under a virtual clock; time passes second by second."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = Standing()
        self.other = Standing()
        self.other.name = "qframe.settler.orders.billing"
        self.slots = SimpleNamespace(joined=True)
        self.unheard_s = 0.0
        consumer = SimpleNamespace(
            pull_loop=self.loop,
            loops=lambda: [self.loop, self.other],
            topic="orders",
            group="billing",
            slots=self.slots,
        )
        self.worker = Worker(
            "host-1-abc", StopRequest(Events()),
            WorkerParts(self, [consumer], SimpleNamespace()),  # type: ignore[arg-type,list-item]
            grace_s=1, events=Events(), clock=self.clock,
        )  # fmt: skip
        self.worker._state = "serving"

    def pass_s(self, seconds: float, *, every_s: float = 1.0) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            self.clock.advance(round(every_s * 1000))
            self.worker._watchdog.look()


def test_a_loop_that_stands_still_is_a_fault_from_the_limit_on() -> None:
    assert HEARD_WITHIN_S < DOUBTFUL_S < LIVE_WITHIN_S < STALLED_S  # it gets new connections first
    watched = Watched()
    watched.pass_s(ASLEEP_S)
    watched.loop.seconds = LIVE_WITHIN_S + ASLEEP_S
    watched.pass_s(LIVE_WITHIN_S - ASLEEP_S - 1)
    assert watched.worker.health().live  # the process was awake for less than the limit
    watched.pass_s(2 * ASLEEP_S + 1)
    health = watched.worker.health()
    assert (health.live, health.ready) == (False, False)
    assert health.faults == [f"{Standing.name} stands still for 55 s"]
    watched.loop.seconds = 0
    assert watched.worker.health() == WELL


def test_a_loop_that_the_watchdog_leaves_alone_is_a_fault_as_well() -> None:
    watched = Watched()
    watched.pass_s(3600)
    watched.other.seconds = LIVE_WITHIN_S
    assert watched.worker.health().faults == [f"{watched.other.name} stands still for 45 s"]
    watched.pass_s(3600)
    assert not watched.worker._stop_request.is_made


def test_a_main_loop_that_stands_still_is_a_fault() -> None:
    watched = Watched()
    watched.clock.advance(round(LIVE_WITHIN_S * 1000))
    assert watched.worker.health().faults == ["main loop stands still for 45 s"]


def test_a_process_that_was_frozen_is_live_when_it_goes_on() -> None:
    watched = Watched()
    watched.loop.seconds = 3600
    watched.pass_s(3600, every_s=3600)
    assert watched.worker.health() == WELL


def test_a_store_or_a_coordinator_that_is_away_makes_it_unready_and_no_less_live() -> None:
    watched = Watched()
    watched.unheard_s = 300
    watched.slots.joined = False
    health = watched.worker.health()
    assert (health.live, health.ready) == (True, False)
    assert health.faults == [
        "orders/billing has not joined, or does not hear the coordinator",
        "the store does not reply",
    ]


def test_a_worker_that_stops_is_live_for_as_long_as_its_grace_is() -> None:
    watched = Watched()
    watched.worker.stop()
    watched.clock.advance(86_400_000)
    assert watched.worker.health() == Health(state="stopping")


def test_together_workers_are_as_the_worst_of_them() -> None:
    starting, idle = Health(state="starting"), Health(state="idle")
    assert combined([WELL, WELL]) == WELL
    assert combined([WELL, STUCK]) == STUCK
    assert combined([WELL, starting]) == starting
    assert combined([idle, starting]) == starting
    assert combined([WELL, Health(state="stopping")]) == Health(state="stopping")
    assert combined([]) == starting


# The probes.


def test_each_probe_replies_by_state() -> None:
    looked = [Health(state="starting")]
    routes = Probes(lambda: looked[0]).routes()

    def statuses() -> list[int]:
        return [
            routes[path].reply(HttpRequest()).status for path in ("/livez", "/readyz", "/startupz")
        ]

    assert statuses() == [200, 503, 503]
    for health, expected in (
        (WELL, [200, 200, 200]), (STUCK, [503, 503, 200]),
        (Health(state="starting"), [200, 503, 200]), (Health(state="stopping"), [200, 503, 200]),
    ):  # fmt: skip
        looked[0] = health
        assert statuses() == expected
    body = json.loads(routes["/livez"].reply(HttpRequest()).body)
    assert body == {"state": "stopping", "live": True, "ready": False, "faults": []}


@contextmanager
def pinged(health: Health) -> Iterator[str]:
    """The port of a worker of this health."""

    def failed(part: str, error: BaseException) -> None:
        raise error

    port = HttpPort(
        "--health-port", ("127.0.0.1", 0), Probes(lambda: health).routes(), events=Events(),
        on_failure=failed,
    )  # fmt: skip
    port.start()
    yield str(port.port)
    port.close()


def test_ping_exits_with_the_health_that_the_port_tells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pinged(WELL) as port:
        assert qframe_ping.run(port) == 0
        assert qframe_ping.run(f"localhost:{port}", ready=True) == 0
    with pinged(STUCK) as port:
        assert qframe_ping.run(port) == 1
        assert CliRunner().invoke(cli, ["ping", "--port", port]).exit_code == 1
    with pinged(Health(state="starting")) as port:
        assert qframe_ping.run(port) == 0
        assert qframe_ping.run(port, ready=True) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: the worker is not live: qframe.pull.a.b stands still for 46 s",
        "error: the worker is not ready: it is starting",
    ]


def test_ping_exits_with_the_health_that_the_file_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "health.json")
    assert qframe_ping.run(file=path) == 1
    written = HealthFile(path, SYSTEM_CLOCK)
    assert (qframe_ping.run(file=path), qframe_ping.run(file=path, ready=True)) == (0, 1)
    written.tell(WELL)
    assert json.loads(Path(path).read_text())["pid"] == os.getpid()
    monkeypatch.setenv(qframe_ping.FILE_VARIABLE, path)
    assert qframe_ping.run(ready=True) == 0
    HealthFile(path, VirtualClock())  # written when the machine started
    assert qframe_ping.run(file=path) == 1
    written.remove()
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "no worker writes it, or it has ended" in said[0]
    assert "its worker is gone or stands still" in said[2]


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"--health-file .*name a file in a folder"):
        HealthFile(str(tmp_path / "absent" / "health"), SYSTEM_CLOCK)


def ping(*words: str) -> subprocess.CompletedProcess[str]:
    """The program, from an interpreter's start on."""
    code = "import sys, qframe_ping\ntry: qframe_ping.main()\nfinally: print(*sys.modules)"
    env = {name: text for name, text in os.environ.items() if not name.startswith("QFRAME_")}
    return subprocess.run(
        [sys.executable, "-c", code, "ping", *words], env=env, capture_output=True,
        encoding="utf-8", check=False,
    )  # fmt: skip


def test_ping_imports_neither_qframe_nor_an_app() -> None:
    with pinged(WELL) as port:
        ran = ping("--port", port, "--ready")
    assert ran.returncode == 0, ran
    loaded = set(ran.stdout.split())
    assert not {"qframe", "click", "msgspec", "sqlalchemy", "redis", "asyncio"} & loaded


def test_ping_says_in_one_line_why_it_cannot_ask() -> None:
    for words, code, said in (
        ((), 2, "error: neither port nor file is named"),
        (("--port", "1"), 1, "error: port 1 does not reply within 2 s"),
        (("--port", "x"), 2, "error: --port 'x' is not a port"),
        (("--prot", "1"), 2, "error: ping has no option '--prot'"),
    ):
        ran = ping(*words)
        assert ran.returncode == code, ran
        assert ran.stderr.startswith(said)
        assert ran.stderr.count("\n") == 1


# Systemd, and the reporter.


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def heard(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(256).decode())
        except BlockingIOError:
            return found


def test_systemd_is_told_of_readiness_life_and_the_end(manager: socket.socket) -> None:
    address = manager.getsockname()
    systemd = Systemd({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
    assert systemd.every_s == 0.5
    systemd.tell(Health(state="starting"))
    assert heard(manager) == ["WATCHDOG=1"]
    systemd.tell(WELL)
    systemd.tell(WELL)
    assert heard(manager) == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    systemd.tell(STUCK)
    assert heard(manager) == []
    systemd.tell(Health(state="stopping"))
    systemd.stopping()
    assert heard(manager) == ["STOPPING=1", "WATCHDOG=1"]


def test_a_manager_that_does_not_read_is_told_of_readiness_and_the_end_once_it_does(
    manager: socket.socket,
) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": manager.getsockname()})
    while systemd._send("WATCHDOG=1"):
        pass
    systemd.tell(WELL)
    assert "READY=1" not in heard(manager)
    systemd.tell(WELL)
    assert heard(manager) == ["READY=1", "WATCHDOG=1"]
    while systemd._send("WATCHDOG=1"):
        pass
    systemd.tell(Health(state="stopping"))
    assert "STOPPING=1" not in heard(manager)
    systemd.tell(Health(state="stopping"))
    assert heard(manager) == ["STOPPING=1", "WATCHDOG=1"]


def test_without_systemd_nothing_is_sent_and_one_that_is_gone_holds_nobody_up(
    tmp_path: Path,
) -> None:
    assert Systemd({}).every_s == 1.0
    assert Systemd({"WATCHDOG_USEC": "10000000"}).every_s == 1.0
    assert Systemd({"WATCHDOG_USEC": "600000"}).every_s == 0.3
    Systemd({}).tell(WELL)
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "absent")}).tell(WELL)


def test_the_reporter_tells_again_and_again() -> None:
    told: list[Health] = []
    failures: list[object] = []
    reporter = HealthReporter(
        lambda: WELL, [told.append], every_s=0.01, on_failure=lambda *how: failures.append(how)
    )
    reporter.start()
    eventually(lambda: len(told) > 2)
    reporter.stop()
    assert (told, failures) == ([WELL] * len(told), [])


# A supervisor's children.

CHILD = """
import os, sys
line = int(sys.argv[1])
for word in sys.argv[2:]:
    os.write(line, word.encode())
    sys.stdin.read(0)
import signal
signal.pause()
"""


@pytest.fixture
def child() -> Iterator[Callable[..., Any]]:
    """Starts a child that says some words on its line, and waits until they are heard."""
    started: list[Child] = []

    def start(clock: VirtualClock, *words: str, says: Callable[[Any], bool]) -> Child:
        one = Child(
            2, command=lambda fd: [sys.executable, "-I", "-S", "-c", CHILD, str(fd), *words],
            environment={}, clock=clock,
        )  # fmt: skip
        started.append(one)
        assert one.health() is None
        one.start()
        eventually(lambda: one.poll() is None and says(one.health()))
        return one

    yield start
    for one in started:
        one.kill()
        one.wait(60)
        one.close()


def test_a_child_is_as_it_reports_until_it_is_silent(child: Callable[..., Any]) -> None:
    clock = VirtualClock()
    faults = ["x stands still for 46 s", "y" * 70_000]  # more than is read at once
    stuck = json.dumps({"state": "serving", "live": False, "faults": faults})
    one = child(clock, "ready\n", f"no report\n{stuck}\n", says=lambda health: not health.live)
    assert one.health().faults == [f"worker 2: {fault}" for fault in faults]
    clock.advance(round(LIVE_WITHIN_S * 1000))
    health = one.health()
    assert (health.live, health.faults) == (False, ["worker 2 has said nothing for 45 s"])


def test_a_child_that_is_to_be_restarted_is_live_and_not_ready(child: Callable[..., Any]) -> None:
    one = child(VirtualClock(), "ready\n", says=lambda health: health.state == "serving")
    one.kill()
    one.wait(60)
    assert one.poll() is not None
    assert one.health() is None
    one.plan_restart(Backoff(first=1, factor=1))
    health = one.health()
    assert (health.state, health.live, health.ready) == ("starting", True, False)


# A real worker.


class Serving:
    """A worker in a thread."""

    def __init__(self, folder: Path, handle: Callable[[Message], object]) -> None:
        self.app = QFrame(store=f"sqlite:///{folder / 'q.db'}", grace=1)
        assert self.app.health() == Health(state="idle")
        self.app.events.listen(lambda name, facts: None)
        self.app.consumer(Topic("numbers", slots=1), group="g", threads=1, lease="300ms")(handle)
        self.thread = threading.Thread(target=self.app.run)
        self.thread.start()
        eventually(lambda: self.app.health().ready)
        self.worker: Any = self.app.parts.opened.worker

    def stop(self) -> None:
        eventually(lambda: self.app.health() == WELL)
        self.app.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.app.close()


class Freezing:
    """A call that stands still until it is told to go on."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.frozen = threading.Event()
        self.go_on = threading.Event()
        self._call = call

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        self.frozen.set()
        assert self.go_on.wait(60)
        return self._call(*args, **keywords)


def is_told(serving: Serving, part: str) -> bool:
    """Whether the worker is not live, and says that it is by this part."""
    health = serving.app.health()
    name = f"qframe.{part} stands still for"
    return not health.live and any(fault.startswith(name) for fault in health.faults)


@pytest.mark.parametrize("part", ["pull", "settler", "renewal", "owner"])
def test_each_loop_that_is_frozen_in_a_call_is_not_live_within_the_limit(
    tmp_path: Path, part: str
) -> None:
    returns = threading.Event()

    def handle(message: Message) -> None:
        assert returns.wait(60)

    serving = Serving(tmp_path, handle)
    serving.worker._live_within_s = 0.1
    consumer = serving.worker.consumers[0]
    if part == "pull":
        freezing = consumer.pull_loop._slots.open = Freezing(consumer.pull_loop._slots.open)
    elif part == "settler":
        freezing = consumer._sender._ask = Freezing(consumer._sender._ask)
        returns.set()
    elif part == "renewal":
        freezing = Freezing(consumer.renewal._store.renew)
        consumer.renewal._store = SimpleNamespace(renew=freezing)
    else:
        session = consumer.slots.membership._session
        freezing = session.look = Freezing(session.look)
    serving.app.publish("numbers", 1)
    assert freezing.frozen.wait(60)
    eventually(lambda: is_told(serving, f"{part}.numbers.g"))
    returns.set()
    freezing.go_on.set()
    serving.stop()


@pytest.mark.parametrize("blocks", [False, True])
def test_an_async_handler_that_waits_is_live_and_one_that_blocks_the_event_loop_is_not(
    tmp_path: Path, blocks: bool
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def handle(message: Message) -> None:
        begun.set()
        if blocks:
            go_on.wait(60)
        else:
            await asyncio.to_thread(go_on.wait, 60)

    serving = Serving(tmp_path, handle)
    serving.app.publish("numbers", 1)
    assert begun.wait(60)
    if blocks:
        serving.worker._live_within_s = 0.1
        eventually(lambda: is_told(serving, "loop"))
    else:
        loop = serving.worker._loops[0]
        eventually(lambda: not loop.busy_s() and not loop.busy_s())  # it has replied, and does
        eventually(lambda: serving.app.health() == WELL)
    assert not go_on.is_set()
    go_on.set()
    serving.stop()


def test_a_handler_that_runs_longer_than_the_limit_leaves_its_worker_live(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        go_on.wait(60)

    serving = Serving(tmp_path, handle)
    serving.app.publish("numbers", 1)
    assert begun.wait(60)
    eventually(lambda: serving.worker.consumers[0].pull_loop.busy_s() == 0)
    serving.worker._live_within_s = 1e-9  # any step takes longer than that
    eventually(lambda: serving.app.health() == WELL)
    assert not go_on.is_set()
    go_on.set()
    serving.stop()
