"""An app in a test: its worker, what it tells, what it has settled, its handlers' two kinds."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from eventually import eventually

from qframe import Message, QFrame, Topic, WorkerFailed
from qframe.stores.records import Record

AnyShop = TypeVar("AnyShop", bound="Shop")


@contextmanager
def running(app: QFrame, *gates: threading.Event) -> Iterator[None]:
    """The app's worker, in a thread, until the block ends and its handlers' gates are opened.

    It serves when the block begins, unless it has failed.
    """
    worker = threading.Thread(target=app.run)
    worker.start()
    try:
        eventually(lambda: app.health().state == "serving" or not worker.is_alive())
        yield
    finally:
        for gate in gates:
            gate.set()
        while worker.is_alive():  # it may not have begun yet
            app.stop()
            worker.join(0.1)


class Shop:
    """An app, what its handlers have seen, its events and errors, and a worker in a thread."""

    keeps: type[BaseException] = WorkerFailed  # as its `failure`; another one fails the test

    def __init__(self, store: str, **options: Any) -> None:
        self.app = QFrame(store, **{"grace": 5, **options})
        self.seen: list[Any] = []
        self.errors: list[BaseException] = []
        self.events = told(self.app, self.errors)
        self.failure: BaseException | None = None
        self._worker: threading.Thread | None = None

    def start(self) -> None:
        """Runs a worker in a thread, until `stop`."""
        self._worker = threading.Thread(target=self._run)
        self._worker.start()

    def stop(self) -> None:
        """Stops the worker, and waits for its end."""
        self.app.stop()
        self.join()

    def join(self) -> None:
        """Waits for the worker's end."""
        if self._worker is not None:
            self._worker.join(60)
            assert not self._worker.is_alive()

    def dead(self, topic: Topic, group: str = "g") -> list[Record]:
        """A group's dead letters."""
        return self.app.admin.dead(topic, group)

    def _run(self) -> None:
        try:
            self.app.run()
        except self.keeps as error:
            self.failure = error


@contextmanager
def audited(shop: AnyShop) -> Iterator[AnyShop]:
    """Closes a shop in the end, when no worker has failed and the store's audit finds nothing."""
    with shop.app:
        yield shop
        shop.stop()
        assert shop.failure is None
        for topic in shop.app.store.topics():
            assert shop.app.store.verify(topic) == []


def told(app: QFrame, errors: list[Any] | None = None) -> Counter[str]:
    """The events of an app, counted from now on; their errors too, where a list is given."""
    events: Counter[str] = Counter()
    guard = threading.Lock()

    def count(name: str, facts: dict[str, Any]) -> None:
        with guard:  # several threads tell
            events[name] += facts.get("count", 1)
        if errors is not None and "error" in facts:
            errors.append(facts["error"])

    app.events.listen(count)
    return events


def settled(app: QFrame, topic: Topic, group: str = "g") -> int:
    """How many messages of a topic a group has settled."""
    return sum(slot.settled for slot in app.store.stats(topic, group))


def handler(is_async: bool, work: Callable[[Message], object]) -> Any:
    """A plain or an async handler that does some work."""

    async def handle_async(message: Message) -> None:
        await asyncio.sleep(0)
        work(message)

    def handle(message: Message) -> None:
        work(message)

    return handle_async if is_async else handle


def batched(is_async: bool, work: Callable[[Message], object]) -> Any:
    """A plain or an async handler of batches that does some work with each message."""

    async def handle_async(messages: list[Message]) -> None:
        await asyncio.sleep(0)
        for message in messages:
            work(message)

    def handle(messages: list[Message]) -> None:
        for message in messages:
            work(message)

    return handle_async if is_async else handle
