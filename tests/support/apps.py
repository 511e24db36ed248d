"""An app in a test: its worker, what it tells, what it has settled, its handlers' two kinds."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from qframe import Message, QFrame, Topic


@contextmanager
def running(app: QFrame, *gates: threading.Event) -> Iterator[None]:
    """The app's worker, in a thread, until the block ends and its handlers' gates are opened."""
    worker = threading.Thread(target=app.run)
    worker.start()
    try:
        yield
    finally:
        for gate in gates:
            gate.set()
        while worker.is_alive():  # it may not have begun yet
            app.stop()
            worker.join(0.1)


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
