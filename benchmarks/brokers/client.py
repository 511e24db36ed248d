"""The shared part of the brokers' clients: `publish`, `publish_many` or `work`, and its seconds."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence

URL = os.environ.get("BENCH_BROKER", "")
COUNT = int(os.environ.get("BENCH_COUNT", "5000"))
PREFETCH = 500

Publish = Callable[[Sequence[int]], None]

_numbers = itertools.count(1)
_times: list[float] = []


def handled() -> bool:
    """Counts one handled message, from any thread; returns whether it is the last."""
    number = next(_numbers)
    if number in (1, COUNT):
        _times.append(time.perf_counter())
    return number == COUNT


def main(publish: Publish, work: Callable[[], None], publish_many: Publish | None = None) -> None:
    """Does what the command line asks for; work is timed from the first message to the last."""
    action = sys.argv[1]
    _times.append(time.perf_counter())
    if action == "publish":
        publish(range(COUNT))
    elif action == "work":
        work()
    elif publish_many is not None:
        publish_many(range(COUNT))
    else:
        return
    if action != "work":
        _times.append(time.perf_counter())
    print(json.dumps({"seconds": _times[-1] - _times[-2]}), flush=True)
