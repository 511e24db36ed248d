"""`python -m benchmarks.growth`: how long a slot is closed while it is split, by what is in it.

A topic of one slot has so many messages, of a key each (of a stream all are in the log). Its slot
is split as `qframe topics resize` does it, while nobody works. What counts is the time from when
the slot was closed until its two halves were in use: for so long its keys wait, beside what their
owner takes to let it go and another to take it. The log is copied before.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.capacity import opened
from benchmarks.report import machine
from qframe import Outgoing, QFrame, Topic
from qframe.stores.doubling import Doubling

KINDS: Final = ("stream", "ordered", "delay")


class Timed:
    """A store that notes when a slot was closed, and when it was split.

    Args:
        store: the store.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.closed_s = self.split_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close_slot(self, *args: Any) -> None:
        """Closes a slot."""
        self.closed_s = time.perf_counter()
        self._store.close_slot(*args)

    def grow(self, *args: Any) -> bool:
        """Notes a growth."""
        done: bool = self._store.grow(*args)
        self.split_s = time.perf_counter()
        return done


def main() -> None:
    """Measures on each store, and prints a JSON object for each case."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    sorts = "sorts (sqlite, redis, postgres, mariadb), or URLs"
    made.add_argument("--stores", nargs="*", default=["redis", "sqlite", "postgres"], help=sorts)
    made.add_argument("--messages", nargs="*", type=int, default=[1000, 10_000, 50_000])
    options = made.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}), flush=True)
    for sort in options.stores:
        with opened(sort) as url:
            for kind in KINDS:
                for messages in options.messages:
                    print(json.dumps(measured(sort, url, kind, messages)), flush=True)


def measured(sort: str, url: str, kind: str, messages: int) -> dict[str, Any]:
    """One case."""
    with QFrame(store=url) as app:
        topic = Topic(f"growth-{kind}-{messages}", kind, slots=1)  # type: ignore[arg-type]
        app.declare(topic)
        app.store.subscribe(topic, "g")
        app.publish_many(topic, _items(kind, messages))
        timed: Any = Timed(app.store)
        doubling = Doubling(timed, topic.name, owned=lambda *_: (), pause=time.sleep)
        began_s = time.perf_counter()
        doubling.finish(doubling.begin(2))
        took_s = time.perf_counter() - began_s
        return {
            "store": sort, "kind": kind, "messages": messages,
            "closed_s": round(timed.split_s - timed.closed_s, 3), "all_s": round(took_s, 3),
        }  # fmt: skip


def _items(kind: str, messages: int) -> Sequence[Outgoing]:
    delay = 3600 if kind == "delay" else None
    return [Outgoing({"n": n}, key=f"key-{n}", delay=delay) for n in range(messages)]


if __name__ == "__main__":
    main()
