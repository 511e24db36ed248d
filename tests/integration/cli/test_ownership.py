"""`qframe workers list`, `qframe slots list`: who works, who owns what, while real workers run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apps import running
from cli_program import ORDERS, SHOP, Program
from eventually import eventually

from qframe import Topic

WITHIN_S = 60
START = "no worker is running; start one: qframe worker MODULE"


@contextmanager
def started(program: Program, *words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The program beside the test; killed at the end if it has not ended."""
    command = [sys.executable, "-m", "qframe", *words]
    options = {"cwd": program.directory, "env": program.environment(), **options}
    with subprocess.Popen(command, encoding="utf-8", **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A shop whose four slots two workers share."""
    program = Program(tmp_path_factory.mktemp("shop"))
    program.write("shop.py", SHOP)
    with program.app() as app, (program.directory / "log").open("w") as log:
        app.declare(ORDERS)
        app.declare(Topic("events", slots=2))
        with (
            started(program, "worker", "shop", stderr=log),
            started(program, "worker", "shop", stderr=log),
        ):
            eventually(lambda: [each.slots for each in app.admin.workers()] == [2, 2], WITHIN_S)
            yield program


@pytest.fixture
def idle(tmp_path: Path) -> Program:
    """A topic with a group for which nobody works, and one without a group."""
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(Topic("events", slots=2))
        app.declare(ORDERS)
        app.store.subscribe(ORDERS, "billing")
    return program


def test_two_workers_own_two_slots_each(shop: Program) -> None:
    workers = shop.ok("workers", "list", "--json").json
    assert all(each["consumers"] == ["orders/billing"] for each in workers)
    assert all(each["id"].startswith(f"{each['host']}-") for each in workers)
    assert all(each["until_ms"] > each["since_ms"] for each in workers)
    slots = shop.ok("slots", "list", "orders", "--json").json
    assert [each["slot"] for each in slots] == [0, 1, 2, 3]
    assert Counter(each["worker"] for each in slots) == {each["id"]: 2 for each in workers}
    assert {(each["topic"], each["group"]) for each in slots} == {("orders", "billing")}


def test_each_owner_and_each_worker_is_shown_once(shop: Program) -> None:
    header, *rows = shop.ok("slots", "list", "orders", "billing").out.splitlines()
    assert header.split() == ["group", "slots", "owner", "since", "epoch"]
    assert rows[0].startswith("billing")
    owned = re.compile(r"[-,0-3]+ +\S+-\d+-\w{12} +\d+ \w+ ago +[1-9a-f][-0-9a-f]*")
    assert all(owned.fullmatch(row.removeprefix("billing").strip()) for row in rows), rows
    assert len(rows) == 2
    header, *rows = shop.ok("workers", "list").out.splitlines()
    assert header.split() == ["worker", "since", "slots", "consumers"]
    assert [row.split()[-2:] for row in rows] == [["2", "orders/billing"]] * 2
    assert shop.ok("workers", "list", "events").out == f"{START}\n"


@pytest.mark.gate
def test_workers_tell_where_their_handlers_are_in_their_code(tmp_path: Path) -> None:
    program, gate = Program(tmp_path), threading.Event()
    with program.app() as app:

        @app.consumer(ORDERS, group="billing")
        def bill(_order: Any) -> None:
            gate.wait(60)

        app.publish(ORDERS, {}, key="k", id="order-1")
        with running(app, gate):
            eventually(lambda: sum(each.doing for each in app.admin.stats(ORDERS)), WITHIN_S)
            shown = program.ok("workers", "list", "--stacks", "--by", "ada")
        [worker] = {each.worker for each in app.admin.stacks(ORDERS, "billing")}
        first, *lines = shown.out.splitlines()
        assert first == f"orders/billing order-1, in worker {worker}"
        assert lines[0].endswith(" in bill")
        assert '"verb": "ask_stacks", "by": "ada"' in shown.err


def test_where_nobody_works_it_says_what_to_do(idle: Program) -> None:
    assert idle.ok("workers", "list").out == f"{START}\n"
    assert idle.ok("workers", "list", "--json").json == []
    header, *rows, last = idle.ok("slots", "list", "orders").out.splitlines()
    assert header.startswith("group")
    assert [row.split()[-2:] for row in rows] == [["0-3", "nobody"]]
    assert last == START
    assert {each["worker"] for each in idle.ok("slots", "list", "orders", "--json").json} == {None}
    assert idle.ok("slots", "list", "events").out.startswith(
        "no group has subscribed to events yet"
    )
    assert idle.ok("slots", "list", "events", "--json").json == []


def test_a_watch_shows_what_changes(idle: Program) -> None:
    with (
        idle.app() as app,
        started(
            idle, "slots", "list", "orders", "--watch", "--json", stdout=subprocess.PIPE
        ) as watch,
    ):
        assert {each["worker"] for each in json.loads(watch.stdout.readline())} == {None}
        app.store.heartbeat(ORDERS, "billing", "w-1-x", 60_000)
        app.store.claim(ORDERS, "billing", "w-1-x", {2: "0" * 15 + "1"})
        eventually(lambda: json.loads(watch.stdout.readline())[2]["worker"] == "w-1-x", WITHIN_S)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(WITHIN_S) == 0


def test_watched_on_a_terminal_it_is_drawn_anew_until_ctrl_c(idle: Program) -> None:
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen = b""
    with started(
        idle, "slots", "list", "orders", "--watch",
        stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True,
        env=idle.environment(TERM="xterm"), preexec_fn=_control_terminal,
    ) as watch:  # fmt: skip
        os.close(its_end)
        while seen.count(b"nobody") < 3 * ORDERS.slots:
            seen += os.read(terminal, 4096)
        os.write(terminal, b"\x03")
        while chunk := _rest(terminal):
            seen += chunk
        assert watch.wait(WITHIN_S) == 0
    os.close(terminal)
    text = seen.decode()
    assert "\x1b[31mnobody" in text
    assert "\x1b[2K\x1b[1A" in text, "nothing was drawn over"
    assert text.endswith("\x1b[?25h") or text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "Traceback" not in text
    assert "Aborted" not in text


def _control_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _rest(terminal: int) -> bytes:
    """What is still to be read; nothing when the other end is closed, which Linux calls EIO."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_a_reader_that_goes_away_is_no_error(shop: Program) -> None:
    with started(
        shop, "workers", "list", "--watch", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as watch:
        watch.stdout.readline()
        watch.stdout.close()
        watch.wait(WITHIN_S)
        assert watch.stderr.read() == ""
