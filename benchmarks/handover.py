"""`python -m benchmarks.handover`: how long nobody serves a slot when a worker joins, and leaves.

One worker process owns all slots of a topic. Every hundredth of a second each slot gets a message.
Round by round a second process, loaded already, joins, takes its half, and leaves cleanly. Of each
slot that moved the longest wait of a message counts, from before publish to the handler: while
nobody served it, its messages waited. Handlers do nothing, so no slot has one in hand.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from benchmarks.capacity import opened
from benchmarks.redis_qframe import hear, start
from benchmarks.report import machine
from qframe import Message, Outgoing, QFrame, Topic

GROUP: Final = "g"
GAP_S: Final = 0.01
SERVES_S: Final = 2.0
BARS_MS: Final = {"join": 150, "leave": 200}


class Call(NamedTuple):
    """A handler's call: of which slot, by which worker, and when its message was published."""

    slot: int
    worker: str
    sent_s: float
    handled_s: float


class Change(NamedTuple):
    """A worker has joined, or begins to leave."""

    what: str
    at_s: float


def main() -> None:
    """Measures on each store, and prints a JSON object for each."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.handover", description=__doc__)
    sorts = "sorts (sqlite, redis, postgres, mariadb), or URLs"
    made.add_argument("--stores", nargs="*", default=["redis", "sqlite"], help=sorts)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--slots", type=int, default=16)
    options = made.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}), flush=True)
    for store in options.stores:
        topic = Topic("handover", slots=options.slots)
        if "://" in store:
            found = measure(store, topic, options.rounds)
        else:
            with opened(store) as url:
                found = measure(url, topic, options.rounds)
        print(json.dumps({"store": store.partition(":")[0], "unit": "ms", **found}), flush=True)
    print(json.dumps({"load": os.getloadavg()}), flush=True)


def measure(url: str, topic: Topic, rounds: int) -> dict[str, Any]:
    """The waits of joins and of leaves: their median, the 90th percentile, the longest."""
    changes: list[Change] = []
    calls: list[Call] = []
    with QFrame(url) as app:
        app.declare(topic)
        app.store.subscribe(topic, GROUP)
        first, pipe = started(url, topic, "first")
        ended = Event()
        publisher = Thread(target=publish, args=(app, topic, ended))
        publisher.start()
        time.sleep(SERVES_S)
        for number in range(rounds):
            second, other = started(url, topic, f"second {number}")
            changes.append(Change("join", time.monotonic()))
            other.send("go")
            time.sleep(SERVES_S)
            changes.append(Change("leave", time.monotonic()))
            os.kill(second.pid, signal.SIGTERM)
            calls += hear(other)
            second.join()
            time.sleep(SERVES_S)
        ended.set()
        publisher.join()
        time.sleep(SERVES_S)
        os.kill(first.pid, signal.SIGTERM)
        calls += hear(pipe)
        first.join()
    return {
        what: facts([one for each in changes if each.what == what for one in waits_ms(each, calls)])
        | {"bar": bar}
        for what, bar in BARS_MS.items()
    }


def started(url: str, topic: Topic, name: str) -> tuple[Any, Connection]:
    """A worker process, with everything loaded; the first begins at once, others are told to."""
    process, pipe = start(serve, url, topic.slots, name)
    hear(pipe)
    if name == "first":
        pipe.send("go")
    return process, pipe


def serve(url: str, slots: int, name: str, pipe: Connection) -> None:
    """The program of a worker: tells its calls at its end."""
    calls: list[Call] = []
    with QFrame(url) as app:

        @app.consumer(Topic("handover", slots=slots), group=GROUP)
        def handle(message: Message) -> None:
            calls.append(Call(message.slot, name, message.body["sent"], time.monotonic()))

        app.declare(Topic("handover", slots=slots))
        pipe.send("ready")
        pipe.recv()
        app.run()
    pipe.send(calls)


def publish(app: QFrame, topic: Topic, ended: Event) -> None:
    """Publishes a message to each slot again and again."""
    keys: dict[int, str] = {}
    number = 0
    while len(keys) < topic.slots:
        key = f"k{number}"
        keys.setdefault(topic.slot_of(key.encode()), key)
        number += 1
    due_s = time.monotonic()
    while not ended.is_set():
        due_s += GAP_S
        time.sleep(max(0.0, due_s - time.monotonic()))
        body = {"sent": time.monotonic()}
        app.publish_many(topic, [Outgoing(body, key=key) for key in keys.values()])


def waits_ms(change: Change, calls: Iterable[Call]) -> list[float]:
    """Of each slot that has moved since, the longest wait of a message meanwhile."""
    by_slot: dict[int, list[Call]] = defaultdict(list)
    until_s = change.at_s + SERVES_S
    for call in calls:
        if change.at_s - SERVES_S / 2 <= call.sent_s < until_s:
            by_slot[call.slot].append(call)
    waits = []
    for line in by_slot.values():
        line.sort(key=lambda call: call.handled_s)
        pairs = pairwise(line)
        moved = [after for before, after in pairs if before.worker != after.worker]
        if moved:
            around = [one for one in line if abs(one.handled_s - moved[0].handled_s) < SERVES_S / 4]
            waits.append(max(one.handled_s - one.sent_s for one in around) * 1000)
    return waits


def facts(waits: list[float]) -> dict[str, float]:
    """What is said of some waits."""
    if not waits:
        sys.exit("no slot has moved")
    ordered = sorted(waits)
    return {
        "slots moved": len(ordered), "median": round(statistics.median(ordered), 1),
        "p90": round(ordered[len(ordered) * 9 // 10], 1), "most": round(ordered[-1], 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
