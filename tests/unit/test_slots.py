"""A line's slots, between its membership and the store."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from contexts import context_of
from growth import closes, grows, splits
from late import Late
from seated import Seated

from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.message import Delivery
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry
from qframe.topic import Topic

FIRST, SECOND, THIRD = (f"{number:016x}" for number in (1, 2, 3))
TOPIC = Topic("t", slots=2)


class Bench:
    """Slots on a store, with a membership that does as it is told."""

    def __init__(self) -> None:
        self.store = ModelStore()
        self.store.declare(TOPIC)
        self.store.subscribe(TOPIC, "g")
        self.member = Seated()
        self.in_flight = InFlight(max_messages=9, max_bytes=9999, on_room=lambda: None)
        self.lost: list[str] = []
        self.rung = 0
        self.told: list[tuple[str, int | list[int]]] = []
        events = Events()
        events.listen(
            lambda name, facts: self.told.append((name, facts.get("count", facts["slots"])))
        )
        self.slots = Slots(
            context_of(TOPIC, events=events), store=self.store, busy=self.in_flight.slots,
            give_back=lambda slots: None, on_lost=self._lose, on_change=self._ring,
        )  # fmt: skip
        coordinator = self.member
        self.slots.join(coordinator)  # type: ignore[arg-type]

    def meanwhile(self) -> None:
        """What another thread does while slots are lost."""

    def _lose(self, slots: set[int]) -> None:
        self.meanwhile()
        deliveries = self.in_flight.of(slots)
        self.lost += sorted(one.id for one in self.in_flight.remove(deliveries))

    def _ring(self) -> None:
        self.rung += 1

    def has_in_hand(self, *slots: int) -> list[Delivery]:
        """Deliveries of these slots that were just pulled."""
        deliveries = [Delivery(f"m{slot}", None, None, b"1", slot=slot) for slot in slots]
        self.in_flight.add(deliveries)
        return deliveries


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.promise(4)
@pytest.mark.parametrize("back", [{}, {"s0": SECOND}], ids=["gone", "back"])
def test_what_was_pulled_of_a_slot_that_has_gone_meanwhile_is_let_go(
    bench: Bench, back: dict[str, str]
) -> None:
    """One that is back is so under another epoch: another member may have had it between."""
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    bench.member.on_change = lambda: None  # nothing is in flight yet that could be lost
    gone, kept = bench.has_in_hand(0, 1)
    assert bench.slots.still_owned([gone, kept]) == [gone, kept]
    bench.member.owns(s1=FIRST, **back)
    assert bench.slots.still_owned([gone, kept]) == [kept]


@pytest.mark.promise(3, 4)
def test_what_is_pulled_of_a_slot_that_is_taken_anew_is_not_lost_with_what_was_pulled_before(
    bench: Bench,
) -> None:
    bench.member.owns(s0=FIRST)
    bench.slots.open()
    bench.has_in_hand(0)
    new = Delivery("new", None, None, b"1", slot=0)

    def take_anew() -> None:
        bench.slots.open()
        bench.in_flight.add([new])

    def meanwhile() -> None:
        bench.member.on_change = lambda: None
        bench.member.owns(s0=SECOND)
        other.start()
        other.join(0.2)  # as long as this thread loses, it waits; without that it were through

    other = threading.Thread(target=take_anew)
    bench.meanwhile = meanwhile  # type: ignore[method-assign]
    bench.member.owns()
    other.join(60)
    assert bench.lost == ["m0"]
    assert bench.in_flight.deliveries == {new}
    assert bench.slots.open() == {0: SECOND}


@pytest.mark.promise(3, 4)
@pytest.mark.parametrize("is_heard", [True, False])
def test_what_is_in_hand_of_a_slot_that_left_and_came_back_is_lost(
    bench: Bench, is_heard: bool
) -> None:
    """The thread that took the slot away may not have got to say so when it is there again."""
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    bench.has_in_hand(0, 1)
    if not is_heard:
        bench.member.on_change = lambda: None
    bench.member.owns(s0=SECOND, s1=FIRST)
    assert bench.slots.open() == {0: SECOND, 1: FIRST}
    assert bench.lost == ["m0"]
    assert bench.told == [("slot.taken", 2), ("slot.lost", 1), ("slot.taken", 1)]


def test_a_slot_that_is_lost_between_its_claim_and_its_taking_is_told_of_at_once(
    bench: Bench,
) -> None:
    bench.member.owns(s0=FIRST, s1=FIRST)
    take = bench.store.take

    def late(topic: Topic, group: str, epochs: dict[int, str]) -> list[int]:
        taken = take(topic, group, epochs)
        bench.member.owns(s1=FIRST)
        return taken

    bench.store.take = late  # type: ignore[method-assign, assignment]
    bench.has_in_hand(0)
    bench.slots.open()
    assert bench.lost == ["m0"]
    assert bench.told == [("slot.taken", 2), ("slot.lost", 1)]


def test_a_slot_that_is_refused_is_given_up_and_nothing_is_pulled(bench: Bench) -> None:
    bench.store.take(TOPIC, "g", {0: THIRD})
    bench.member.owns(s0=SECOND, s1=SECOND)
    assert bench.slots.open() == {}
    assert bench.member.refused == [0]
    bench.member.owns(s1=SECOND)
    assert bench.slots.open() == {1: SECOND}


def test_slots_that_cannot_be_taken_now_are_tried_again_and_the_others_are_open(
    bench: Bench,
) -> None:
    bench.member.owns(s0=FIRST)
    assert bench.slots.open() == {0: FIRST}
    take = bench.store.take

    def away(*_: object) -> list[int]:
        raise StoreUnavailable("store", "away")

    bench.store.take = away  # type: ignore[method-assign, assignment]
    bench.member.owns(s0=FIRST, s1=FIRST)
    assert bench.slots.open() == {0: FIRST}
    assert bench.slots.lacks
    bench.store.take = take  # type: ignore[method-assign]
    assert bench.slots.open() == {0: FIRST, 1: FIRST}
    assert not bench.slots.lacks


@pytest.mark.promise(4)
def test_slots_that_leave_are_open_no_more_and_are_told_of_once_nothing_is_in_hand(
    bench: Bench,
) -> None:
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    [one] = bench.has_in_hand(0)
    bench.member.owns(s0=FIRST, s1=FIRST, leaving=[0, 1])
    assert bench.slots.open() == {}
    assert bench.member.empty == [1]
    bench.in_flight.remove([one])
    bench.slots.drain()
    assert bench.member.empty[1:] == [0, 1]
    bench.member.owns()
    bench.slots.open()
    assert bench.lost == []
    assert bench.told[-1] == ("slot.left", 2)


def test_slots_that_were_left_are_not_told_as_lost_by_who_sees_it_first(bench: Bench) -> None:
    """The pull loop may look while the membership has not told yet: found by simulation."""
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    bench.member.owns(s0=FIRST, s1=FIRST, leaving=[1])
    bench.slots.open()
    bench.member.on_change = lambda: None  # its thread has no turn yet
    bench.member.owns(s0=FIRST)
    bench.slots.open()
    assert bench.told[-1] == ("slot.left", 1)


def test_a_store_that_has_forgotten_who_took_what_is_told_again(bench: Bench) -> None:
    bench.member.owns(s0=FIRST)
    bench.slots.open()
    bench.store.drop_group(TOPIC, "g")
    bench.store.subscribe(TOPIC, "g")
    bench.slots.forget()
    assert bench.slots.open() == {0: FIRST}
    assert bench.store.epochs(TOPIC, "g")[0] == FIRST


def test_a_membership_hears_once_of_each_step_of_growth_and_of_none_that_is_older(
    bench: Bench,
) -> None:
    closing = closes(TOPIC)
    split = splits(closing)
    for topic in (TOPIC, closing, closing, split, closing, split):
        bench.slots.share(topic)
    assert bench.member.shared == [TOPIC, closing, split]
    assert bench.slots.topic == split
    assert bench.told == [("topic.grown", [1, 2, 4])]


def test_a_growth_that_the_store_has_forgotten_is_taken_back(bench: Bench) -> None:
    closing = closes(TOPIC)
    split = splits(closing)
    bench.slots.share(split)
    bench.slots.share(TOPIC, closing)  # asked before: the read took its time
    assert bench.slots.topic is split
    bench.slots.share(TOPIC, split)
    assert bench.slots.topic is TOPIC
    bench.slots.share(TOPIC, TOPIC)  # the membership may have read more by itself
    assert bench.member.shared == [split, TOPIC]
    assert bench.told == [("topic.grown", [1, 2, 4]), ("topic.grown", [0, 1])]


def test_who_joins_while_its_topic_grows_shares_the_slots_that_it_has_by_then(
    bench: Bench,
) -> None:
    grown = closes(TOPIC)
    member = Seated()

    def join(topic: Topic, group: str, **options: object) -> Seated:
        slots.share(grown)
        return member

    slots = Slots(
        context_of(TOPIC), store=bench.store, busy=set, give_back=lambda slots: None,
        on_lost=lambda slots: None, on_change=lambda: None,
    )  # fmt: skip
    slots.join(SimpleNamespace(join=join))  # type: ignore[arg-type]
    assert member.shared == [grown]


def test_a_topic_that_was_declared_anew_is_shared_as_it_is_now(bench: Bench) -> None:
    bench.slots.share(splits(closes(TOPIC)))
    bench.slots.forget(TOPIC)
    assert bench.slots.topic is TOPIC
    assert bench.member.shared[-1] is TOPIC


@pytest.mark.promise(1)
def test_a_message_in_a_slot_that_came_meanwhile_is_work(bench: Bench) -> None:
    late = Late(bench.store)
    slots = Slots(
        context_of(TOPIC), store=late, busy=set, give_back=lambda slots: None,  # type: ignore
        on_lost=lambda slots: None, on_change=lambda: None,
    )  # fmt: skip
    assert not slots.have_work(drained=False)

    def split() -> None:
        topic = grows(bench.store, grows(bench.store, TOPIC))
        bench.store.publish(topic, [Entry(4, None, "m", "m", None, None, b"1")])

    late.after("stats", split)  # what it has counted knew of no other slots
    assert slots.have_work(drained=False)
    assert slots.topic.all_slots == [1, 2, 4]
