"""A line's slots, between its membership and the store."""

from __future__ import annotations

import threading

import pytest
from contexts import context_of
from seated import Seated

from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.message import Delivery
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.model.store import ModelStore
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
        self.told: list[tuple[str, int]] = []
        events = Events()
        events.listen(lambda name, facts: self.told.append((name, facts["count"])))
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


def test_what_was_pulled_is_kept_where_nothing_has_changed(bench: Bench) -> None:
    bench.member.owns(s0=FIRST, s1=FIRST)
    assert bench.slots.open() == {0: FIRST, 1: FIRST}
    pulled = bench.has_in_hand(0, 1)
    assert bench.slots.still_owned(pulled) == pulled


@pytest.mark.promise(4)
def test_what_was_pulled_of_a_slot_that_has_gone_meanwhile_is_let_go(bench: Bench) -> None:
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    bench.member.on_change = lambda: None  # nothing is in flight yet that could be lost
    gone, kept = bench.has_in_hand(0, 1)
    bench.member.owns(s1=FIRST)
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


@pytest.mark.promise(4)
def test_what_was_pulled_of_a_slot_that_left_and_came_back_is_let_go(bench: Bench) -> None:
    """It is the same member's under another epoch: another one may have had it between."""
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    bench.member.on_change = lambda: None  # nothing is in flight yet that could be lost
    gone, kept = bench.has_in_hand(0, 1)
    bench.member.owns(s0=SECOND, s1=FIRST)
    assert bench.slots.still_owned([gone, kept]) == [kept]


@pytest.mark.promise(4)
def test_what_is_in_hand_of_a_slot_that_left_and_came_back_is_lost(bench: Bench) -> None:
    bench.member.owns(s0=FIRST, s1=FIRST)
    bench.slots.open()
    bench.has_in_hand(0, 1)
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
