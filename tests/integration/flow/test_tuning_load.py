"""Workers under load, in processes of their own, tuned from 2 threads to 16 and back; paused."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from cli_program import Program
from eventually import eventually
from processes import Running

from qframe import Outgoing, QFrame, Topic

TOPIC = Topic("work", slots=8)
WORK = """
import os, threading
from qframe import Message, Topic, consumer

file = os.open("handled.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
pause = threading.Event()


def note(*words):
    os.write(file, (" ".join(map(str, words)) + "\\n").encode())


@consumer(Topic("work", slots=8), group="g", threads=2, max_in_flight=200)
def handle(message: Message) -> None:
    note("+", os.getpid(), message.id, message.attempt)
    pause.wait(0.02)
    note("-", os.getpid(), message.id, message.attempt)
"""


class Watch:
    """What two workers' handlers have written: who began with what, and when it ended."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self) -> list[list[str]]:
        if not self._file.exists():
            return []
        text = self._file.read_text(encoding="utf-8")
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def at_once(self) -> dict[str, list[int]]:
        """How many handlers each process had at work, after each line of it."""
        found: dict[str, list[int]] = defaultdict(list)
        for sign, pid, *_ in self.lines():
            now = found[pid][-1] if found[pid] else 0
            found[pid].append(now + (1 if sign == "+" else -1))
        return found

    def runs(self, threads: int) -> bool:
        """Whether both keep that many handlers at work, and have not had more for a while."""
        found = self.at_once()
        return len(found) == 2 and all(
            max(counts[-40:]) == threads == max(counts[-8:]) for counts in found.values()
        )

    def handled(self) -> Counter[str]:
        return Counter(message for sign, _, message, _ in self.lines() if sign == "-")

    def began(self) -> int:
        return sum(sign == "+" for sign, *_ in self.lines())


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal"
    server = request.getfixturevalue("redis_server" if request.param == "redis" else "postgres")
    url: str = server.url if request.param == "redis" else server.new_database()
    return url


@pytest.fixture
def app(store: str, tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(store, namespace=tmp_path.name) as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, "g")
        yield app
        assert app.admin.verify("work") == []


@pytest.fixture
def workers(app: QFrame, store: str, tmp_path: Path) -> Iterator[Running]:
    """Two of them, and a supervisor."""
    program = Program(tmp_path)
    program.write("work.py", WORK)
    environment = program.environment(
        QFRAME_STORE=store, QFRAME_NAMESPACE=tmp_path.name, QFRAME_LOG_LEVEL="debug"
    )
    command = [sys.executable, "-m", "qframe", "worker", "work", "--processes", "2"]
    with Running(command, tmp_path, environment) as running:
        running.wait_for("worker.ready", 2)
        yield running
        running.signal(signal.SIGTERM)
        assert running.code() == 0


def publish(app: QFrame, numbers: range) -> None:
    app.publish_many(TOPIC, [Outgoing(number, id=f"m-{number}") for number in numbers])


class Feeding:
    """Publishes whenever little is left: workers have enough to do however long it takes."""

    LEAST = 1000

    def __init__(self, app: QFrame) -> None:
        self.count = 0
        self._app = app
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._app.admin.lag("work", "g") < self.LEAST:
                publish(self._app, range(self.count, self.count + self.LEAST))
                self.count += self.LEAST
            self._ending.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


@pytest.mark.promise(1, 3)
def test_tuned_from_2_threads_to_16_and_back_nothing_is_lost_or_repeated(
    app: QFrame, workers: Running, tmp_path: Path
) -> None:
    watch = Watch(tmp_path / "handled.txt")
    with Feeding(app) as feeding:
        eventually(lambda: watch.runs(2))
        app.admin.tune("work", "g", threads=16)
        eventually(lambda: watch.runs(16))
        app.admin.tune("work", "g", threads=2)
        eventually(lambda: watch.runs(2))
    app.admin.tune("work", "g", threads=32, in_flight=500)
    eventually(lambda: app.admin.lag("work", "g") == 0)
    assert watch.handled() == {f"m-{number}": 1 for number in range(feeding.count)}
    assert {attempt for *_, attempt in watch.lines()} == {"1"}
    assert not [event for event in workers.events() if event["event"].startswith("delivery.")]
