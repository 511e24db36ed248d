"""`python -m benchmarks.scale`: the cost of a message on Redis as the backlog grows.

Each count is published into an empty store, 500 to a call, and worked off by workers with 8 threads
each; bodies are short, and each message has a key. Wall time depends on what else the machine does,
so the CPU of the processes and of the server stands beside it. Before the last count
is run, its cost is forecast from the one before; the figures of the run stand beside that.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import drive, report
from benchmarks.redis_qframe import hear, start
from benchmarks.redis_server import Reading, RedisServer
from benchmarks.workload import KINDS, PUBLISH, key
from qframe import Message, Outgoing, QFrame

COUNTS = (10_000, 100_000, 1_000_000)
LARGEST_CHECKED = 1_000_000
_COSTS = (
    "publish_us", "publish_cpu_us", "publish_redis_us", "consume_us", "consume_cpu_us",
    "consume_redis_us", "bytes",
)  # fmt: skip


def main() -> None:
    """Measures what the command line asks for, and prints one JSON object for each count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=("stream",))
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--processes", type=int, default=1, help="that publish, and then that work")
    parser.add_argument("--plot", type=Path, help="a picture of the figures, by matplotlib")
    options = parser.parse_args()
    print(json.dumps({"machine": report.machine()}), flush=True)
    found: list[dict[str, Any]] = []
    for kind in options.kinds:
        of_kind: list[dict[str, Any]] = []
        for count in sorted(options.counts):
            if of_kind and count == max(options.counts):
                print(json.dumps(forecast(of_kind[-1], count)), flush=True)
            of_kind.append(measure(kind, count, options.processes))
            print(json.dumps(of_kind[-1]), flush=True)
        print(json.dumps({"kind": kind, "growth": growth(of_kind)}), flush=True)
        found += of_kind
    report.dump({"machine": report.machine(), "runs": found}, "scale.json")
    if options.plot:
        draw(found, options.plot)


def measure(kind: str, count: int, processes: int) -> dict[str, Any]:
    """What a message costs, published and consumed; consuming from the first settlement on."""
    topic = drive.topic_of(kind, "scale")
    with RedisServer() as server, QFrame(server.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        with server.reading(count) as published:
            each = shares(count, processes)
            publishers = [start(publish, server.url, kind, *share) for share in each]
            spent = Spent([hear(pipe) for _, pipe in publishers])
        with server.reading(count) as consumed:
            workers = [start(work, server.url, kind, False) for _ in range(processes)]
            used = Spent([hear(pipe) for _, pipe in workers])
        for process, _ in publishers + workers:
            process.join()
        [found] = app.admin.topics()
        if used.count < count or found.groups[0].todo:
            raise SystemExit(f"{kind}: {used.count:,} of {count:,} were settled")
        if count <= LARGEST_CHECKED and (wrong := app.admin.verify(topic)):
            raise SystemExit(f"{kind}: {wrong}")
    return {
        "kind": kind, "count": count, "processes": processes, "settled": used.count,
        **spent.costs("publish", published), **used.costs("consume", consumed),
        "bytes": round(published.bytes_each, 1),
    }  # fmt: skip


class Part(NamedTuple):
    """What one process has done: for how many messages, from when to when, at which CPU."""

    count: int
    began_s: float
    ended_s: float
    cpu_s: float


class Spent:
    """What several processes have done together."""

    def __init__(self, parts: list[Part]) -> None:
        self.count = sum(part.count for part in parts)
        self.seconds = max(part.ended_s for part in parts) - min(part.began_s for part in parts)
        self.cpu_s = sum(part.cpu_s for part in parts)

    def costs(self, what: str, reading: Reading) -> dict[str, float]:
        """Microseconds a message: of the clock, of the processes' CPU, of the server's."""
        return {
            f"{what}_us": round(self.seconds / reading.count * 1e6, 3),
            f"{what}_cpu_us": round(self.cpu_s / reading.count * 1e6, 3),
            f"{what}_redis_us": round(reading.redis_us, 3),
        }


def shares(count: int, processes: int) -> list[tuple[int, int]]:
    """The numbers that each process publishes."""
    ends = [count * number // processes for number in range(processes + 1)]
    return list(pairwise(ends))


class Short(drive.Drain):
    """A consumer of short bodies, until nothing is left in the store."""

    def handle(self, message: Message) -> None:
        """Looks into the message, which decodes its body."""
        assert message.body >= 0


def publish(url: str, kind: str, first: int, end: int, pipe: Connection) -> None:
    """The program of a process: publishes numbers."""
    topic = drive.topic_of(kind, "scale")
    with QFrame(url) as app:
        app.publish_many(topic, [])
        began_s, cpu_s = time.monotonic(), time.process_time()
        for start_ in range(first, end, drive.CHUNK):
            numbers = range(start_, min(end, start_ + drive.CHUNK))
            app.publish_many(topic, [Outgoing(n, key=key(kind, n)) for n in numbers], batch=PUBLISH)
        used_s = time.process_time() - cpu_s
        pipe.send(Part(end - first, began_s, time.monotonic(), used_s))


def work(url: str, kind: str, keep_order: bool, pipe: Connection) -> None:
    """The program of a process: a worker, until nothing is left; timed by its settlements."""
    with QFrame(url) as app:
        drain = Short(app, drive.topic_of(kind, "scale"), sys.maxsize, keep_order=keep_order)
        cpu_s = time.process_time()
        app.run(burst=True)
        used_s = time.process_time() - cpu_s
        now_s, offset_s = time.monotonic(), time.perf_counter()
        first_s, _ = drain.first or (offset_s, 0)
        began_s, ended_s = (now_s - offset_s + each for each in (first_s, drain.last or offset_s))
        pipe.send(Part(drain.settled, began_s, ended_s, used_s))


def forecast(last: dict[str, Any], count: int) -> dict[str, Any]:
    """What the last run says of one of another count: the same cost for each message."""
    return {
        "forecast": count, "from": last["count"], "gigabytes": last["bytes"] * count / 1e9,
        "publish_s": last["publish_us"] * count / 1e6,
        "consume_s": last["consume_us"] * count / 1e6,
    }  # fmt: skip


def growth(runs: list[dict[str, Any]]) -> dict[str, float]:
    """How many times the cost of the smallest count that of the largest is."""
    return {name: round(runs[-1][name] / runs[0][name], 2) for name in _COSTS}


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draws the cost of a message over the length of the backlog."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (times, sizes) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for kind in dict.fromkeys(run["kind"] for run in runs):
        some = [run for run in runs if run["kind"] == kind]
        counts = [run["count"] for run in some]
        for what, line in (("publish", "--"), ("consume", "-")):
            spent = [run[f"{what}_cpu_us"] + run[f"{what}_redis_us"] for run in some]
            times.plot(counts, spent, line, marker="o", label=f"{kind}, {what}")
        sizes.plot(counts, [run["bytes"] for run in some], marker="o", label=kind)
    for axes, title in ((times, "CPU µs a message"), (sizes, "bytes a message, waiting")):
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("messages")
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
