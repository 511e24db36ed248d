"""`python -m benchmarks.timers`: the cost of timers beside many that wait, and how late they are.

First, for 10^4 and 10^6 timers that wait, spread over a year: the CPU time of setting one, one by
one and in batches, and of handing out and settling one that is due. It is that of this process and
of its servers; others that run on the machine do not count. Growth is the cost at the largest count
over that at the smallest, and the bar is 1.3. Each count has a store of its own, and they take
turns, since a machine is faster in one minute than in the next. The *bare* cost is that of the
store's own index without qframe: adding a time to a sorted set or to a table by an index on it.

Then, beside the most that wait, one worker process handles 20,000 timers that are due within 30 s:
none early, none lost, none twice, and how late each handler began. The bars are 10 ms at the median
and 50 ms at 99 %, on a machine that does nothing else.

`--fault flush` empties Redis half-way through those 30 s, `--fault kill` kills it and starts it
again, with nothing in it: beside a database, timers are to be none the worse for it.

`--store` takes redis, sqlite or postgres, and `--timers-db` a database beside Redis: sqlite or
postgres. The URL of an empty store in place of either is measured as it is, one count after the
other, and without its server's CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.postgres_server import PostgresServer
from benchmarks.redis_server import RedisServer
from benchmarks.report import machine
from benchmarks.timers_bare import Bare, opened_bare
from qframe import Message, Outgoing, QFrame, Topic
from qframe.outcomes import Verdict
from qframe.stores.types import PullRequest, PullTerms, Settlement

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
    made.add_argument("--counts", type=int, nargs="*", default=[10_000, 1_000_000])
    made.add_argument("--calls", type=int, default=1_000, help="timers set and handed out")
    made.add_argument("--turns", type=int, default=5, help="of each count, the least is told")
    made.add_argument("--due", type=int, default=20_000)
    made.add_argument("--within", type=float, default=30.0, metavar="SECONDS")
    made.add_argument("--fault", choices=["flush", "kill"], help="what happens to Redis meanwhile")
    made.add_argument("--serve", help=argparse.SUPPRESS)
    made.add_argument("--calls-file", help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.serve:
        serve(options.serve, Path(options.calls_file), options.timers_db)
        return
    say({"machine": machine(), "load": round(os.getloadavg()[0], 1)})
    counts = sorted(options.counts)
    if "://" in options.store + (options.timers_db or ""):
        counts = counts[-1:]  # one empty store
    with ExitStack() as stack:
        measured = [Measured(stack, options, count) for count in counts]
        if options.turns:
            grows(measured, options)
        if options.due:
            is_late(measured[-1], options)


class Measured:
    """A store of its own in which so many timers wait.

    Args:
        stack: closes it.
        options: of the command.
        count: how many wait.
    """

    def __init__(self, stack: ExitStack, options: argparse.Namespace, count: int) -> None:
        self._servers: list[RedisServer | PostgresServer] = []
        self.count = count
        self.url = self._opened(stack, options.store)
        self.timers_db: str | None = options.timers_db and self._opened(stack, options.timers_db)
        self.app = stack.enter_context(
            QFrame(store=self.url, timers_db=self.timers_db, log_level="error")
        )
        self.app.declare(TOPIC)
        self.app.store.subscribe(TOPIC, GROUP)
        self.app.store.take(TOPIC, GROUP, dict.fromkeys(range(TOPIC.slots), EPOCH))
        self._bare = stack.enter_context(opened_bare(self.timers_db or self.url))
        self._bare.fill(count)
        fill(self.app, 0, count)

    def spent_us(self, act: Callable[[QFrame, int], None], calls: int) -> float:
        """The microseconds of CPU that an act costs for each of so many timers."""
        before = self._cpu_s()
        act(self.app, calls)
        spent_s = self._cpu_s() - before
        if act in (set_one_by_one, set_in_batches):
            _take_back(self.app, calls)
        return spent_s / calls * 1e6

    def bare_us(self, act: Callable[[Bare, int, Callable[[], float]], float], calls: int) -> float:
        """The same of the store's index alone."""
        return act(self._bare, calls, self._cpu_s) / calls * 1e6

    def harm_redis(self, fault: str) -> None:
        """Takes all from Redis that is in it."""
        for server in self._servers:
            if isinstance(server, RedisServer):
                server.empty() if fault == "flush" else server.lose_all()

    def _cpu_s(self) -> float:
        return time.process_time() + sum(server.cpu_s() for server in self._servers)

    def _opened(self, stack: ExitStack, store: str) -> str:
        if "://" in store:
            return store
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            return f"sqlite:///{folder}/timers.db?synchronous=normal"
        if store == "postgres":
            postgres = stack.enter_context(PostgresServer())
            self._servers.append(postgres)
            return postgres.new_database()
        redis = stack.enter_context(RedisServer())
        self._servers.append(redis)
        return redis.url


def say(facts: dict[str, Any]) -> None:
    """Prints a figure."""
    print(json.dumps(facts), flush=True)


def grows(measured: Sequence[Measured], options: argparse.Namespace) -> None:
    """Measures the costs at each count of timers that wait; the counts take turns."""
    least: dict[tuple[str, int], float] = {}

    def note(name: str, one: Measured, spent_us: float) -> None:
        at = name, one.count
        least[at] = min(least.get(at, spent_us), spent_us)

    for _ in range(options.turns):
        for name, act in ACTS.items():
            for one in measured:
                note(name, one, one.spent_us(act, options.calls))
        for name, bare_act in BARE.items():
            for one in measured:
                note(name, one, one.bare_us(bare_act, options.calls))
    for name in (*ACTS, *BARE):
        costs = {one.count: round(least[name, one.count], 1) for one in measured}
        growth = round(least[name, measured[-1].count] / least[name, measured[0].count], 2)
        told = {"bar": BAR_GROWTH, "holds": growth < BAR_GROWTH} if name in ACTS else {}
        say({"cost": name, "cpu_us_each": costs, "growth": growth, **told})


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
        TOPIC, GROUP, asks, PullTerms(f"r{time.monotonic_ns():019d}", 60_000, 9)
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
BARE: Final = {"bare, in batches": Bare.add, "bare again, in batches": Bare.again}


def is_late(measured: Measured, options: argparse.Namespace) -> None:
    """Sets timers that are due soon, lets a worker process handle them, and prints how late."""
    app = measured.app
    os.sync()  # a commit waits for the disk while that still writes what was set before
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls"
        calls.touch()
        root = Path(__file__).parent.parent
        command = [
            sys.executable, "-m", "benchmarks.timers", "--serve", measured.url,
            "--calls-file", str(calls),
            *(("--timers-db", measured.timers_db) if measured.timers_db else ()),
        ]  # fmt: skip
        worker = subprocess.Popen(command, cwd=root)
        try:
            app.timers.schedule(TOPIC, 0, key="first", delay=0)
            while not calls.read_text():
                time.sleep(0.05)
            due_ms = _set_due(app, options)
            if options.fault:
                half_way_s = max(
                    0.0, min(due_ms.values()) / 1000 + options.within / 2 - time.time()
                )
                threading.Timer(half_way_s, measured.harm_redis, (options.fault,)).start()
            taken = _await(calls, len(due_ms) + 1, options.within + 60)
        finally:
            worker.terminate()
            worker.wait()
    handled = Counter(key for key, _ in taken)
    late = sorted(at_ms - due_ms[key] for key, at_ms in taken if key in due_ms)
    p50, p99 = (late[int(len(late) * part)] if late else 0.0 for part in (0.5, 0.99))
    say({
        "due": len(due_ms), "within_s": options.within, "beside": measured.count,
        "early": sum(each < -1 for each in late), "lost": sum(key not in handled for key in due_ms),
        "twice": sum(count > 1 for count in handled.values()), "p50_ms": round(p50, 1),
        "p99_ms": round(p99, 1), "max_ms": round(late[-1] if late else 0.0, 1),
        "bars_ms": [BAR_P50_MS, BAR_P99_MS], "fault": options.fault,
        "load": round(os.getloadavg()[0], 1),
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
