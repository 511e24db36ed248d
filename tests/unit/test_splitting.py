"""A slot is split while others publish into it between any two calls of who splits it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any
from zlib import crc32

import pytest

from qframe.clock import VirtualClock
from qframe.outcomes import Outcome, Verdict
from qframe.producing.outgoing import Outgoing
from qframe.producing.producer import Producer
from qframe.stores.doubling import LEASE_MS, Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.stores.model.store import ModelStore
from qframe.stores.types import PullRequest, PullTerms, Settlement, SlotsClosed
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

    def __init__(self, kind: Any = "stream", slots: int = 1, **options: Any) -> None:
        self.clock = VirtualClock()
        self.store = Meanwhile(self.clock)
        self.topic = Topic("t", kind, slots, **options)
        self.store.declare(self.topic)
        self.store.subscribe(self.topic, "g")
        catalog: Any = Known()
        self.producer = Producer(
            self.store, catalog=catalog, max_body=1000, batch=100, clock=self.clock
        )

    def publish(self, name: str, **more: Any) -> Outcome:
        return self.producer.publish(self.topic, name, id=name, **more).outcome

    def settle(self, count: int, verdict: Verdict = Verdict.ACK) -> None:
        """Pulls so many, and ends them all in one way."""
        epochs = dict.fromkeys(self.topic.all_slots, f"{1:016x}")
        self.store.take(self.topic, "g", epochs)
        asks = [PullRequest(slot, epoch, count) for slot, epoch in epochs.items()]
        found = self.store.pull(self.topic, "g", asks, PullTerms("r", 60_000, 9)).deliveries
        self.store.settle(
            self.topic, "g",
            [Settlement(one.slot, one.subject, one.seq, one.receipt, 1, epochs[one.slot], verdict)
             for one in found],
        )  # fmt: skip

    def grow(self, slots: int = 2) -> Topic:
        """Doubles the slots, which nobody owns any more; afterwards producers know."""
        growing = Doubling(self.store, "t", owned=lambda *_: (), pause=lambda _: None)
        self.topic = growing.finish(growing.begin(slots))
        assert self.store.verify(self.topic) == []
        return self.topic

    def log(self) -> list[list[str]]:
        """The ids of the log, by slot."""
        return [
            [one.id for one in self.store.read_log(self.topic, slot, 0, 1000)]
            for slot in self.topic.all_slots
        ]


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


def test_all_pages_are_there_that_come_before_a_slot_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qframe.stores.splitting._PAGE", 2)
    bench = Bench()
    names = [f"m{number}" for number in range(9)]
    bench.store.before["close_slot"] = lambda: [bench.publish(name, key=name) for name in names]
    bench.grow()
    assert sorted(chain(*bench.log())) == names


def test_a_message_in_a_slot_that_its_basis_does_not_lead_to_goes_to_the_first_of_the_two() -> None:
    """As one that was published by a basis of its own, before its headers had that."""
    bench = Bench(slots=2)
    names = [f"m{number}" for number in range(16)]
    entries = [bench.producer.prepared(bench.topic, Outgoing(1, id=name))[1] for name in names]
    strays = {entry.id for entry in entries if entry.slot == 1}
    for entry in entries:
        entry.slot = 0
    bench.store.publish(bench.topic, entries)
    bench.grow(4)
    first, _, second, _ = map(set, bench.log())
    assert strays <= first
    assert second


def test_a_log_whose_beginning_is_gone_is_numbered_on_from_there() -> None:
    bench = Bench(retain=1)
    names = [f"m{number:02}" for number in range(12)]
    for name in names[:6]:
        bench.publish(name, key=name)
    bench.settle(2, Verdict.DEAD)
    bench.settle(4)
    bench.clock.advance(60_000)
    assert bench.store.sweep(bench.topic) > 0
    for name in names[6:]:
        bench.publish(name, key=name)
    bench.settle(3)
    bench.grow()
    assert sorted(chain(*bench.log())) == names[6:]
    slots = bench.store.stats(bench.topic)
    assert sum(one.todo for one in slots) == 3
    assert sum(one.settled for one in slots) == 7
    assert all(one.settled + one.dead <= (one.floor or 0) for one in slots)
    dead = bench.store.peek(bench.topic, "g", states=("dead",), limit=9)
    assert {record.id: record.seq for record in dead} == {"m00": 0, "m01": 1}


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_numbers_go_on_where_they_were(kind: str) -> None:
    bench = Bench(kind)
    for number in range(8):
        bench.publish(f"m{number}", key=f"k{number}")
    bench.settle(8)
    bench.grow()
    heads = [one.head for one in bench.store.stats(bench.topic)]
    if kind == "stream":
        assert heads == list(map(len, bench.log()))
    else:
        assert heads == [8, 8]


def test_what_left_the_line_alone_is_named_by_its_new_offset() -> None:
    bench = Bench()
    for number in range(8):
        bench.publish(f"m{number}", key=f"k{number}")
    bench.settle(8, Verdict.RETRY)
    bench.grow()
    records = bench.store.peek(bench.topic, "g", states=("todo", "waiting"), limit=100)
    assert len(records) == 8
    assert all(record.subject == str(record.seq) for record in records)
    assert {record.id: (record.slot, record.seq) for record in records} == {
        name: (slot, place)
        for slot, names in zip(bench.topic.all_slots, bench.log(), strict=True)
        for place, name in enumerate(names)
    }


def test_marks_that_pass_while_a_slot_is_split_are_no_sign_of_a_store_that_forgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qframe.stores.doubling.TRIES", 1)
    bench = Bench(dedupe_window=1)
    bench.publish("first", key="k")

    def pass_time() -> None:
        bench.clock.advance(2000)
        assert bench.store.sweep(bench.topic) > 0

    bench.store.before["close_slot"] = pass_time
    bench.grow()
    assert bench.publish("first", key="k") is Outcome.STORED


def test_what_a_group_has_settled_counts_in_the_half_that_had_it() -> None:
    bench = Bench()
    names = [f"m{number}" for number in range(20)]
    of_first, of_second = ([n for n in names if crc32(n.encode()) % 2 == half] for half in (0, 1))
    for name in [of_first[0], *of_second[:5]]:
        bench.publish(name, key=name)
    bench.settle(1, Verdict.DEAD)
    bench.settle(4)
    bench.store.drop_dead(bench.topic, "g")
    bench.grow()
    assert [(one.settled, one.cancelled) for one in bench.store.stats(bench.topic)] == [
        (0, 1), (4, 0),
    ]  # fmt: skip


def test_a_group_that_is_dropped_while_slots_are_split_holds_up_nothing() -> None:
    """The split asked who owns its slot, or for what it has queued, and the growth failed."""
    bench = Bench("ordered")
    store, topic = bench.store, bench.topic
    for name in ("owned", "queued"):
        store.subscribe(topic, name)
    bench.publish("a", key="a")

    def owners_of(topic: Topic, group: str) -> Any:
        if group == "owned":
            store.drop_group(topic, group)
        roster = store.roster(topic, group)
        assert roster is not None
        return roster.owners

    store.before["section"] = lambda: store.drop_group(topic, "queued")
    growing = Doubling(
        store, "t", owned=owners_of, pause=lambda _: None, max_pause_s=1.0,
        monotonic_s=bench.clock.monotonic_s,
    )  # fmt: skip
    bench.topic = growing.finish(growing.begin(2))
    assert store.groups(bench.topic) == ["g"]
    bench.settle(9)
    [settled] = {one.settled for one in store.stats(bench.topic) if one.settled}
    assert settled == 1
