"""A supervisor and its children, without processes: who is started, stopped, and told of."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from eventually import eventually

from qframe.clock import VirtualClock
from qframe.errors import WorkerFailed
from qframe.events import Events
from qframe.runtime.process import supervisor as module
from qframe.runtime.process.child import HEALTHY_S, Child
from qframe.runtime.process.health import Health
from qframe.runtime.process.outage import QUIET_S, Outage
from qframe.runtime.process.probes import Systemd
from qframe.runtime.process.supervisor import Supervisor
from qframe.runtime.process.supervisor_pipe import SupervisorPipe


class FakeChild:
    """A child that ends when the test says so."""

    def __init__(self, number: int, **_: object) -> None:
        self.number = number
        self.pid: int | None = None
        self.starts_at_s: float | None = None
        self.pipe = None
        self.serves = False
        self.code: int | None = None
        self.done: list[str] = []

    def start(self) -> int:
        self.done.append("start")
        self.starts_at_s, self.pid = None, 100 + self.number
        return self.pid

    def poll(self) -> int | None:
        code, self.code = self.code, None
        if code is not None:
            self.pid = None
        return code

    def plan_restart(self, _backoff: object) -> float:
        self.starts_at_s = 5.0
        return 5.0

    def terminate(self) -> None:
        self.done.append("terminate")

    def kill(self) -> None:
        self.done.append("kill")

    def wait(self, _timeout_s: float) -> None:
        self.done.append("wait")


class Scene:
    """A supervisor of three, and what it tells; each sleep does the next step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ends: bool = False) -> None:
        monkeypatch.setattr(module, "Child", FakeChild)
        self.told: list[str] = []
        events = Events()
        events.listen(lambda name, _: self.told.append(name))
        self.supervisor = Supervisor(
            processes=3, command=lambda *_: [], environment=lambda _: {}, ends=ends,
            events=events, clock=VirtualClock(),
        )  # fmt: skip
        self.children: list[FakeChild] = self.supervisor._children  # type: ignore[assignment]
        self._monkeypatch = monkeypatch

    def hear(self, number: int) -> None:
        self.supervisor._heard.append(number)

    def run(self, *steps: Callable[[], object]) -> int:
        following = iter(steps)
        self._monkeypatch.setattr(self.supervisor, "_sleep", lambda _: next(following)())
        wake: Any = None
        return self.supervisor._supervise(wake)

    def end(self, *numbers: int, code: int = 0) -> None:
        for number in numbers:
            self.children[number - 1].code = code

    def serve(self) -> None:
        self.children[0].serves = True


def test_it_stops_once_however_long_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    code = scene.run(
        scene.serve, lambda: scene.hear(signal.SIGTERM), lambda: None,
        lambda: scene.end(1, 2, 3, code=-signal.SIGTERM),
    )  # fmt: skip
    assert code == 0
    assert [child.done for child in scene.children] == [["start", "terminate"]] * 3
    assert scene.told == [
        "supervisor.started", "supervisor.stopping", *["worker.ended"] * 3, "supervisor.stopped",
    ]  # fmt: skip


def test_one_that_is_told_to_stop_before_it_has_served_has_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    code = scene.run(lambda: scene.hear(signal.SIGTERM), lambda: scene.end(1, code=1))
    assert (code, scene.told[-2:]) == (0, ["worker.died", "supervisor.stopped"])


def test_none_is_started_any_more_while_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.run(lambda: scene.hear(signal.SIGTERM), scene.serve, lambda: scene.end(1))
    assert [child.done.count("start") for child in scene.children] == [1, 0, 0]


def test_in_a_burst_the_others_run_though_the_first_had_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ends=True)
    assert scene.run(lambda: scene.end(1), lambda: scene.end(2, 3)) == 0
    assert [child.done for child in scene.children] == [["start"]] * 3


def test_the_first_that_cannot_be_started_ends_it_and_a_later_one_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)

    def start() -> int:
        raise OSError("no memory")

    with monkeypatch.context() as full:
        full.setattr(scene.children[0], "start", start)
        with pytest.raises(WorkerFailed, match="process 1"):
            scene.run()
    monkeypatch.setattr(scene.children[2], "start", start)
    scene.run(scene.serve, lambda: scene.hear(signal.SIGTERM), lambda: _forget(scene))
    assert scene.told.count("worker.died") == 1


def _forget(scene: Scene) -> None:
    scene.children[2].starts_at_s = None
    scene.end(1, 2)


def test_signals_are_heard_as_before_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in numbers]
    with Scene(monkeypatch).supervisor._signals():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.set_wakeup_fd(-1) == -1


def _child(clock: VirtualClock) -> Child:
    return Child(7, command=lambda _: ["true"], environment={}, clock=clock)


def test_a_child_that_is_started_again_knows_nothing_of_the_one_before() -> None:
    child = _child(VirtualClock())
    child._reported, child._unread = Health(state="serving", ready=True), b'{"sta'
    child._ready_at_s = 1.0
    child.start()
    child.wait(10)
    child.close()
    assert (child._reported, child._unread, child.serves) == (None, b"", False)


def test_of_several_reports_the_last_one_counts() -> None:
    child = _child(VirtualClock())
    states = [Health(state="serving"), Health(state="stopping")]
    child._note([*map(msgspec.json.encode, states), b"no report"])
    assert child._reported == states[1]


def test_failures_are_counted_in_a_row_until_a_minute_of_service() -> None:
    clock, counted = VirtualClock(), []
    backoff: Any = SimpleNamespace(delay_ms=lambda number: counted.append(number) or 0)
    child = _child(clock)
    for served_s in (None, 1.0, HEALTHY_S - 1, HEALTHY_S + 1, 1.0):
        child._ready_at_s = None if served_s is None else clock.monotonic_s()
        clock.advance(round((served_s or 0) * 1000))
        child.plan_restart(backoff)
    assert counted == [1, 2, 3, 1, 2]
    bounds_s = [module.BACKOFF.bound_ms(number) / 1000 for number in (1, 2, 6, 7, 8)]
    assert bounds_s == [0.5, 1, 16, 30, 30]
    child.terminate()
    assert child.starts_at_s is None


def test_an_outage_is_over_once_no_part_has_missed_the_store_for_a_while() -> None:
    clock, events, back = VirtualClock(), Events(), []
    events.listen(lambda _, facts: back.append(facts["away_s"]))
    outage = Outage(events, clock)

    def pass_time(seconds: float, *, misses: bool = False) -> None:
        clock.advance(round(seconds * 1000))
        if misses:
            outage.hear("store.unavailable", {})
        outage.replied()

    pass_time(0, misses=True)
    pass_time(10)
    pass_time(QUIET_S - 1, misses=True)  # it replies to who reads alone
    pass_time(QUIET_S - 1)
    assert back == []
    pass_time(1)
    assert back == [QUIET_S + 9]


class PipeEnds:
    """A worker's end of its pipe, and the supervisor's."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.fd = theirs.detach()
        os.set_inheritable(self.fd, True)  # as the supervisor has handed it down
        self.lost: list[str] = []
        self.pipe = SupervisorPipe(
            self.fd, on_lost=lambda: self.lost.append(""), on_failure=lambda *_: None
        )

    def said(self) -> bytes:
        try:
            return self.ours.recv(1000)
        except BlockingIOError:
            return b""


@pytest.fixture
def ends() -> Iterator[PipeEnds]:
    made = PipeEnds()
    yield made
    made.pipe.close()
    made.ours.close()


def test_the_first_word_of_a_worker_is_that_it_serves(ends: PipeEnds) -> None:
    ends.pipe.report(Health(state="starting"))
    assert ends.said() == b""
    ends.pipe.ready()
    ends.pipe.report(Health(state="serving"))
    assert ends.said().startswith(b"ready\n{")


def test_a_worker_waits_for_no_supervisor_that_does_not_read(ends: PipeEnds) -> None:
    ends.pipe.ready()
    health = Health(state="serving", faults=["x" * 10_000])

    def report() -> None:
        for _ in range(1000):
            ends.pipe.report(health)

    reporting = threading.Thread(target=report, daemon=True)
    reporting.start()
    reporting.join(20)
    assert not reporting.is_alive()


def test_what_a_worker_starts_does_not_keep_its_pipe(ends: PipeEnds) -> None:
    assert not os.get_inheritable(ends.fd)


@pytest.mark.parametrize("dies", [True, False])
def test_a_supervisor_is_lost_where_it_dies_and_not_where_the_worker_stops(
    ends: PipeEnds, dies: bool
) -> None:
    ends.pipe.start()
    if dies:
        ends.ours.close()
        eventually(lambda: ends.lost)
    ends.pipe.stop(5)
    assert len(ends.lost) == dies


def test_systemd_may_listen_at_a_name_that_is_no_file() -> None:
    name = f"qframe-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(10)
        manager.bind(f"\0{name}")
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).tell(Health(state="serving", ready=True))
        assert manager.recv(100) == b"READY=1"
