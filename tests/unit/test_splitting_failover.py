"""A store fails over while a slot is split, and its next server has not heard of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import QFrameError
from qframe.producing.catalog import TopicCatalog
from qframe.producing.outgoing import Outgoing
from qframe.producing.producer import Producer
from qframe.stores.doubling import LEASE_MS, Doubling
from qframe.stores.model.store import ModelStore
from qframe.stores.records import Section
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

pytestmark = pytest.mark.promise(1)

CALLS = 42
"""More than a split takes."""


class Way:
    """The way to the store; `before` is called with the number of each call."""

    def __init__(self, store: ModelStore, before: Callable[[int], object]) -> None:
        self._store = store
        self._before = before
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        def call(*args: Any, **more: Any) -> Any:
            self.calls += 1
            self._before(self.calls)
            return operation(*args, **more)

        return call if callable(operation) else operation


class Run:
    """A topic of one slot that is split while somebody publishes before each call, until one.

    Args:
        kind: the topic's.
        copied: the next server has heard of all before this call.
        at: it takes over before this one.
        until: the last call before which somebody publishes.
    """

    def __init__(self, kind: Any, copied: int, at: int, until: int) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.topic = self.store.declare(Topic("t", kind, slots=1))
        self.store.subscribe(self.topic, "g")
        self.copied, self.at, self.until = copied, at, until
        self.then: Any = None
        self.published: list[str] = []
        self.forgotten: list[str] = []
        for number in range(4):
            self.publish(f"first{number}")

    def publish(self, name: str) -> None:
        """Publishes, as somebody who looks where the topic stands, unless its slot is closed."""
        topic = self.store.topic("t")
        assert topic is not None
        producer = Producer(
            self.store, catalog=TopicCatalog(self.store), max_body=100, batch=1, clock=self.clock
        )
        entry = producer.prepared(topic, Outgoing(name, key=f"k{name}", id=name))[1]
        with suppress(SlotsClosed):
            self.store.publish(topic, [entry])
            self.published.append(name)

    def split(self) -> int:
        """Splits the slot, also by others if who began gives up; returns after how many calls."""
        way: Any = Way(self.store, self.before)
        with suppress(QFrameError):
            self.double(way)
        calls: int = way.calls
        for _ in range(2):
            self.clock.advance(LEASE_MS + 1)
            self.double(self.store)
        return calls

    def double(self, store: Any) -> None:
        growing = Doubling(store, "t", owned=lambda *_: (), pause=lambda _: None)
        growing.finish(growing.begin(2))

    def before(self, call: int) -> None:
        if call == self.copied:
            self.then = deepcopy((self.store._states, self.published))
        if call == self.at:
            before = self.published
            self.store._states, self.published = self.then
            self.forgotten = [name for name in before if name not in self.published]
            self.clock.advance(1)
        if call <= self.until:
            self.publish(f"before{call}")

    def names(self) -> Counter[str]:
        """How often each message stands there."""
        topic = self.store.topic("t")
        assert topic is not None
        assert topic.all_slots == range(1, 3)
        assert self.store.verify(topic) == []
        found: Counter[str] = Counter()
        for slot in topic.all_slots:
            if topic.has_subjects:
                for part in ("heads", "behind"):
                    page = self.store.section(topic, Section(slot, part, "g"))
                    found.update(record.id for record in page.records)
            else:
                found.update(one.id for one in self.store.read_log(topic, slot, 0, 1000))
        return found


@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("at", range(2, CALLS))
def test_a_failover_in_the_midst_of_a_split_loses_nothing_that_was_moved(
    kind: str, at: int
) -> None:
    """Whatever the next server has heard of, and whether somebody publishes before or after it."""
    for copied in range(1, at):
        for until in (at - 1, CALLS):
            run = Run(kind, copied, at, until)
            calls = run.split()
            if calls < at:
                return
            lost = set(run.published) - set(run.names())
            assert not lost, (copied, until)
            for name in run.forgotten:  # as a producer does that has had no reply
                run.publish(name)
            found = run.names()
            assert set(run.published) <= set(found), (copied, until)
            assert set(found.values()) == {1}, (copied, until)
