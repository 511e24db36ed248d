"""`qframe worker --metrics-port` and `qframe store metrics`: what Prometheus reads."""

from __future__ import annotations

import signal
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program
from eventually import eventually
from ports import free_port
from processes import WITHIN_S, Running, send
from prometheus_client.parser import text_string_to_metric_families

from qframe import BadOption, Topic
from qframe.cli.metrics import added_up

COUNT = 2000
TOPIC = Topic("numbers", slots=8)
# The first half is handled at once; with the others the handlers wait at a gate.
NUMBERS = """
import os
import threading
from pathlib import Path

from prometheus_client import Counter

from qframe import Topic, consumer

seen = Counter("numbers_seen", "Counted by the handler itself.")


@consumer(Topic("numbers", slots=8), group="g", threads=2, lease="2s")
def note(number: int) -> None:
    seen.inc()
    if number >= 1000 and not Path("open.txt").exists():
        with open("waiting.txt", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while not Path("open.txt").exists():
            threading.Event().wait(0.05)
"""


def test_without_a_folder_for_the_numbers_the_option_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(BadOption, match=r"--metrics-port .*no folder.*set TMPDIR"):
        added_up("127.0.0.1:0").__enter__()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.write("numbers_app.py", NUMBERS)
    return program


def numbers_at(port: int) -> Counter[tuple[str, str, str]]:
    """The samples at a port, summed by name, outcome and process."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as reply:
        page = reply.read().decode()
    found: Counter[tuple[str, str, str]] = Counter()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = sample.labels
            found[sample.name, labels.get("outcome", ""), labels.get("process", "")] += sample.value
    return found


def held_by(waiting: Path) -> list[int]:
    """The processes whose handlers wait at the gate."""
    return sorted({int(pid) for pid in waiting.read_text().split()}) if waiting.exists() else []


def settled(program: Program) -> int:
    with program.app() as app:
        [totals] = app.admin.topic("numbers").groups
        return totals.settled


def test_the_one_port_counts_what_killed_workers_have_handled(
    program: Program, start: Callable[..., Running]
) -> None:
    with program.app() as app:
        app.declare(TOPIC)
        app.publish_many(TOPIC, range(COUNT // 2))
    port = free_port()
    words = ["numbers_app", "--processes", "4", "--metrics-port", f"127.0.0.1:{port}"]
    waiting = program.directory / "waiting.txt"
    with start("worker", *words, QFRAME_SESSION_TIMEOUT="3") as running:
        eventually(lambda: settled(program) == COUNT // 2, within=WITHIN_S)
        with program.app() as app:
            app.publish_many(TOPIC, range(COUNT // 2, COUNT))
        eventually(lambda: len(held_by(waiting)) >= 3, within=WITHIN_S)
        for victim in held_by(waiting)[:2]:  # nobody has asked for their numbers
            send(signal.SIGKILL, victim)
        (program.directory / "open.txt").touch()
        eventually(lambda: settled(program) == COUNT, within=WITHIN_S)
        eventually(
            lambda: sum(n for (name, _, _), n in numbers_at(port).items()
                        if name == "qframe_handled_total") >= COUNT,
            within=WITHIN_S,
        )  # fmt: skip
        numbers = numbers_at(port)
        assert numbers["qframe_handled_total", "ack", ""] == COUNT
        eventually(lambda: numbers_at(port)["numbers_seen_total", "", ""] > 0, within=WITHIN_S)
        running.signal(signal.SIGTERM)
        assert running.code() == 0


@pytest.mark.gate
@pytest.mark.parametrize("modules", [[], ["shop_outbox"]], ids=["no module", "a module"])
def test_the_stores_numbers_are_served_though_no_worker_lives(
    program: Program, start: Callable[..., Running], modules: list[str]
) -> None:
    program.write(
        "shop_outbox.py",
        "from sqlalchemy import create_engine\n"
        "from qframe import Outbox, QFrame\n"
        "app = QFrame()\n"
        "outbox = app.relay(Outbox(create_engine('sqlite:///shop.db')))\n"
        "outbox.create()\n",
    )
    with program.app() as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, "g")
        app.publish_many(TOPIC, range(3))
    port = free_port()
    with start("store", "metrics", *modules, "--port", f"127.0.0.1:{port}") as running:
        eventually(lambda: any("serving" in line for line in running.lines), within=WITHIN_S)
        numbers = numbers_at(port)
        assert numbers["qframe_messages", "", ""] == 3
        assert numbers["qframe_slots_unowned", "", ""] == 8
        assert numbers["qframe_store_up", "", ""] == 1
        assert (("qframe_outbox_pending", "", "") in numbers) == bool(modules)
        running.signal(signal.SIGTERM)
        assert running.code() == 0
