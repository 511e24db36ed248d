"""Schedules under a virtual clock, over a store in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from qframe.clock import VirtualClock
from qframe.coordination.base import Coordinator
from qframe.events import Events
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.schedules.leader import Leader
from qframe.schedules.record import Schedule
from qframe.schedules.verbs import Schedules
from qframe.stores.model.store import ModelStore
from qframe.testing.ownership import SoleOwner
from qframe.topic import Topic

BEGIN = datetime(2026, 3, 27, 12, tzinfo=UTC)
ORDERS = Topic("orders", kind="ordered", slots=4)


class Scene:
    """A store in memory, `app.schedules`, and one leader after the other."""

    def __init__(self, begin: datetime = BEGIN, make_store: type[ModelStore] = ModelStore) -> None:
        self.clock = VirtualClock(round(begin.timestamp() * 1000))
        self.store = make_store(namespace="n", clock=self.clock)
        self.events = Events()
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.events.listen(lambda name, facts: self.told.append((name, facts)))
        catalog = TopicCatalog(self.store)
        self.producer = Producer(
            self.store, catalog=catalog, max_body=10_000, batch=100, clock=self.clock
        )
        self.schedules = Schedules(
            store=self.store, producer=self.producer, catalog=catalog, events=self.events,
            clock=self.clock, max_body=10_000,
        )  # fmt: skip
        self.store.declare(ORDERS)
        self.store.subscribe(ORDERS, "g")
        self.leader = self.new_leader()

    def new_leader(self, store: Any = None, coordinator: Coordinator | None = None) -> Leader:
        store = store or self.store
        producer = Producer(
            store, catalog=TopicCatalog(store), max_body=10_000, batch=100, clock=self.clock
        )
        return Leader(
            store=store, producer=producer,
            coordinator=coordinator or SoleOwner(self.store, "w"),
            declare=lambda: None, events=self.events, clock=self.clock, on_failure=failed,
        )  # fmt: skip

    def settle(self, leader: Leader | None = None) -> None:
        """Turns until nothing is due now."""
        while (leader or self.leader).turn() == 0:
            pass

    def run(self, *, until: datetime | None = None, seconds: float = 0) -> None:
        """Lets time pass, and the leader do what falls due, each at its time."""
        end = self.clock.now_ms() + round(seconds * 1000)
        if until is not None:
            end = round(until.timestamp() * 1000)
        self.settle()
        while (now := self.clock.now_ms()) < end:
            due = self.leader.next_due_ms()
            self.clock.advance(max(1, min(end, end if due is None else due) - now))
            self.settle()

    def pass_time(self, seconds: float) -> None:
        """Lets time pass while nobody leads."""
        self.clock.advance(round(seconds * 1000))

    def of(self, name: str) -> Schedule:
        found = self.schedules.get(name)
        assert found is not None
        return found

    def ids(self) -> list[str]:
        """The ids of all messages in the topic, in the order of ticks."""
        records = self.store.peek(ORDERS, "g", states=("waiting", "todo", "doing"), limit=10**6)
        return sorted(each.id for each in records)

    def ticks(self) -> list[str]:
        return [each.rpartition("/")[2] for each in self.ids()]

    def handle(self) -> int:
        """A consumer settles all that is there; returns how many messages."""
        found = self.ids()
        self.store.drop_group(ORDERS, "g")
        self.store.subscribe(ORDERS, "g", "latest")
        return len(found)

    def count(self, event: str) -> int:
        return sum(facts.get("count", 1) for name, facts in self.told if name == event)


def failed(part: str, error: BaseException) -> None:
    raise AssertionError(part) from error
