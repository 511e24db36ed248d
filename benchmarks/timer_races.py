"""`python -m benchmarks.timer_races`: timers cancelled and moved while they are handed out.

Each round sets a timer that is due in a few milliseconds, and at about that time cancels it, or
gives it another time and another body in one step, or does both. Worker processes handle what is
due, and are killed and replaced meanwhile. Each call of a handler is written to a file before
anything else, with its moment. At the end it holds the calls against what the acts have returned:

    cancelled   no call begins after `cancel` returned `done`
    edited      after `edit` returned `done` no call has the old body, or begins before the new time
    kept        each timer that was not cancelled was handled with its last body

Processes and store share a clock. It exits with 1 and names the timers if one of these is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.capacity import opened
from benchmarks.report import machine
from qframe import Message, QFrame, Topic
from qframe.outcomes import Moved

TOPIC: Final = Topic("races", kind="delay", slots=8)
GROUP: Final = "g"
NEAR_MS: Final = 40
LATER_MS: Final = (20, 400)
LEFT_WITHIN_S: Final = 120
SKEW_MS: Final = 2
"""How far two readings of the one clock may be apart, for it is read in whole milliseconds."""


class Fate(NamedTuple):
    """What was done to a timer, by the milliseconds of the clock.

    Attributes:
        cancelled_ms: when `cancel` had returned `done`; None if it was not cancelled.
        edited_ms: when `edit` had returned `done`; None if it was not edited.
        due_ms: when it is due since then.
    """

    cancelled_ms: float | None
    edited_ms: float | None
    due_ms: float


class Call(NamedTuple):
    """A call of the handler: when it began, and with which version of the body."""

    at_ms: float
    version: int


class Races(NamedTuple):
    """The result: how the acts went, how many calls and kills there were, and what was wrong."""

    acts: Counter[str]
    calls: int
    kills: int
    wrong: list[str]


def main() -> int:
    """Runs the races on each store, and prints a JSON object for each."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.timer_races", description=__doc__)
    made.add_argument(
        "--stores",
        nargs="*",
        default=["sqlite", "redis"],
        help="sorts (sqlite, redis, postgres, mariadb), or URLs",
    )
    made.add_argument("--timers-db", help="a sort, or URL: the database beside a Redis store")
    made.add_argument("--rounds", type=int, default=10_000)
    made.add_argument("--workers", type=int, default=2)
    made.add_argument("--kill-every", type=float, default=1.0, metavar="SECONDS")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--serve", help=argparse.SUPPRESS)
    made.add_argument("--calls", help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.serve:
        serve(options.serve, Path(options.calls), options.timers_db)
        return 0
    print(json.dumps({"machine": machine()}), flush=True)
    failed = False
    for store in options.stores:
        with ExitStack() as stack:
            url, timers_db = (
                each if each is None or "://" in each else stack.enter_context(opened(each))
                for each in (store, options.timers_db)
            )
            began = time.perf_counter()
            found = race(
                url, options.rounds, workers=options.workers, kill_every_s=options.kill_every,
                seed=options.seed, timers_db=timers_db,
            )  # fmt: skip
        print(json.dumps({
            "store": url.partition(":")[0], "timers_db": (timers_db or "").partition(":")[0],
            "rounds": options.rounds, "acts": found.acts, "calls": found.calls,
            "kills": found.kills, "wrong": found.wrong[:20],
            "seconds": round(time.perf_counter() - began),
        }), flush=True)  # fmt: skip
        failed = failed or bool(found.wrong)
    return int(failed)


def race(
    url: str,
    rounds: int,
    *,
    workers: int = 2,
    kill_every_s: float = 1.0,
    seed: int = 1,
    timers_db: str | None = None,
) -> Races:
    """Sets, cancels and edits timers in races with workers, and holds calls against fates."""
    with (
        tempfile.TemporaryDirectory() as folder,
        QFrame(store=url, timers_db=timers_db, log_level="error") as app,
    ):
        calls_file = Path(folder) / "calls"
        calls_file.touch()
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, GROUP)
        with _Workers(url, calls_file, timers_db, workers, kill_every_s) as crowd:
            crowd.await_first_call(app)
            acts: Counter[str] = Counter()
            with ThreadPoolExecutor(8) as threads:
                play = _Player(app, seed, acts)
                fates = dict(threads.map(play, range(rounds)))
            crowd.stop_killing()
            _await_empty(app)
        calls = _read(calls_file)
    return Races(acts, sum(map(len, calls.values())), crowd.kills, _faults(fates, calls))


class _Player:
    """Plays a round: sets a timer, and cancels or edits it at about the time when it is due."""

    def __init__(self, app: QFrame, seed: int, acts: Counter[str]) -> None:
        self._app = app
        self._seed = seed
        self._acts = acts
        self._lock = threading.Lock()

    def __call__(self, number: int) -> tuple[str, Fate]:
        draw = random.Random(f"{self._seed} {number}")
        key, timers = f"t{number}", self._app.timers
        due_ms = _now_ms() + draw.uniform(0, NEAR_MS)
        timers.schedule(TOPIC, 1, key=key, at=due_ms / 1000)
        fate = Fate(None, None, due_ms)
        for act in draw.choice((("cancel",), ("edit",), ("edit", "cancel"))):
            time.sleep(max(0.0, (fate.due_ms + draw.gauss(0, 8) - _now_ms()) / 1000))
            if act == "cancel":
                outcome = timers.cancel(TOPIC, key)
                if outcome is Moved.DONE:
                    fate = fate._replace(cancelled_ms=_now_ms())
            else:
                later_ms = _now_ms() + draw.uniform(*LATER_MS)
                outcome = timers.edit(TOPIC, key, body=2, at=later_ms / 1000)
                if outcome is Moved.DONE:
                    fate = fate._replace(edited_ms=_now_ms(), due_ms=later_ms)
            with self._lock:
                self._acts[f"{act} {outcome}"] += 1
        return key, fate


class _Workers:
    """Worker processes, one of which is killed and replaced now and then."""

    def __init__(
        self, url: str, calls: Path, timers_db: str | None, count: int, kill_every_s: float
    ) -> None:
        self._command = [
            sys.executable, "-m", "benchmarks.timer_races", "--serve", url, "--calls", str(calls),
            *(("--timers-db", timers_db) if timers_db else ()),
        ]  # fmt: skip
        self._calls = calls
        self._count = count
        self._every_s = kill_every_s
        self._running: list[subprocess.Popen[bytes]] = []
        self._ends = threading.Event()
        self._killer = threading.Thread(target=self._kill, name="races.killer")
        self.kills = 0

    def __enter__(self) -> _Workers:
        self._running = [self._start() for _ in range(self._count)]
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_killing()
        for each in self._running:
            each.kill()
            each.wait()

    def await_first_call(self, app: QFrame) -> None:
        """Waits until a worker handles something, and begins to kill."""
        app.timers.schedule(TOPIC, 1, key="first", delay=0)
        while not self._calls.read_bytes():
            time.sleep(0.02)
        self._killer.start()

    def stop_killing(self) -> None:
        """Lets those that run live."""
        self._ends.set()
        if self._killer.ident is not None:
            self._killer.join()

    def _start(self) -> subprocess.Popen[bytes]:
        root = Path(__file__).parent.parent
        return subprocess.Popen(self._command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)})

    def _kill(self) -> None:
        number = 0
        while not self._ends.wait(self._every_s):
            victim = self._running[number % self._count]
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            self.kills += 1
            self._running[number % self._count] = self._start()
            number += 1


def serve(url: str, calls: Path, timers_db: str | None) -> None:
    """A worker: it writes down each call before anything else."""
    app = QFrame(store=url, timers_db=timers_db, log_level="error")
    target = os.open(calls, os.O_WRONLY | os.O_APPEND)

    @app.consumer(TOPIC, GROUP, lease="3s")
    def handle(message: Message) -> None:
        os.write(target, f"{message.key} {_now_ms():.3f} {message.body}\n".encode())

    app.run()


def _read(calls: Path) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for line in calls.read_text().splitlines():
        key, at_ms, version = line.split()
        found[key].append(Call(float(at_ms), int(version)))
    return found


def _await_empty(app: QFrame) -> None:
    """Waits until every timer is handled or cancelled."""
    ends = time.monotonic() + LEFT_WITHIN_S
    while time.monotonic() < ends:
        if all(one.lag == 0 for one in app.admin.topic(TOPIC).groups):
            return
        time.sleep(0.05)


def _faults(fates: dict[str, Fate], calls: dict[str, list[Call]]) -> list[str]:
    """What was wrong, in sentences."""
    wrong = []
    for key, fate in fates.items():
        for call in calls.get(key, ()):
            if fate.cancelled_ms is not None and call.at_ms > fate.cancelled_ms:
                wrong.append(f"{key} fired {call.at_ms - fate.cancelled_ms:.1f} ms after its end")
            if fate.edited_ms is None:
                continue
            if call.version == 1 and call.at_ms > fate.edited_ms:
                wrong.append(f"{key} fired with its old body after it was edited")
            if call.version == 2 and call.at_ms < fate.due_ms - SKEW_MS:
                wrong.append(f"{key} fired {fate.due_ms - call.at_ms:.1f} ms before its new time")
        version = 1 if fate.edited_ms is None else 2
        if fate.cancelled_ms is None and version not in {
            each.version for each in calls.get(key, ())
        }:
            wrong.append(f"{key} was never handled with body {version}")
    return wrong


def _now_ms() -> float:
    return time.time() * 1000


if __name__ == "__main__":
    sys.exit(main())
