"""`python -m benchmarks.explain`: how long an operator waits for a reply about a long backlog.

It fills one topic through the store's own operations: first with messages that die at their first
attempt, each with an error and a traceback of about a kilobyte, then with those that wait, each
with a key of its own. Of the waiting, every 1000th waits for a retry. Then it asks, 20 times each
in turns: `topics`, `explain` by an id that waits, one that is dead and one that was never seen,
`explain` by key, and the first pages of the dead. It prints the median and the slowest call, and
the same of whole processes of the command line, beside the bar of 200 ms.

A backlog of 10^7 takes a while to fill: `--store URL` names a store that outlives the run, and
`--filled` asks again what was filled before with the same counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.capacity import meter, opened
from benchmarks.report import machine
from benchmarks.workload import body
from qframe import Outgoing, QFrame, Topic
from qframe.clock import SystemClock
from qframe.codec import new_token
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.stores.base import Store
from qframe.stores.records import Record, Sought
from qframe.stores.types import PullRequest, PullTerms, Settlement

BAR_MS = 200
TOPIC = "backlog"
GROUP = "g"
CHUNK = 20_000
STEP = 500
EPOCH = "0" * 15 + "1"
LEASE_MS = 600_000
RETRY_EVERY = 1000
FAR_MS = 86_400_000
TRACEBACK = "".join(
    f'  File "/srv/shop/billing/step_{number}.py", line {10 * number}, in charge\n'
    f"    return gateway.charge(order, retries={number})\n"
    for number in range(8)
)

Calls = dict[str, Callable[[], object]]


def main() -> None:
    """Measures what the command line asks for, and prints one JSON object for each call."""
    made = parser("benchmarks.explain", __doc__)
    made.add_argument(
        "--no-cli", action="store_true", help="leave out the command line's processes"
    )
    options = made.parse_args()
    print(json.dumps({"machine": machine()}))
    with url_of(options.store) as url:
        with QFrame(url, log_level="error") as app:
            topic = Topic(TOPIC, kind=options.kind, slots=options.slots, dedupe_window="1d")
            app.declare(topic)
            if not options.filled:
                fill(app, topic, url, options)
            if options.calls:
                report("in process", _calls(app, topic, options), options.calls)
                commands = _commands(app, topic, url, options)
        if options.calls and not options.no_cli:
            report("command line", commands, options.calls)


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """The command line of a module that fills a topic and asks."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    add = made.add_argument
    add("--store", default="redis", help="redis, sqlite or postgres, or the URL of an empty store")
    add("--kind", default="ordered")
    add("--waiting", type=int, default=1_000_000)
    add("--dead", type=int, default=100_000)
    add("--slots", type=int, default=16)
    add("--delayed", action="store_true", help="what waits is due in a day")
    add("--filled", action="store_true", help="the store has all that already")
    add("--calls", type=int, default=20, help="of each sort; 0 only fills")
    return made


@contextmanager
def url_of(store: str) -> Iterator[str]:
    """The URL of a store: of the one that is named, or of an empty one of its sort."""
    if "://" in store:
        yield store
        return
    with opened(store) as url:
        yield url


def fill(app: QFrame, topic: Topic, url: str, options: argparse.Namespace) -> None:
    """Publishes, lets some die and some be retried, and prints what that took."""
    store = app.store
    store.subscribe(topic, GROUP)
    store.take(topic, GROUP, dict.fromkeys(range(topic.slots), EPOCH))
    size_of = meter(url)
    before, began = size_of(), time.perf_counter()
    _publish(app, topic, "dead-", options.dead, None)
    for some in _pulled(store, topic, options.dead):
        store.settle(topic, GROUP, [_ended(one, Verdict.DEAD) for one in some])
    dead_bytes = size_of() - before
    _publish(app, topic, "k", options.waiting, FAR_MS if options.delayed else None)
    retries = 0 if options.delayed else options.waiting // RETRY_EVERY
    for some in _pulled(store, topic, retries):
        store.settle(topic, GROUP, [_ended(one, Verdict.RETRY) for one in some])
    took_s = time.perf_counter() - began
    size = size_of() - before
    print(json.dumps({
        "store": url.partition(":")[0], "kind": options.kind, "slots": options.slots,
        "waiting": options.waiting, "dead": options.dead, "loaded_s": round(took_s),
        "gigabytes": round(size / 1e9, 2), "gigabytes_of_dead": round(dead_bytes / 1e9, 3),
    }), flush=True)  # fmt: skip


def report(how: str, calls: Calls, times: int) -> None:
    """Makes each call in turns, and prints the median and the slowest one."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(times):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            took[name].append((time.perf_counter() - began) * 1000)
    for name, each in took.items():
        median, most = statistics.median(each), max(each)
        print(json.dumps({
            "how": how, "call": name, "median_ms": round(median, 1), "max_ms": round(most, 1),
            "within_the_bar": median <= BAR_MS,
        }), flush=True)  # fmt: skip


def _calls(app: QFrame, topic: Topic, options: argparse.Namespace) -> Calls:
    """The calls in this process, each of which checks that it found what it should."""
    admin, store = app.admin, app.store
    waiting, dead = examples(app, topic, options)
    stands = "waiting" if options.delayed else "todo"

    def topics() -> None:
        [found] = admin.topics()
        group = found.groups[0]
        assert group.dead == options.dead
        assert group.todo + group.waiting == options.waiting

    def explained(state: str, message_id: str | None, key: str | None = None) -> None:
        found = admin.explain(topic.name, message_id, key=key)
        assert found[0].state in state.split(), found[0]

    def page(after: Record | None = None) -> None:
        assert len(admin.dead(topic.name, GROUP, limit=100, after=after)) == 100

    made: Calls = {
        "topics": topics,
        "explain id, waiting": lambda: explained(stands, waiting),
        "explain id, dead": lambda: explained("dead", dead.id),
        "explain id, never seen": lambda: explained("absent unknown", new_token(SystemClock())),
        "dead, first page": page,
        "dead, next page": lambda: page(dead),
    }
    if topic.has_subjects:
        key = f"k{options.waiting // 2}"
        made["explain key"] = lambda: explained(stands, None, key)
    else:
        since_ms = store.now_ms() - 1000
        made["offsets of a time"] = lambda: store.offsets_at(topic, since_ms)
    return made


def _commands(app: QFrame, topic: Topic, url: str, options: argparse.Namespace) -> Calls:
    """Whole processes of the command line, with the interpreter's start."""
    waiting, dead = examples(app, topic, options)
    commands = {
        "--version": ("--version",),
        "topics": ("topics", "list", "--json"),
        "explain id, waiting": ("explain", topic.name, waiting),
        "explain id, dead": ("explain", topic.name, dead.id),
        "dead, first page": ("dead", "list", topic.name, GROUP),
    }
    if topic.has_subjects:
        key = f"k{options.waiting // 2}"
        commands["explain key"] = ("explain", "--topic", topic.name, "--key", key)
    around = os.environ | {"QFRAME_STORE": url}

    def process(words: Sequence[str]) -> Callable[[], object]:
        command = [sys.executable, "-m", "qframe", *words]
        return lambda: subprocess.run(command, check=True, env=around, stdout=subprocess.DEVNULL)

    return {name: process(words) for name, words in commands.items()}


def examples(app: QFrame, topic: Topic, options: argparse.Namespace) -> tuple[str, Record]:
    """The id of the message in the middle of what waits, and the 100th dead letter."""
    dead = app.admin.dead(topic.name, GROUP, limit=100)[-1]
    if topic.has_subjects:
        [found] = app.store.find(topic, Sought(key=f"k{options.waiting // 2}")).records
    else:
        head = (options.dead + options.waiting) // options.slots
        found = app.store.find(topic, Sought(offset=head - 10, slot=0)).records[0]
    return found.id, dead


def _publish(app: QFrame, topic: Topic, prefix: str, count: int, delay_ms: int | None) -> None:
    """Publishes messages, each with a key of its own."""
    delay = None if delay_ms is None else f"{delay_ms}ms"
    for start in range(0, count, CHUNK):
        messages = [
            Outgoing(body(number), key=f"{prefix}{number}", delay=delay)
            for number in range(start, min(count, start + CHUNK))
        ]
        app.publish_many(topic, messages, batch=CHUNK)


def _pulled(store: Store, topic: Topic, count: int) -> Iterator[Sequence[Delivery]]:
    """Takes messages in hand, in steps, slot by slot as evenly as they lie."""
    each = max(1, STEP // topic.slots)
    number = 0
    while count > 0:
        number += 1
        share = min(each, -(-count // topic.slots))
        asks = [PullRequest(slot, EPOCH, share) for slot in range(topic.slots)]
        found = store.pull(
            topic, GROUP, asks, PullTerms(f"r{number:019d}", LEASE_MS, 100)
        ).deliveries
        store.settle(topic, GROUP, [_ended(one, Verdict.RELEASE) for one in found[count:]])
        yield found[:count]
        count -= len(found)


def _ended(one: Delivery, verdict: Verdict) -> Settlement:
    error = "CardRefused: the bank says no"
    return Settlement(
        one.slot, one.subject, one.seq, one.receipt, one.attempt, EPOCH, verdict,
        delay_ms=FAR_MS, error=error, traceback=TRACEBACK,
    )  # fmt: skip


if __name__ == "__main__":
    main()
