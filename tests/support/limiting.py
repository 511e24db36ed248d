"""A worker of a group that shares a limit, and a history of its handlers' starts."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import whole_lines
from nursery import Child, Nursery

from qframe import Message, QFrame, RateLimit, Topic
from qframe.options.flow import DRAWN_FOR_S
from qframe.stores.types import DrawResult

TOPIC = Topic("events", "ordered", slots=16)
GROUP = "g"
LATE = "late"


class Start(NamedTuple):
    """A handler has begun, by a clock that is common to all processes."""

    at_s: float
    process: int
    key: str
    number: int


class History:
    """A file to which every handler appends a line (`whole_lines`)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def starts(self) -> list[Start]:
        """All of them till now, the first ones first."""
        fields = [line.decode().split() for line in whole_lines.read(self._path)]
        return sorted(
            Start(float(each[0]), int(each[1]), each[2], int(each[3]))
            for each in fields if each[0] != LATE
        )  # fmt: skip

    def late(self) -> int:
        """How many tokens have come late, so that others had replaced them when they were used."""
        lines = [line.decode().split() for line in whole_lines.read(self._path)]
        return sum(int(each[1]) for each in lines if each[0] == LATE)

    def numbers(self) -> dict[str, list[int]]:
        """What was begun of each key, in order, without what came again."""
        found: dict[str, list[int]] = defaultdict(list)
        for start in self.starts():
            if start.number not in found[start.key]:
                found[start.key].append(start.number)
        return found


def worst_excess(starts: list[Start], limit: RateLimit) -> float:
    """How many seconds too early a start came: of each `n`, `n - burst` need a new token."""
    at_s = [start.at_s for start in starts]
    worst = float("-inf")
    for count in range(limit.burst + 1, len(at_s) + 1):
        needed_s = (count - limit.burst) / limit.per_s
        spans = [b - a for a, b in zip(at_s, at_s[count - 1 :], strict=False)]
        worst = max(worst, needed_s - min(spans))
    return worst


class Workers:
    """Processes that serve the group."""

    def __init__(
        self, nursery: Nursery, store: str, namespace: str, history: Path, limit: RateLimit
    ) -> None:
        self._nursery = nursery
        self._told = (store, namespace, str(history), str(limit.rate), str(limit.burst))
        self.processes: list[Child] = []

    def start(self, *, threads: int) -> Child:
        """One more."""
        self.processes.append(self._nursery.start(*self._told, str(threads)))
        return self.processes[-1]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        running = [each for each in self.processes if each.code() is None]
        for process in running:
            process.terminate()
        for process in running:
            process.join(within=60)


def work(store: str, namespace: str, history: str, rate: str, burst: str, threads: str) -> None:
    """Serves until it is told to stop."""
    app = QFrame(store, namespace=namespace, session_timeout=0.5, grace=5)
    file = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    draw = app.store.draw

    def timed(*arguments: Any, **options: Any) -> DrawResult:
        begun_s = time.monotonic()
        drawn = draw(*arguments, **options)
        if time.monotonic() - begun_s > DRAWN_FOR_S / 4:  # from a half on tokens last for longer
            whole_lines.append(file, f"{LATE} {drawn.granted}".encode())
        return drawn

    vars(app.store)["draw"] = timed

    @app.consumer(
        TOPIC, GROUP, rate_limit=RateLimit(rate, burst=int(burst), over="group"),
        threads=int(threads), lease=2,
    )  # fmt: skip
    def handle(message: Message) -> None:
        line = f"{time.monotonic():.6f} {os.getpid()} {message.key} {message.body}"
        whole_lines.append(file, line.encode())

    app.run()
