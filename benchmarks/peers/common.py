"""The shared part of the peers' programs: server, number of messages, counting."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")
COUNT = int(os.environ.get("BENCH_COUNT", "5000"))

_numbers = itertools.count(1)
_began = 0.0


def handled() -> None:
    """Counts one handled message; with the last, prints the seconds and ends the process."""
    global _began
    number = next(_numbers)
    if number == 1:
        _began = time.perf_counter()
    if number == COUNT:
        _report(time.perf_counter() - _began)
        os._exit(0)


def main(publish: Callable[[], object], work: Callable[[], object]) -> None:
    """Does what the command line asks for."""
    if sys.argv[1:] == ["work"]:
        del sys.argv[1:]
        work()
        return
    began = time.perf_counter()
    publish()
    _report(time.perf_counter() - began)


def _report(seconds: float) -> None:
    print(json.dumps({"seconds": seconds}), flush=True)
