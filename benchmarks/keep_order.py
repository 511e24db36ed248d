"""`python -m benchmarks.keep_order`: workers of a stream that keeps order, beside a plain one.

Messages of some hundred keys are published into an empty Redis, and four worker processes work
them off with a handler that does nothing; nothing fails. Once the group keeps order, once it does
not, and first in turns. Of each round it prints both rates, from the first settlement to the last,
and how many messages the workers handle for the same CPU; at the end the medians of the ratios,
beside the bar of 0.9.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from typing import Final

from benchmarks import drive
from benchmarks.redis_qframe import hear, start
from benchmarks.redis_server import RedisServer
from benchmarks.report import machine
from benchmarks.scale import Spent, work
from benchmarks.workload import PUBLISH
from qframe import Outgoing, QFrame

BAR: Final = 0.9


def main() -> None:
    """Measures what the command line asks for."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.keep_order", description=__doc__)
    made.add_argument("--count", type=int, default=1_000_000)
    made.add_argument("--keys", type=int, default=500)
    made.add_argument("--workers", type=int, default=4)
    made.add_argument("--rounds", type=int, default=7)
    options = made.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}), flush=True)
    rates, costs = [], []
    for number in range(options.rounds):
        turns = (False, True) if number % 2 else (True, False)
        found = {each: spent(options, keep_order=each) for each in turns}
        rates.append(found[False].seconds / found[True].seconds)
        costs.append(found[False].cpu_s / found[True].cpu_s)
        print(json.dumps({
            "plain_per_s": round(options.count / found[False].seconds),
            "keep_order_per_s": round(options.count / found[True].seconds),
            "ratio": round(rates[-1], 2), "ratio_by_cpu": round(costs[-1], 2),
        }), flush=True)  # fmt: skip
    medians = [round(statistics.median(each), 2) for each in (rates, costs)]
    print(json.dumps({"median": medians[0], "median_by_cpu": medians[1], "bar": BAR}))


def spent(options: argparse.Namespace, *, keep_order: bool) -> Spent:
    """What all workers together have spent on all messages."""
    topic = drive.topic_of("stream", "scale")
    with RedisServer() as server, QFrame(server.url, log_level="error") as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        for first in range(0, options.count, drive.CHUNK):
            numbers = range(first, min(options.count, first + drive.CHUNK))
            items = [Outgoing(n, key=f"k{n % options.keys}") for n in numbers]
            app.publish_many(topic, items, batch=PUBLISH)
        workers = [start(work, server.url, "stream", keep_order) for _ in range(options.workers)]
        found = Spent([hear(pipe) for _, pipe in workers])
        for process, _ in workers:
            process.join()
        [group] = app.admin.topic(topic).groups
        if group.settled != options.count or app.admin.verify(topic):
            raise SystemExit(f"{group.settled} of {options.count} were settled")
    return found


if __name__ == "__main__":
    main()
