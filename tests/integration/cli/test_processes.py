"""`qframe worker --processes N`: real workers, killed, stopped, and left alone."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program
from eventually import eventually
from processes import WITHIN_S, Running, children_of, is_gone, send, title_of

from qframe import Topic

SECRET = "hunter2"
WORKER = ("worker", "shop.numbers")
# One topic for each worker: they need not agree who serves what.
NUMBERS = """
import os
import threading

from qframe import Message, Topic, consumer

instance = os.environ.get("QFRAME_INSTANCE", "alone-0")
topic = Topic("numbers-" + instance.rpartition("-")[2], slots=1)
os.write(1, f"imported by {os.getpid()}\\n".encode())  # in one piece


@consumer(topic, group="g", threads=1)
def note(message: Message) -> None:
    with open("begun.txt", "a") as file:
        file.write(f"{instance} {os.getpid()}\\n")
    if message.body == "slow":
        threading.Event().wait(2)
    with open("handled.txt", "a") as file:
        file.write(f"{instance} {os.getpid()}\\n")
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    (tmp_path / "shop").mkdir()
    program.write("shop/__init__.py", "")
    program.write("shop/numbers.py", NUMBERS)
    return program


def written(program: Program, name: str) -> list[str]:
    path = program.directory / name
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def publish(program: Program, number: int, body: object) -> None:
    with program.app() as app:
        app.publish(Topic(f"numbers-{number}", slots=1), body)


def serving(running: Running, processes: int) -> list[int]:
    """Its children, once they all serve."""
    running.wait_for("worker.started", processes)
    eventually(lambda: len(running.children) == processes, within=WITHIN_S)
    return running.children


@pytest.mark.gate
@pytest.mark.promise(9)
def test_workers_have_numbers_titles_and_names_and_all_stop_at_one_signal(
    program: Program, start: Callable[..., Running]
) -> None:
    for number in (1, 2):
        publish(program, number, number)
    with start(*WORKER, "--processes", "2") as running:
        children = serving(running, 2)
        assert title_of(running.pid) == "qframe: supervisor shop.numbers (2 workers)"
        assert sorted(title_of(pid) for pid in children) == [
            "qframe: worker 1/2 shop.numbers",
            "qframe: worker 2/2 shop.numbers",
        ]
        eventually(lambda: len(written(program, "handled.txt")) == 2, within=WITHIN_S)
        running.signal(signal.SIGTERM)
        assert running.code() == 0
        assert all(is_gone(pid) for pid in children)
    host = socket.gethostname()
    handled = dict(line.split() for line in written(program, "handled.txt"))
    assert handled.keys() == {f"{host}-1", f"{host}-2"}
    assert {int(pid) for pid in handled.values()} == set(children)
    assert len(running.events("worker.stopped")) == 2
    assert len({event["worker"] for event in running.events("worker.stopped")}) == 2
    assert [event["exit_code"] for event in running.events("worker.ended")] == [0, 0]


@pytest.mark.gate
@pytest.mark.promise(1)
def test_one_that_is_killed_is_replaced_and_the_other_goes_on(
    program: Program, start: Callable[..., Running]
) -> None:
    with start(*WORKER, "--processes", "2") as running:
        children = serving(running, 2)
        (victim,) = (pid for pid in children if "1/2" in title_of(pid))
        (other,) = (pid for pid in children if pid != victim)
        os.kill(victim, signal.SIGKILL)
        (restarted,) = running.wait_for("worker.restarted")
        running.wait_for("worker.started", 3)
        assert sorted(running.children) == sorted([other, restarted["pid"]])
        assert restarted["pid"] != victim
        eventually(
            lambda: title_of(restarted["pid"]) == "qframe: worker 1/2 shop.numbers",
            within=WITHIN_S,
        )
        publish(program, 1, "x")
        eventually(lambda: written(program, "handled.txt"), within=WITHIN_S)
        assert written(program, "handled.txt")[0].split()[1] == str(restarted["pid"])
    (died,) = running.events("worker.died")
    assert (died["number"], died["pid"], died["signal"]) == (1, victim, "SIGKILL")
    assert 0 <= died["restart_in_s"] <= 0.5
    assert died["level"] == "error"


def test_children_of_a_killed_supervisor_finish_what_they_have_begun_and_end(
    program: Program, start: Callable[..., Running]
) -> None:
    publish(program, 2, "slow")
    with start(*WORKER, "--processes", "2") as running:
        children = serving(running, 2)
        eventually(lambda: written(program, "begun.txt"), within=WITHIN_S)
        running.signal(signal.SIGKILL)
        eventually(lambda: all(is_gone(pid) for pid in children), within=WITHIN_S)
        eventually(lambda: len(running.events("worker.stopped")) == 2, within=WITHIN_S)
    assert len(running.events("worker.orphaned")) == 2
    assert len(written(program, "handled.txt")) == 1


@pytest.mark.promise(9)
def test_a_stop_that_reaches_the_children_twice_is_as_clean(
    program: Program, start: Callable[..., Running]
) -> None:
    publish(program, 2, "slow")
    with start(*WORKER, "--processes", "2") as running:
        children = serving(running, 2)
        eventually(lambda: written(program, "begun.txt"), within=WITHIN_S)
        # As systemd does it; the supervisor first, which restarts one that ends before it hears.
        for pid in [running.pid, *children]:
            send(signal.SIGTERM, pid)
        running.wait_for("supervisor.stopping")
        for pid in children:
            if not is_gone(pid):
                send(signal.SIGTERM, pid)
        assert running.code() == 0
    assert len(running.events("worker.stopped")) == 2
    assert len(written(program, "handled.txt")) == 1


def test_a_burst_ends_with_0_when_all_are_done_who_are_named_after_the_instance(
    program: Program, start: Callable[..., Running]
) -> None:
    program.write("qframe.toml", 'instance = "blue"\n')
    for number in (1, 2, 2, 3):
        publish(program, number, "x")
    with start(*WORKER, "--processes", "3", "--burst") as running:
        assert running.code() == 0
        assert children_of(running.pid) == []
    handled = sorted(line.split()[0] for line in written(program, "handled.txt"))
    assert handled == ["blue-1", "blue-2", "blue-2", "blue-3"]
    assert len(running.events("worker.ended")) == 3


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["shop.nope"], "module 'shop.nope': it is neither in"),
        (["json"], "module 'json': it registers no consumer"),
        (["shop.numbers", "--store", "mongo://h/db"], "store 'mongo://h/db'"),
        (["shop.numbers", "--store", "redis://127.0.0.1:1/0"], "cannot be reached"),
        (["shop.numbers", "--namespace", "a b"], "namespace 'a b'"),
        (["shop.numbers", "--wait", "long"], "it is not a duration"),
        (
            ["shop.numbers", "--number", "1", "--supervisor-pipe", "99"],
            "leave --supervisor-pipe out",
        ),
    ],
)
def test_what_is_wrong_for_all_is_said_once(program: Program, words: list[str], shown: str) -> None:
    program.write("shop/numbers.py", NUMBERS.replace("os.write(1, ", "bytes("))
    assert shown in program.refused("worker", *words, "--processes", "3")


def test_children_are_started_as_the_supervisor_was(program: Program) -> None:
    program.write("shop/numbers.py", NUMBERS + "\nif __debug__:\n    os._exit(1)\n")
    code = "from qframe.cli.main import main; main()"
    words = ["worker", "shop.numbers", "--processes", "2", "--burst"]
    command = [sys.executable, "-O", "-c", code, *words]
    with Running(command, program.directory, program.environment()) as running:
        assert running.code() == 0
    assert len(running.events("worker.ended")) == 2


def test_the_store_is_waited_for_and_a_password_stays_hidden_meanwhile(
    start: Callable[..., Running],
) -> None:
    url = f"redis://:{SECRET}@127.0.0.1:1/0"
    with start(*WORKER, "--processes", "2", "--wait", "60s", "--store", url) as running:
        eventually(lambda: running.lines, within=WITHIN_S)  # it has imported the module
        (child,) = running.children
        assert title_of(child) == "qframe: worker 1/2 shop.numbers"
        assert title_of(running.pid) == "qframe: supervisor shop.numbers (2 workers)"
        running.signal(signal.SIGTERM)
        assert running.code() == 0
        assert is_gone(child)
    assert not any(SECRET in line for line in running.lines)
