"""A doubling step by step: its lease, its pauses, what it removes, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import BadOption
from qframe.stores.doubling import HEARD_S, LEASE_MS, TRIES, Doubling
from qframe.stores.model.store import ModelStore
from qframe.stores.types import SlotsClosed
from qframe.topic import MAX_SLOTS, Topic


class Noting(ModelStore):
    """A store that notes who has asked it for what."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.discarded: list[int] = []
        self.grows = self.closes = 0
        self.refuses = False

    def discard(self, topic: Topic, slot: int, limit: int = 500) -> bool:
        self.discarded.append(slot)
        return super().discard(topic, slot, limit)

    def grow(self, *given: Any) -> bool:
        self.grows += 1
        return super().grow(*given)

    def close_slot(self, topic: Topic, slot: int) -> None:
        self.closes += 1
        if self.refuses:
            raise SlotsClosed(self.url, topic.name)
        super().close_slot(topic, slot)


class Bench:
    """A topic whose slots nobody owns, until somebody does for a while."""

    def __init__(self, slots: int = 2) -> None:
        self.clock = VirtualClock()
        self.store = Noting(self.clock)
        self.store.declare(Topic("t", slots=slots))
        self.store.subscribe(self.topic, "g")
        self.pauses: list[float] = []
        self.owned_for = 0
        self.left_ms: list[int] = []

    @property
    def topic(self) -> Topic:
        found = self.store.topic("t")
        return Topic("t", slots=2) if found is None else found

    def doubling(self) -> Doubling:
        store: Any = self.store
        return Doubling(
            store, "t", owned=self.owned, pause=self.pause, monotonic_s=self.clock.monotonic_s
        )

    def owned(self, topic: Topic, _group: str) -> list[int]:
        self.left_ms.append(self.topic.growth.until_ms - self.clock.now_ms())
        self.owned_for -= 1
        return [] if self.owned_for < 0 else [*topic.all_slots]

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(max(1000, round(seconds * 1000)))

    def split_first(self, slots: int) -> None:
        """Another one splits the next slot, and dies."""
        another = self.doubling()
        another._split_next(another.begin(slots))
        self.clock.advance(LEASE_MS)
        self.store.discarded.clear()


def test_who_takes_up_a_growth_has_its_lease_and_no_smaller_target() -> None:
    bench = Bench()
    bench.doubling().begin(8)
    bench.clock.advance(LEASE_MS)
    topic = bench.doubling().begin(2)
    assert topic == bench.topic
    assert topic.growth.target == 8
    assert topic.growth.until_ms == bench.clock.now_ms() + LEASE_MS
    with pytest.raises(BadOption, match="somebody else"):
        bench.doubling().go_on()
    bench.doubling().leave()
    assert bench.doubling().go_on().growth.target == 8


def test_it_waits_until_all_have_heard_of_it_before_the_first_slot_alone() -> None:
    bench = Bench()
    growing = bench.doubling()
    growing.finish(growing.begin(4))
    assert bench.pauses == [HEARD_S]
    bench = Bench()
    growing = bench.doubling()
    taken = growing.begin(4)
    assert bench.store.grow(taken, taken.grown(2, taken.growth._replace(closing=True)))
    bench.clock.advance(LEASE_MS)
    growing.finish(growing.go_on())
    assert bench.pauses == []


def test_what_others_may_have_left_of_slots_that_were_split_is_removed() -> None:
    bench = Bench()
    bench.split_first(4)
    growing = bench.doubling()
    growing.finish(growing.go_on())
    assert bench.store.discarded[0] == 0
    assert bench.store.discarded[-1] == 1
    bench.split_first(8)
    growing = bench.doubling()
    growing.finish(growing.go_on())
    assert bench.store.discarded[:3] == [0, 1, 2]
    assert bench.topic.slots == 8


def test_it_gives_up_where_its_copies_are_gone_again_and_again() -> None:
    bench = Bench()
    growing = bench.doubling()
    topic = growing.begin(4)
    bench.store.refuses = True
    with pytest.raises(SlotsClosed):
        growing.finish(topic)
    assert bench.store.closes == TRIES
    assert bench.topic.slots == 2


def test_its_lease_lasts_while_it_waits_for_an_owner_and_is_not_renewed_at_each_look() -> None:
    bench = Bench()
    growing = bench.doubling()
    topic = growing.begin(4)
    bench.owned_for, looks = 100, 100
    growing.finish(topic)
    assert bench.owned_for < 0
    assert min(bench.left_ms) > LEASE_MS // 3
    assert bench.store.grows < looks // 5


def test_it_can_grow_to_half_of_what_a_topic_may_have() -> None:
    assert Bench(1).doubling().begin(MAX_SLOTS // 2).growth.target == MAX_SLOTS // 2
