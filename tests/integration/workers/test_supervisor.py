"""The supervisor, with small programs as its children: what it starts, restarts, and ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from eventually import eventually
from processes import WITHIN_S, Running, is_gone

from qframe.clock import VirtualClock
from qframe.retry import Backoff
from qframe.runtime.process.child import Child

pytestmark = pytest.mark.gate

SUPERVISOR = """
import json, sys
from qframe.clock import SYSTEM_CLOCK
from qframe.events import Events
from qframe.retry import Backoff
from qframe.runtime.process.supervisor import Supervisor

class Exact(Backoff):
    def delay_ms(self, attempt):
        return self.bound_ms(attempt)

code, processes, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
events = Events()
events.listen(lambda name, facts: print(json.dumps({"event": name, **facts}), flush=True))
sys.exit(
    Supervisor(
        processes=processes,
        command=lambda number, fd: [sys.executable, "-I", "-S", "-c", code, str(number), str(fd)],
        environment=lambda number: {"NUMBER": str(number)},
        events=events,
        clock=SYSTEM_CLOCK,
        backoff=Exact(first=options.pop("first"), cap=options.pop("cap")),
        **options,
    ).run()
)
"""
CHILD = """
import os, signal, sys
number, line = int(sys.argv[1]), int(sys.argv[2])

def note(word):
    with open("notes.txt", "a") as file:
        file.write(f"{word} {number} {os.getpid()}\\n")

def times():
    with open("notes.txt") as file:
        return sum(text.startswith(f"start {number} ") for text in file)

def serve():
    os.write(line, b"ready\\n")

def until_lost():
    try:
        while os.read(line, 64):
            pass
    except ConnectionResetError:  # it died before it had read that this one serves
        pass

note("start")
"""


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, code: str, processes: int = 2, **options: object) -> Running:
        given = {"ends": False, "first": 0.01, "cap": 0.05, **options}
        words = [sys.executable, "-c", SUPERVISOR, CHILD + code, str(processes), json.dumps(given)]
        return Running(words, self.directory, dict(os.environ))

    def notes(self, word: str) -> list[list[str]]:
        path = self.directory / "notes.txt"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(word + " ")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_children_are_numbered_and_each_is_a_group_of_its_own(bench: Bench) -> None:
    code = """
assert os.environ["NUMBER"] == str(number)
note(f"group-{os.getpgid(0) == os.getpid()}")
serve()
signal.pause()
"""
    with bench.run(code, 3) as running:
        eventually(lambda: len(bench.notes("group-True")) == 3, within=WITHIN_S)
        assert sorted(number for number, _ in bench.notes("start")) == ["1", "2", "3"]
        assert sorted(int(pid) for _, pid in bench.notes("start")) == running.children
        running.signal(signal.SIGINT)
        assert running.code() == 0
    assert [event["signal"] for event in running.events("worker.ended")] == ["SIGTERM"] * 3
    assert running.events()[-1]["event"] == "supervisor.stopped"


def test_the_others_are_started_when_the_first_one_serves(bench: Bench) -> None:
    code = """
if number == 1:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # it may come before it waits
    note("waits")
    signal.sigwait({signal.SIGUSR1})
serve()
signal.pause()
"""
    with bench.run(code, 3) as running:
        eventually(lambda: bench.notes("waits"), within=WITHIN_S)
        assert running.events() == []
        ((_, pid),) = bench.notes("start")
        os.kill(int(pid), signal.SIGUSR1)
        running.wait_for("supervisor.started")
        eventually(lambda: len(bench.notes("start")) == 3, within=WITHIN_S)


def test_a_first_one_that_refuses_to_start_ends_all_with_its_words_said_once(bench: Bench) -> None:
    with bench.run('sys.exit("this cannot be")', 4) as running:
        assert running.code() == 1
    assert running.lines == ["this cannot be"]
    assert len(bench.notes("start")) == 1


def test_one_that_crashes_before_it_serves_is_restarted(bench: Bench) -> None:
    code = """
if times() < 3:
    os.kill(os.getpid(), signal.SIGSEGV)
serve()
signal.pause()
"""
    with bench.run(code, 1) as running:
        running.wait_for("supervisor.started")
        assert [event["signal"] for event in running.events("worker.died")] == ["SIGSEGV"] * 2


def test_one_that_fails_after_another_has_served_is_restarted(bench: Bench) -> None:
    code = """
if number == 2 and times() < 3:
    sys.exit(1)
serve()
signal.pause()
"""
    with bench.run(code) as running:
        restarted = running.wait_for("worker.restarted", 2)
        assert [event["number"] for event in restarted] == [2, 2]
        assert [event["exit_code"] for event in running.events("worker.died")] == [1, 1]
        eventually(lambda: len(running.children) == 2, within=WITHIN_S)
        assert len([number for number, _ in bench.notes("start") if number == "1"]) == 1


def test_one_that_ends_by_itself_is_restarted_unless_it_may_end(bench: Bench) -> None:
    with bench.run("serve()", 1) as running:
        assert running.wait_for("worker.died")[0]["exit_code"] == 0
        running.wait_for("worker.restarted")


def test_in_a_burst_all_end_and_one_that_fails_is_restarted_before(bench: Bench) -> None:
    code = """
serve()
if number == 2 and times() == 1:
    sys.exit(3)
"""
    with bench.run(code, 3, ends=True) as running:
        assert running.code() == 0
    assert sorted(number for number, _ in bench.notes("start")) == ["1", "2", "2", "3"]
    assert len(running.events("worker.ended")) == 3
    assert [event["exit_code"] for event in running.events("worker.died")] == [3]


def test_waits_before_restarts_double_up_to_a_cap(bench: Bench) -> None:
    with bench.run("serve()\nsys.exit(1)", 1) as running:
        died = running.wait_for("worker.died", 5)
    waits_s = [event["restart_in_s"] for event in died[:5]]
    assert waits_s == [0.01, 0.02, 0.04, 0.05, 0.05]


def test_one_that_never_served_was_never_healthy() -> None:
    clock = VirtualClock()
    child = Child(1, command=lambda fd: [sys.executable, "-c", ""], environment={}, clock=clock)
    for attempt in (1, 2, 3):
        clock.advance(3_600_000)
        wait_s = child.plan_restart(Backoff(first=1, factor=1))
        assert child.starts_at_s == clock.monotonic_s() + wait_s
        assert child._failures == attempt


@pytest.mark.promise(9)
def test_a_second_signal_kills_those_that_do_not_stop_and_what_they_started(bench: Bench) -> None:
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it may come before it waits
if os.fork() == 0:
    note("grandchild")
    while True:
        signal.pause()
serve()
while True:
    signal.sigwait({signal.SIGTERM})
    note("asked")
"""
    with bench.run(code) as running:
        eventually(lambda: len(bench.notes("grandchild")) == 2, within=WITHIN_S)
        pids = [int(pid) for word in ("start", "grandchild") for _, pid in bench.notes(word)]
        running.signal(signal.SIGTERM)
        eventually(lambda: len(bench.notes("asked")) == 2, within=WITHIN_S)
        assert not any(is_gone(pid) for pid in pids)
        running.signal(signal.SIGINT)
        assert running.code() == 128 + signal.SIGINT
        eventually(lambda: all(is_gone(pid) for pid in pids), within=WITHIN_S)
    assert len(pids) == 4


def test_one_that_fails_while_it_stops_is_told(bench: Bench) -> None:
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it may come before it waits
serve()
signal.sigwait({signal.SIGTERM})
sys.exit(7)
"""
    with bench.run(code, 1) as running:
        running.wait_for("supervisor.started")
        running.signal(signal.SIGTERM)
        assert running.code() == 0
    (died,) = running.events("worker.died")
    assert (died["exit_code"], "restart_in_s" in died) == (7, False)


def test_children_of_a_killed_supervisor_read_the_end_of_their_line(bench: Bench) -> None:
    code = """
serve()
note("serves")
until_lost()
note("lost")
"""
    with bench.run(code, 3) as running:
        eventually(lambda: len(bench.notes("serves")) == 3, within=WITHIN_S)
        assert len(running.children) == 3
        running.signal(signal.SIGKILL)
        eventually(lambda: len(bench.notes("lost")) == 3, within=WITHIN_S)
