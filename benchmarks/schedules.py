"""Kills the leader of the schedules again and again: `python -m benchmarks.schedules --kills 50`.

Two worker processes, and a schedule that ticks every second under `catch_up="all"`. The one that
leads is killed as by a crash once it has published something, and another is started. At the end
there must be one message for each second, by the real clock.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from qframe import QFrame, Topic
from qframe.schedules.records import GROUP, TOPIC

TICKS = Topic("ticks", kind="stream", slots=1)
SECOND = timedelta(seconds=1)
PATIENCE_S = 180.0  # a worker that has to share its core with many takes long to start

WORKER = """
import sys
from qframe import QFrame, Topic
app = QFrame(sys.argv[1], session_timeout=0.5)
app.cron("every 1s", topic=Topic("ticks", kind="stream", slots=1), name="second",
         catch_up="all")(print)
app.run()
"""


class Result(NamedTuple):
    """The messages that there are at the end.

    Attributes:
        kills: how often the leader was killed.
        ticks: how many ticks there were from the first to the last message.
        missing: those without a message.
        twice: those with more than one.
        longest_s: how long nobody published at most.
    """

    kills: int
    ticks: int
    missing: list[datetime]
    twice: list[datetime]
    longest_s: float


class Killing:
    """Two workers on a store, and who of them leads."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._app = QFrame(url)
        self._app.declare(TICKS)
        self._app.store.subscribe(TICKS, "g")
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, kills: int) -> Result:
        """Kills so many leaders."""
        with ExitStack() as stack:
            stack.callback(self._end)
            for _ in range(2):
                self._start()
            for _ in range(kills):
                seen = self._messages()
                self._wait(lambda seen=seen: self._messages() > seen + 1)
                self._wait(lambda: self._leader() in self._workers)
                worker = self._workers.pop(self._leader() or 0)
                worker.kill()
                worker.wait()
                self._start()
            seen = self._messages()
            self._wait(lambda: self._messages() > seen + 1)
        return self._result(kills)

    def _start(self) -> None:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, self._url])
        self._workers[worker.pid] = worker

    def _leader(self) -> int | None:
        """The process that owns the slot of the schedules."""
        owner = self._app.coordinator.roster(TOPIC, GROUP).owners.get(0)
        return None if owner is None else int(owner.member.rsplit("-", 2)[1])

    def _messages(self) -> int:
        return self._app.store.stats(TICKS, "g")[0].head

    def _wait(self, holds: object) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():  # type: ignore[operator]
            if time.monotonic() > until_s:
                raise TimeoutError(f"nobody led for {PATIENCE_S} s")
            time.sleep(0.02)

    def _end(self) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()

    def _result(self, kills: int) -> Result:
        messages = self._app.store.read_log(TICKS, 0, 0, 10**6)
        ticks = [datetime.fromisoformat(each.headers["tick"]) for each in messages if each.headers]
        published = [each.published_at_ms for each in messages]
        self._app.close()
        first, last = min(ticks), max(ticks)
        wanted = [first + SECOND * n for n in range(round((last - first) / SECOND) + 1)]
        there = Counter(ticks)
        pauses = [b - a for a, b in pairwise(published)]
        return Result(
            kills, len(wanted), [each for each in wanted if not there[each]],
            [each for each, count in there.items() if count > 1], max(pauses) / 1000,
        )  # fmt: skip


def main() -> int:
    """Returns 1 if a tick has no message, or two."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--store", help="its URL; a file of SQLite without one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.store or f"sqlite:///{folder}/ticks.db"
        result = Killing(url).run(asked.kills)
    print(
        f"{result.kills} leaders killed, {result.ticks} ticks: {len(result.missing)} without a "
        f"message, {len(result.twice)} with two; the longest pause was {result.longest_s:.1f} s"
    )
    return int(bool(result.missing or result.twice))


if __name__ == "__main__":
    sys.exit(main())
