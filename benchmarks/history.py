"""`python -m benchmarks.history`: what a topic's history costs, on Redis and SQLite of its own.

A backlog is consumed by one process, in turns without and with `history="1d"`; printed are the
microseconds of CPU for a message, of the worker and of the Redis server, the least of all rounds,
which other programs disturb least; then what share of the messages is left of the same CPU, and the
bytes that the store has more for each message when all are settled.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from benchmarks import capacity, drive
from benchmarks.workload import KEYED, SLOTS
from qframe import QFrame, Topic

STORES = ("redis", "sqlite")
WAYS = (None, "1d")

Cost = tuple[float, float, float]


def consume(store: str, kind: str, count: int, history: str | None) -> Cost:
    """Of a message: microseconds of the worker, of the server, and the store's bytes."""
    with capacity.opened(store) as url, QFrame(url, log_level="error") as app:
        topic = Topic("orders", kind=kind, slots=SLOTS, history=history)
        drain = drive.Drain(app, topic, count)
        drive.publish(app, topic, count)
        server: list[float] = []
        with cpu_of_server(url, server):
            began = time.process_time()
            drain.run()
            worker_s = time.process_time() - began
        drain.check()
        size = capacity.meter(url)()
    return worker_s / count * 1e6, server[0] / count * 1e6, size / count


@contextmanager
def cpu_of_server(url: str, used: list[float]) -> Iterator[None]:
    """Puts down the seconds of CPU that a server used; none where the store is a file."""
    if not url.startswith("redis:"):
        yield
        used.append(0)
        return
    with redis.Redis.from_url(url) as client:
        before = client.info("cpu")
        yield
        after = client.info("cpu")
        names = ("used_cpu_user", "used_cpu_sys")
        used.append(sum(float(after[name]) - float(before[name]) for name in names))


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--kinds", nargs="+", choices=KEYED, default=KEYED)
    options = parser.parse_args()
    for store in options.stores:
        for kind in options.kinds:
            rounds = [
                {way: consume(store, kind, options.count, way) for way in WAYS[:: 1 - 2 * (n % 2)]}
                for n in range(options.rounds)
            ]
            least = {way: [min(each[way][i] for each in rounds) for i in range(3)] for way in WAYS}
            (worker, server, size), (worker_1d, server_1d, size_1d) = least.values()
            print(
                f"{store:7} {kind:8} worker {worker:6.1f} to {worker_1d:6.1f} µs, "
                f"{worker / worker_1d:.2f}; server {server:5.1f} to {server_1d:5.1f} µs, "
                f"{server / server_1d if server else 1:.2f}; {size_1d - size:.0f} bytes more",
                flush=True,
            )


if __name__ == "__main__":
    main()
