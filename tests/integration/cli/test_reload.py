"""`qframe worker --reload`: a change of a file starts the worker again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from cli_program import Program
from eventually import eventually

from qframe.cli.reload import look

MODULE = """
from qframe import Message, Topic, consumer

orders = Topic("orders", slots=1)


@consumer(orders, "billing")
def bill(message: Message) -> None:
    with open("handled.txt", "a") as file:
        file.write("VERSION ")
"""
SLOW = """
import time
from pathlib import Path

from qframe import Topic, consumer


@consumer(Topic("orders", slots=1), "billing")
def bill(order: int) -> None:
    Path("begun").touch()
    time.sleep(1)
    Path("done").touch()
"""
WITHIN_S = 60


def test_a_worker_is_started_again_when_its_module_changes(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.write("shop.py", MODULE.replace("VERSION", "first"))
    handled = tmp_path / "handled.txt"
    handled.touch()
    with program.app() as app, (tmp_path / "log").open("w") as log, subprocess.Popen(
        [sys.executable, "-m", "qframe", "worker", "shop", "--reload"],
        cwd=tmp_path, env=program.environment(), stderr=log,
    ) as process:  # fmt: skip
        try:
            eventually(lambda: app.store.topic("orders"), WITHIN_S)
            app.publish("orders", 1)
            eventually(lambda: handled.read_text() == "first ", WITHIN_S)
            program.write("shop.py", "def broken(:\n")
            eventually(lambda: "SyntaxError" in (tmp_path / "log").read_text(), WITHIN_S)
            program.write("shop.py", MODULE.replace("VERSION", "second"))
            app.publish("orders", 2)
            eventually(lambda: handled.read_text() == "first second ", WITHIN_S)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
    assert not app.admin.workers()


def test_a_sigint_to_it_alone_stops_its_worker_too(tmp_path: Path) -> None:
    """As editors and scripts send it; only a terminal's Ctrl-C reaches the worker by itself."""
    program = Program(tmp_path)
    program.write("shop.py", MODULE)
    with program.app() as app, subprocess.Popen(
        [sys.executable, "-m", "qframe", "worker", "shop", "--reload"],
        cwd=tmp_path, env=program.environment(), start_new_session=True,
    ) as process:  # fmt: skip
        try:
            eventually(lambda: app.store.topic("orders") and app.admin.workers(), WITHIN_S)
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert not app.admin.workers()


def test_a_terminals_ctrl_c_lets_the_worker_finish(tmp_path: Path) -> None:
    """It is not sent on, since a second signal ends a worker at once."""
    program = Program(tmp_path)
    program.write("shop.py", SLOW)
    program.ok("topics", "declare", "orders", "--slots", "1")
    with program.app() as app, subprocess.Popen(
        [
            sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])",
            sys.executable, "-m", "qframe", "worker", "shop", "--reload",
        ],
        cwd=tmp_path, env=program.environment(), stdin=subprocess.PIPE,
    ) as terminal:  # fmt: skip
        assert terminal.stdin
        try:
            app.publish("orders", 1)
            eventually((tmp_path / "begun").exists, WITHIN_S)
            terminal.stdin.write(b"\x03")
            terminal.stdin.flush()
            assert terminal.wait(WITHIN_S) == 0
        finally:
            terminal.kill()
    assert (tmp_path / "done").exists()


def test_what_is_looked_at_is_the_users_code(tmp_path: Path) -> None:
    for name in ("shop.py", "sub/orders.py", ".venv/a.py", "env/b.py", "lib/site-packages/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "notes.txt").touch()
    found = look([tmp_path])
    assert {str(path.relative_to(tmp_path)) for path in found} == {"shop.py", "sub/orders.py"}
    os.utime(tmp_path / "shop.py", ns=(1, 1))
    assert look([tmp_path]) != found
