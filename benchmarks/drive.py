"""Drives qframe with the workload: publishes it, and drains it with a handler that does nothing."""

from __future__ import annotations

import time
from typing import Any

import qframe.app.assembly  # noqa: F401 - what a worker loads is not in the time that is measured
from benchmarks.workload import PUBLISH, SLOTS, THREADS, body, key
from qframe import Message, Outgoing, QFrame, Topic

CHUNK = 20_000


def topic_of(kind: str, name: str = "orders") -> Topic:
    """A topic of a kind, with the 16 slots that all benchmarks use."""
    return Topic(name, kind=kind, slots=SLOTS)


def publish(app: QFrame, topic: Topic, count: int) -> float:
    """Seconds to publish `count` messages, 500 to a call."""
    kind = str(topic.kind)
    began = time.perf_counter()
    for start in range(0, count, CHUNK):
        app.publish_many(
            topic,
            [Outgoing(body(i), key=key(kind, i)) for i in range(start, min(count, start + CHUNK))],
            batch=PUBLISH,
        )
    return time.perf_counter() - began


def publish_singly(app: QFrame, topic: Topic, count: int) -> float:
    """Seconds to publish `count` messages, one to a call."""
    kind = str(topic.kind)
    began = time.perf_counter()
    for number in range(count):
        app.publish(topic, body(number), key=key(kind, number))
    return time.perf_counter() - began


class Drain:
    """A consumer that decodes each body and does nothing with it, until `count` are settled.

    Make it before the topic is published to, so that its group collects from the beginning.
    """

    def __init__(self, app: QFrame, topic: Topic, count: int, *, keep_order: bool = False) -> None:
        self.app = app
        self.keep_order = keep_order
        self.topic = topic
        self.count = count
        self.settled = 0
        self.first: tuple[float, int] | None = None
        self.last = 0.0
        self.register()
        app.events.listen(self.listen)
        app.declare(topic)

    def register(self) -> None:
        """Makes `handle` the handler of a group."""
        keep_order = self.keep_order
        self.app.consumer(self.topic, group="g", threads=THREADS, keep_order=keep_order)(
            self.handle
        )

    def handle(self, message: Message) -> None:
        """Looks into the message, which decodes its body."""
        assert message.body["status"] == "paid"

    def listen(self, name: str, facts: dict[str, Any]) -> None:
        """Counts what is settled, and stops the app with the last."""
        if name != "delivery.settled":
            return
        self.last = time.perf_counter()
        self.settled += facts["count"]
        if self.first is None:
            self.first = self.last, self.settled
        if self.settled >= self.count:
            self.app.stop()

    def run(self) -> float:
        """Seconds from the start of the worker to its end, which comes when nothing is left."""
        began = time.perf_counter()
        self.app.run(burst=True)
        seconds = time.perf_counter() - began
        if self.settled != self.count:
            raise SystemExit(f"{self.topic.kind}: {self.settled} of {self.count} were settled")
        return seconds

    def check(self) -> None:
        """Ends the benchmark if the store contradicts itself; asked outside what is measured."""
        if wrong := self.app.admin.verify(self.topic):
            raise SystemExit(f"{self.topic.kind}: {wrong}")

    @property
    def steady_us(self) -> float:
        """Microseconds a message from the first settlement to the last, without start and stop."""
        at, settled = self.first or (0.0, 0)
        rest = self.count - settled
        return (self.last - at) / rest * 1e6 if rest else float("nan")
