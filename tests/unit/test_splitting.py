"""A slot is split while others publish into it between any two calls of who splits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.outcomes import Outcome
from qframe.producing.outgoing import Outgoing
from qframe.producing.producer import Producer
from qframe.stores.doubling import LEASE_MS, Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.stores.model.store import ModelStore
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

pytestmark = pytest.mark.promise(1)


class Meanwhile(ModelStore):
    """A store to whose next call of some name another actor comes first."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.before: dict[str, Callable[[], object]] = {}

    def __getattribute__(self, name: str) -> Any:
        if act := object.__getattribute__(self, "__dict__").get("before", {}).pop(name, None):
            act()
        return super().__getattribute__(name)


class Known:
    """A catalog that does not look again: an older producer."""

    def resolve(self, topic: Topic) -> Topic:
        return topic


class Bench:
    """A topic of one slot with a group, and a producer that knows it as it was declared."""

    def __init__(self, kind: Any = "stream") -> None:
        self.clock = VirtualClock()
        self.store = Meanwhile(self.clock)
        self.topic = Topic("t", kind, slots=1)
        self.store.declare(self.topic)
        self.store.subscribe(self.topic, "g")
        catalog: Any = Known()
        self.producer = Producer(
            self.store, catalog=catalog, max_body=1000, batch=100, clock=self.clock
        )

    def publish(self, name: str, **more: Any) -> Outcome:
        return self.producer.publish(self.topic, name, id=name, **more).outcome

    def grow(self) -> Topic:
        """Doubles the slots, which nobody owns; afterwards producers know."""
        growing = Doubling(self.store, "t", owned=lambda *_: (), pause=lambda _: None)
        self.topic = growing.finish(growing.begin(2))
        assert self.store.verify(self.topic) == []
        return self.topic


def test_nothing_comes_into_a_slot_whose_rest_is_copied() -> None:
    bench = Bench()
    refused: list[object] = []

    def publish() -> None:
        entry = bench.producer.prepared(bench.topic, Outgoing("late", key="k", id="late"))[1]
        with pytest.raises(SlotsClosed) as raised:
            bench.store.publish(bench.topic, [entry])
        refused.append(raised.value)

    bench.publish("first", key="k")
    bench.store.before["positions"] = publish
    bench.grow()
    assert refused


def test_what_comes_before_a_slot_is_closed_is_there_and_known_afterwards() -> None:
    bench = Bench()
    bench.publish("first", key="k")
    bench.store.before["close_slot"] = lambda: bench.publish("late", key="k")
    bench.grow()
    assert bench.publish("late", key="k") is Outcome.DUPLICATE
    [slot] = [one for one in bench.store.stats(bench.topic) if one.todo]
    assert slot.todo == 2


def test_it_is_known_afterwards_though_the_clock_has_gone_back_before_it_came() -> None:
    """Found by simulation: which marks were new was told by the times at which they pass."""
    bench = Bench()

    def publish_earlier() -> None:
        bench.clock.advance(-5000)
        bench.publish("late", key="k")

    bench.publish("first", key="k")
    bench.store.before["close_slot"] = publish_earlier
    bench.grow()
    assert [bench.publish(name, key="k") for name in ("first", "late")] == [Outcome.DUPLICATE] * 2


def test_what_is_behind_a_head_stays_behind_it_whatever_its_own_slot_would_be() -> None:
    """Messages of one key with bases of their own, which the two halves would tell apart."""
    bench = Bench("ordered")
    for number in range(8):
        bench.publish(f"m{number}", key="k", slot_basis=f"basis {number}")
    bench.grow()
    assert sorted(one.todo for one in bench.store.stats(bench.topic)) == [0, 8]


def test_whoever_was_thought_dead_until_another_had_split_the_slot_hears_of_that() -> None:
    bench = Bench()
    bench.publish("first", key="k")

    def overtake() -> None:
        bench.clock.advance(LEASE_MS + 1)
        other = Doubling(bench.store, "t", owned=lambda *_: (), pause=lambda _: None)
        other.finish(other.go_on())

    bench.store.before["positions"] = overtake
    with pytest.raises(GrowthTaken):
        bench.grow()
    topic = bench.store.topic("t")
    assert topic is not None
    assert bench.store.verify(topic) == []
