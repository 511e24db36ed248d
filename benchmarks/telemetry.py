"""`python -m benchmarks.telemetry`: what metrics and traces cost a consumer, on a Redis of its own.

A backlog is consumed by one process, in turns without anything, with `app.measure()`, and with it
and `app.trace`, by the API of OpenTelemetry and no SDK; printed is the CPU time for a
message, the least of all rounds, which other programs disturb least, and its ratio to that without
anything: 0.90 is a tenth slower. An SDK and its exporter are not measured.
"""

from __future__ import annotations

import argparse
import time

from benchmarks import drive
from benchmarks.redis_server import RedisServer
from benchmarks.workload import KEYED
from qframe import QFrame
from qframe.telemetry.tracing import Tracing

COUNT = 100_000
WAYS = ("nothing", "metrics", "metrics and traces")


def consume(url: str, kind: str, count: int, way: str) -> float:
    """Microseconds of this process's CPU for a message, publishing not counted."""
    with QFrame(url, log_level="error") as app:
        if way != "nothing":
            app.measure()
        if way == "metrics and traces":
            app.trace(Tracing())
        drain = drive.Drain(app, drive.topic_of(kind), count)
        drive.publish(app, drain.topic, count)
        began = time.process_time()
        drain.run()
        return (time.process_time() - began) / count * 1e6


def main() -> None:
    """Measures, and prints."""
    options = parser().parse_args()
    with RedisServer() as server:
        for kind in options.kinds:
            rounds: list[dict[str, float]] = []
            for number in range(options.rounds):
                costs: dict[str, float] = {}
                turn = WAYS[number % 3 :] + WAYS[: number % 3]  # none is always the first
                for way in turn:
                    server.empty()
                    costs[way] = consume(server.url, kind, options.count, way)
                rounds.append(costs)
            for way in WAYS:
                cost = min(each[way] for each in rounds)
                ratio = min(each["nothing"] for each in rounds) / cost
                print(f"{kind:10} {way:20} {cost:>8.2f} µs of CPU  {ratio:.2f}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    made.add_argument("--count", type=int, default=COUNT)
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--kinds", nargs="+", choices=KEYED, default=KEYED)
    return made


if __name__ == "__main__":
    main()
