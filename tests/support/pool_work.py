"""The work of a pool of threads: handlers that wait at a gate, and their messages."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from contexts import context_of

from qframe.message import Delivery
from qframe.runtime.executors.run_worker import RunWorker
from qframe.runtime.executors.thread_executor import ThreadExecutor
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.time_limit import TimeLimit


class Handlers:
    """The work of a pool: handlers that wait at a gate, and are counted."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.handled: Counter[int] = Counter()
        self.through_again: list[Attempt] = []
        self.has_long_runs = False
        self.at_once = self.most = 0
        self.between: Callable[[], object] = lambda: None
        self._guard = threading.Lock()

    def run(self, worker: RunWorker) -> None:
        while True:
            try:
                message = worker.run.popleft()
            except IndexError:
                worker.attempt = None
                return
            worker.attempt = message
            with self._guard:
                self.at_once += 1
                self.most = max(self.most, self.at_once)
            self.gate.wait(60)
            with self._guard:
                self.at_once -= 1
                self.handled[message.delivery.seq] += 1
            worker.done.append(message.delivery)
            worker.handled += 1

    def complete(self, deliveries: list[Delivery]) -> list[Attempt]:
        self.between()
        with self._guard:
            following, self.through_again = self.through_again[:2], self.through_again[2:]
        return following if deliveries else []

    def acknowledge(self, *_: object) -> None:
        raise AssertionError

    def extend(self, *_: object) -> None:
        raise AssertionError


def messages(handlers: Handlers, numbers: range) -> list[Attempt]:
    return [Attempt(Delivery(f"id-{n}", None, None, b"1", seq=n), handlers, True) for n in numbers]


@contextmanager
def running(
    handlers: Handlers, threads: int, relieve: Callable[[], None] | None = None
) -> Iterator[ThreadExecutor]:
    """A pool at work, of which nothing must be left in the end."""
    failures: list[BaseException] = []
    context = context_of(fail=lambda _, error: failures.append(error), threads=threads)
    pool = ThreadExecutor(context, work=handlers, time_limit=TimeLimit(context), relieve=relieve)
    pool.start()
    try:
        yield pool
    finally:
        handlers.gate.set()
        assert pool.stop(60)
        assert living("qframe.pool.t.g") == 0
        assert failures == []


def living(name: str) -> int:
    """How many threads of a pool there are."""
    return sum(each.name.startswith(f"{name}.") for each in threading.enumerate())
