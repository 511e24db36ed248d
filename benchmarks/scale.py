"""`python -m benchmarks.scale`: the cost of a message on Redis as the backlog grows.

Each count is published into an empty store, 500 to a call, and worked off by one worker with 8
threads; bodies are short, and each message has a key. Wall time depends on what else the machine
does, so the CPU of the worker's process and of the server stands beside it. Before the last count
is run, its cost is forecast from the one before; the figures of the run stand beside that.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks import drive, report
from benchmarks.redis_server import Reading, RedisServer
from benchmarks.workload import KINDS, PUBLISH, key
from qframe import Message, Outgoing, QFrame, Topic

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
    parser.add_argument("--plot", type=Path, help="a picture of the figures, by matplotlib")
    options = parser.parse_args()
    print(json.dumps({"machine": report.machine()}), flush=True)
    found: list[dict[str, Any]] = []
    for kind in options.kinds:
        of_kind: list[dict[str, Any]] = []
        for count in sorted(options.counts):
            if of_kind and count == max(options.counts):
                print(json.dumps(forecast(of_kind[-1], count)), flush=True)
            of_kind.append(measure(kind, count))
            print(json.dumps(of_kind[-1]), flush=True)
        print(json.dumps({"kind": kind, "growth": growth(of_kind)}), flush=True)
        found += of_kind
    report.dump({"machine": report.machine(), "runs": found}, "scale.json")
    if options.plot:
        draw(found, options.plot)


def measure(kind: str, count: int) -> dict[str, Any]:
    """What a message costs, published and consumed; consuming from the first settlement on."""
    topic = drive.topic_of(kind, "scale")
    with RedisServer() as server, QFrame(server.url) as app:
        drain = Short(app, topic, count)
        cpu_s = time.process_time()
        with server.reading(count) as published:
            publish(app, topic, count)
        published_s = time.process_time() - cpu_s
        cpu_s = time.process_time()
        with server.reading(count) as consumed:
            drain.run()
        consumed_s = time.process_time() - cpu_s
        if count <= LARGEST_CHECKED:
            drain.check()
    return {
        "kind": kind, "count": count, **costs("publish", published, published_s),
        **costs("consume", consumed, consumed_s), "consume_us": round(drain.steady_us, 3),
        "bytes": round(published.bytes_each, 1),
    }  # fmt: skip


def costs(what: str, reading: Reading, cpu_s: float) -> dict[str, float]:
    """Microseconds a message: of the clock, of this process's CPU, of the server's."""
    return {
        f"{what}_us": round(reading.seconds / reading.count * 1e6, 3),
        f"{what}_cpu_us": round(cpu_s / reading.count * 1e6, 3),
        f"{what}_redis_us": round(reading.redis_us, 3),
    }


class Short(drive.Drain):
    """A consumer of short bodies."""

    def handle(self, message: Message) -> None:
        """Looks into the message, which decodes its body."""
        assert message.body >= 0


def publish(app: QFrame, topic: Topic, count: int) -> None:
    """Publishes numbers."""
    kind = str(topic.kind)
    for start in range(0, count, drive.CHUNK):
        numbers = range(start, min(count, start + drive.CHUNK))
        app.publish_many(topic, [Outgoing(n, key=key(kind, n)) for n in numbers], batch=PUBLISH)


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
