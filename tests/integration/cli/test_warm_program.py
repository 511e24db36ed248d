"""A run without its start ends as one from the start on: this is what most other tests rely on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import ORDERS, SHOP, Program
from eventually import eventually
from processes import WITHIN_S, children_of, is_gone
from warm_program import WarmProgram

from qframe import Topic

HERE = """
import os, sys, threading

print(sys.argv, sys.orig_argv, sys.path[:2], sys.flags, __name__, sys.modules["__main__"])
print(os.getcwd(), sorted({*os.environ} - {"LC_CTYPE"}), threading.active_count(), os.umask(0))
for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__):
    print(stream.fileno(), stream.isatty(), stream.encoding, stream.errors, stream.mode,
          stream.line_buffering, stream.write_through, stream.seekable(), stream.closed)
print(repr(sys.stdin.read()), *(os.readlink(f"/proc/self/fd/{fd}")[:4] for fd in range(3)))
"""
EACH_TIME = re.compile(r'"(?:timestamp|source)": "[^"]*"')  # of a line of the log
ENDS = [
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "import os; os._exit(7)",
    "import sys; sys.exit('reason')",
    "raise KeyboardInterrupt",
    "import atexit, sys; atexit.register(print, 'at the end'); print('half a line', end='')",
    "import threading; threading.Timer(0.1, print, ['later']).start()",
]
NEVER = """
import os, time

open("pid.new", "w").write(str(os.getpid()))
os.rename("pid.new", "pid")
time.sleep(600)
"""
SERVER = """
from pathlib import Path
from cli_program import Program

Program(Path.cwd()).run("worker", "never")
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A shop with something to see for every command."""
    program = Program(tmp_path_factory.mktemp("shop"))
    program.write("shop.py", SHOP)
    with program.app() as app:
        app.declare(Topic("events", slots=2))
        for number, extra in enumerate(({}, {"bad": True}, {"never": True})):
            app.publish(ORDERS, {"n": number, **extra}, key=f"k{number}", id=f"o-{number}")
        program.start("worker", "shop", "--burst")
        app.publish(ORDERS, {"n": 3}, key="k3", id="o-3")
        app.store.subscribe(Topic("events", slots=2), "g")
    return program


@pytest.mark.parametrize(
    "line",
    [
        "", "nope", "topics list", "publish orders", "explain orders o-99", "store verify --json",
        "dead drop orders billing --all", "groups seek events g earliest",
        "worker json --processes 2",
    ],
)  # fmt: skip
def test_every_command_says_and_ends_as_it_does_from_the_start_on(shop: Program, line: str) -> None:
    ran, started = shop.run(*line.split()), shop.start(*line.split())
    assert (ran.code, ran.out) == (started.code, started.out)
    assert EACH_TIME.sub("", ran.err) == EACH_TIME.sub("", started.err)


@pytest.mark.parametrize("text", ENDS)
def test_whatever_ends_it_ends_it_in_the_same_way(program: Program, text: str) -> None:
    program.write("odd.py", text + "\n")
    assert program.run("worker", "odd") == program.start("worker", "odd")


def test_from_inside_it_looks_the_same(program: Program) -> None:
    program.write("here.py", HERE)
    ran, started = (
        run("worker", "here", stdin="two\nlines\n", QFRAME_NAMESPACE="here")
        for run in (program.run, program.start)
    )
    assert ran == started
    assert "two\\nlines" in ran.out


def test_one_that_does_not_end_is_killed_and_the_next_one_runs(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.write("never.py", NEVER)
    env = program.environment()
    warm = WarmProgram()
    try:
        for timeout_s in (1, 5, 60):  # until it has been given enough time to begin
            with pytest.raises(subprocess.TimeoutExpired):
                warm.run(["worker", "never"], cwd=tmp_path, env=env, stdin="", timeout_s=timeout_s)
            if (tmp_path / "pid").exists():
                break
        assert is_gone(int((tmp_path / "pid").read_text()))
        ran = warm.run(["--version"], cwd=tmp_path, env=env, stdin="", timeout_s=WITHIN_S)
        assert (ran.returncode, ran.stderr) == (0, "")
    finally:
        warm.stop()


def test_a_killed_process_leaves_neither_server_nor_run(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.write("never.py", NEVER)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", SERVER], cwd=tmp_path, env=env) as tests:
        try:
            eventually((tmp_path / "pid").exists)
            (server,) = children_of(tests.pid)
        finally:
            tests.kill()
    left = (server, int((tmp_path / "pid").read_text()))
    eventually(lambda: all(is_gone(pid) for pid in left))
