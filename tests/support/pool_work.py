"""The work of a pool of threads: handlers that wait at a gate, and their messages."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from qframe.message import Delivery
from qframe.runtime.executors.run_worker import RunWorker
from qframe.runtime.handler.attempt import Attempt


class Handlers:
    """The work of a pool: handlers that wait at a gate, and are counted."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.handled: Counter[int] = Counter()
        self.through_again: list[Attempt] = []
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
