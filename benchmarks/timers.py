"""`python -m benchmarks.timers`: the cost of timers beside many that wait, and how late they are.

First, for 10^4, 10^5 and 10^6 timers that wait, spread over a year: the CPU time of setting one,
one by one and in batches, and of handing out and settling one that is due. It is that of this
process and of Redis' server; others that run on the machine do not count. Growth is the cost at the
largest count over that at the smallest, and the bar is 1.3.

Then, beside the most that wait, one worker process handles 20,000 timers that are due within 30 s:
none early, none lost, none twice, and how late each handler began. The bars are 10 ms at the median
and 50 ms at 99 %, on a machine that does nothing else.

`--store` takes redis, sqlite or postgres, or the URL of an empty store, and `--timers-db` a
database beside a Redis store.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.capacity import opened
from benchmarks.report import machine
from qframe import Message, Outgoing, QFrame, Topic
from qframe.outcomes import Verdict
from qframe.stores.types import PullRequest, Settlement

TOPIC: Final = Topic("timers", kind="delay", slots=16)
GROUP: Final = "g"
YEAR_S: Final = 366 * 86_400
NEAR_S: Final = 86_400
CHUNK: Final = 5_000
STEP: Final = 500
EPOCH: Final = "0" * 15 + "1"
BAR_GROWTH: Final = 1.3
BAR_P50_MS: Final = 10
BAR_P99_MS: Final = 50


def main() -> None:
    """Measures a store, and prints a JSON object for each figure."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.timers", description=__doc__)
    made.add_argument("--store", default="sqlite")
    made.add_argument("--timers-db")
    made.add_argument("--counts", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    made.add_argument("--calls", type=int, default=2_000, help="timers set and handed out")
    made.add_argument("--due", type=int, default=20_000)
    made.add_argument("--within", type=float, default=30.0, metavar="SECONDS")
    made.add_argument("--serve", help=argparse.SUPPRESS)
    made.add_argument("--calls-file", help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.serve:
        serve(options.serve, Path(options.calls_file), options.timers_db)
        return
    say({"machine": machine()})
    with ExitStack() as stack:
        store = options.store
        url = store if "://" in store else stack.enter_context(opened(store))
        app = stack.enter_context(QFrame(store=url, timers_db=options.timers_db, log_level="error"))
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, GROUP)
        grows(app, options)
        if options.due:
            is_late(app, url, options)


def say(facts: dict[str, Any]) -> None:
    """Prints a figure."""
    print(json.dumps(facts), flush=True)


def grows(app: QFrame, options: argparse.Namespace) -> None:
    """Measures the costs at each count of timers that wait."""
    costs: dict[str, list[float]] = {}
    waiting = 0
    app.store.take(TOPIC, GROUP, dict.fromkeys(range(TOPIC.slots), EPOCH))
    for count in sorted(options.counts):
        fill(app, waiting, count)
        waiting = count
        cpu_s = meter(app)
        mine = {
            name: round(min(_spent(cpu_s, act, app, options.calls) for _ in range(3)), 1)
            for name, act in ACTS.items()
        }
        for name, each in mine.items():
            costs.setdefault(name, []).append(each)
        say({"store": app.store.url.partition(":")[0], "waiting": count, "cpu_us_each": mine})
    for name, all_of in costs.items():
        growth = round(all_of[-1] / all_of[0], 2)
        say({"cost": name, "growth": growth, "bar": BAR_GROWTH, "holds": growth < BAR_GROWTH})


def _spent(
    cpu_s: Callable[[], float], act: Callable[[QFrame, int], None], app: QFrame, count: int
) -> float:
    """The microseconds of CPU that an act costs for each of so many timers."""
    before = cpu_s()
    act(app, count)
    spent_s = cpu_s() - before
    if act in (set_one_by_one, set_in_batches):
        _take_back(app, count)
    return spent_s / count * 1e6


def meter(app: QFrame) -> Callable[[], float]:
    """Reads the seconds of CPU of this process and, of Redis, of its server."""
    if not app.store.url.startswith("redis://"):
        return time.process_time
    import redis

    client = redis.Redis.from_url(app.store.url)

    def cpu_s() -> float:
        info = client.info("cpu")
        return time.process_time() + info["used_cpu_user"] + info["used_cpu_sys"]

    return cpu_s


def fill(app: QFrame, start: int, count: int) -> None:
    """Sets timers that are due within a year, and not before tomorrow."""
    draw = random.Random(start)
    for first in range(start, count, CHUNK):
        messages = [
            Outgoing({"booking": number}, key=f"w{number}", delay=draw.uniform(NEAR_S, YEAR_S))
            for number in range(first, min(count, first + CHUNK))
        ]
        app.publish_many(TOPIC, messages, batch=CHUNK)


def set_one_by_one(app: QFrame, count: int) -> None:
    """Sets new timers, each in a call of its own."""
    draw = random.Random(count)
    for number in range(count):
        app.timers.schedule(TOPIC, number, key=f"n{number}", delay=draw.uniform(NEAR_S, YEAR_S))


def set_in_batches(app: QFrame, count: int) -> None:
    """Sets new timers in batches."""
    _set_some(app, "n", count)


def set_again(app: QFrame, count: int) -> None:
    """Sets timers that wait already to another time, in batches."""
    _set_some(app, "w", count)


def _set_some(app: QFrame, prefix: str, count: int) -> None:
    draw = random.Random(count + 1)
    for first in range(0, count, STEP):
        messages = [
            Outgoing(number, key=f"{prefix}{number}", delay=draw.uniform(NEAR_S, YEAR_S))
            for number in range(first, first + STEP)
        ]
        app.publish_many(TOPIC, messages, batch=STEP)


def _take_back(app: QFrame, count: int) -> None:
    """Cancels the new ones, so that as many wait as before."""
    for number in range(count):
        app.timers.cancel(TOPIC, f"n{number}")


def hand_out(app: QFrame, count: int) -> None:
    """Sets timers that are due at once, and hands them out and settles them."""
    store = app.store
    now_s = store.now_ms(TOPIC) / 1000
    for first in range(0, count, STEP):
        messages = [
            Outgoing(number, key=f"d{number}", at=now_s) for number in range(first, first + STEP)
        ]
        app.publish_many(TOPIC, messages, batch=STEP)
    asks = [PullRequest(slot, EPOCH, STEP // TOPIC.slots) for slot in range(TOPIC.slots)]
    while found := store.pull(
        TOPIC, GROUP, asks, receipt=f"r{time.monotonic_ns():019d}", lease_ms=60_000, max_attempts=9
    ).deliveries:
        ends = [
            Settlement(one.slot, one.subject, one.seq, one.receipt, one.attempt, EPOCH, Verdict.ACK)
            for one in found
        ]
        store.settle(TOPIC, GROUP, ends)


ACTS: Final = {
    "set, one by one": set_one_by_one,
    "set, in batches": set_in_batches,
    "set again, in batches": set_again,
    "hand out and settle": hand_out,
}


def is_late(app: QFrame, url: str, options: argparse.Namespace) -> None:
    """Sets timers that are due soon, lets a worker process handle them, and prints how late."""
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls"
        calls.touch()
        root = Path(__file__).parent.parent
        command = [
            sys.executable, "-m", "benchmarks.timers", "--serve", url, "--calls-file", str(calls),
            *(("--timers-db", options.timers_db) if options.timers_db else ()),
        ]  # fmt: skip
        worker = subprocess.Popen(command, cwd=root)
        try:
            app.timers.schedule(TOPIC, 0, key="first", delay=0)
            while not calls.read_text():
                time.sleep(0.05)
            due_ms = _set_due(app, options)
            taken = _await(calls, len(due_ms) + 1, options.within + 60)
        finally:
            worker.terminate()
            worker.wait()
    handled = Counter(key for key, _ in taken)
    late = sorted(at_ms - due_ms[key] for key, at_ms in taken if key in due_ms)
    p50, p99 = (late[int(len(late) * part)] if late else 0.0 for part in (0.5, 0.99))
    say({
        "due": len(due_ms), "within_s": options.within, "beside": max(options.counts, default=0),
        "early": sum(each < -1 for each in late), "lost": sum(key not in handled for key in due_ms),
        "twice": sum(count > 1 for count in handled.values()), "p50_ms": round(p50, 1),
        "p99_ms": round(p99, 1), "max_ms": round(late[-1] if late else 0.0, 1),
        "bars_ms": [BAR_P50_MS, BAR_P99_MS], "load": round(os.getloadavg()[0], 1),
    })  # fmt: skip


def _set_due(app: QFrame, options: argparse.Namespace) -> dict[str, float]:
    """Sets the timers, evenly spread, once all of them can be set in time."""
    begin_ms = time.time() * 1000 + 3_000 + options.due / 10
    step_ms = options.within * 1000 / options.due
    due_ms = {f"d{number}": begin_ms + number * step_ms for number in range(options.due)}
    names = list(due_ms)
    for first in range(0, len(names), STEP):
        messages = [
            Outgoing(0, key=name, at=due_ms[name] / 1000) for name in names[first : first + STEP]
        ]
        app.publish_many(TOPIC, messages, batch=STEP)
    if time.time() * 1000 > begin_ms:
        say({"note": "the first timers were due before all were set: they count as late"})
    return due_ms


def _await(calls: Path, count: int, within_s: float) -> list[tuple[str, float]]:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        lines = calls.read_text().splitlines()
        if len(lines) >= count:
            break
        time.sleep(0.5)
    time.sleep(1)  # so that one that is handled twice is seen
    return [(key, float(at_ms)) for key, at_ms in map(str.split, calls.read_text().splitlines())]


def serve(url: str, calls: Path, timers_db: str | None) -> None:
    """A worker: it writes down when each handler began."""
    app = QFrame(store=url, timers_db=timers_db, log_level="error")
    target = os.open(calls, os.O_WRONLY | os.O_APPEND)

    @app.consumer(TOPIC, GROUP)
    def handle(message: Message) -> None:
        os.write(target, f"{message.key} {time.time() * 1000:.3f}\n".encode())

    app.run()


if __name__ == "__main__":
    main()
