"""How much may be in flight, and how a message that kills its worker is kept from the others."""

from __future__ import annotations

import pytest

from qframe.clock import VirtualClock
from qframe.message import Delivery
from qframe.runtime.flow.in_flight import InFlight, SlowStart


def delivery(seq: int, size: int = 1, lost: int = 0) -> Delivery:
    return Delivery(
        f"m{seq}", None, None, b"x" * size, seq=seq, receipt="r", attempt=1 + lost, lost=lost
    )


def in_flight(messages: int = 100, size: int = 1_000_000) -> tuple[InFlight, list[int]]:
    rung: list[int] = []
    return InFlight(max_messages=messages, max_bytes=size, on_room=lambda: rung.append(1)), rung


def test_room_is_what_is_left_and_none_where_it_is_not_worth_a_call() -> None:
    held, rung = in_flight(messages=100)
    assert held.room(1000) == 100
    first = [delivery(seq) for seq in range(40)]
    held.add(first)
    assert held.room(1000) == 60
    held.add([delivery(seq) for seq in range(40, 60)])
    assert held.room(1000) == 0
    assert not rung
    held.remove(first[:20])
    assert rung == [1]
    assert held.room(1000) == 60


def test_what_the_store_has_read_ahead_takes_room_and_never_all() -> None:
    held, _ = in_flight(size=1000)
    held.add([delivery(0, size=100)])
    held.ahead_bytes = 400
    assert held.room(5) == 5
    held.add([delivery(1, size=200)])  # so large are the next ones, too
    assert held.room(1) == 1
    held.ahead_bytes = 600
    assert held.room(1) == 0
    held.remove(list(held.deliveries))
    held.ahead_bytes = 1000
    assert held.room(1) == 1
    assert held.most_ahead_bytes == 125


def test_what_is_of_a_streams_line_is_counted_for_each_slot() -> None:
    held, _ = in_flight()
    there = [delivery(seq) for seq in (4, 2, 9)]
    there[2].slot, left_the_line = 1, delivery(1)
    left_the_line.subject = "1"
    held.add([*there, left_the_line])
    assert held.of_lines() == {0: 2, 1: 1}
    held.remove(there[1:])
    assert held.of_lines() == {0: 1}


def test_it_rings_as_soon_as_there_is_as_much_room_as_is_worth_a_call_and_once() -> None:
    held, rung = in_flight(messages=100)
    there = [delivery(seq) for seq in range(60)]
    held.add(there)
    assert held.room(1000) == 0
    held.remove(there[:9])
    assert not rung
    held.remove(there[9:10])
    assert rung == [1]
    held.remove(there[10:])
    assert rung == [1]


def test_the_slots_of_what_is_on_its_way_back_are_told_until_all_of_it_has_left() -> None:
    held, rung = in_flight()
    there = [delivery(seq) for seq in range(3)]
    there[2].slot = 1
    held.add(there[1:])
    held.note_given_back(there)
    assert held.returning == {0, 1}
    held.remove(there[:2])
    assert (held.returning, rung) == ({1}, [])
    held.remove(there[2:])
    assert (held.returning, rung) == (set(), [1])


def test_who_may_have_more_in_flight_is_asked_again() -> None:
    held, rung = in_flight(messages=10)
    held.add([delivery(seq) for seq in range(10)])
    assert held.room(1000) == 0
    held.resize(40)
    assert rung == [1]
    assert held.room(1000) == 30
    held.resize(None)
    assert held.room(1000) == 0


def test_bytes_bound_what_is_in_flight_but_one_message_is_always_let_through() -> None:
    held, _ = in_flight(size=1000)
    held.add([delivery(0, size=400)])
    assert held.room(10) == 1
    held.add([delivery(1, size=5000)])
    assert held.room(10) == 0
    held.remove(held.all())
    assert held.room(10) == 1


def test_bytes_of_what_is_settled_are_free_for_others() -> None:
    held, rung = in_flight(size=1000)
    there = [delivery(seq, size=400) for seq in range(2)]
    held.add(there)
    assert held.room(10) == 0
    held.remove(there[:1])
    assert (rung, held.room(10)) == ([1], 1)


def test_removing_answers_only_what_was_there() -> None:
    held, _ = in_flight()
    one, other = delivery(1), delivery(2)
    held.add([one])
    assert held.remove([one, other]) == [one]
    assert held.remove([one]) == []
    assert len(held) == 0


def test_who_waits_for_the_end_is_told_with_the_last_message_and_at_once_where_there_is_none() -> (
    None
):
    held, rung = in_flight(messages=9)
    batch = [delivery(0), delivery(1)]
    held.add(batch)
    held.await_end()
    held.remove(batch[:1])
    assert not rung
    held.remove(batch[1:])
    assert rung == [1]
    held.add(batch)
    held.remove(batch)
    assert rung == [1]
    held.await_end()
    assert rung == [1, 1]


@pytest.mark.promise(6)
def test_a_worker_begins_with_one_message_and_has_four_times_as_many_once_it_is_settled() -> None:
    held, _ = in_flight(messages=3000)
    slow_start = SlowStart(VirtualClock())
    allowed = []
    for round_ in range(5):
        room = slow_start.room(held, 1024)
        allowed.append(room)
        batch = [delivery(round_ * 1000 + number) for number in range(room)]
        held.add(batch)
        slow_start.note(batch)
        held.remove(batch)
    assert allowed == [1, 4, 16, 64, 256]


@pytest.mark.promise(6)
def test_slow_handlers_are_given_more_when_their_messages_were_survived() -> None:
    held, _ = in_flight(messages=3000)
    clock = VirtualClock()
    slow_start = SlowStart(clock)
    first = [delivery(0)]
    held.add(first)
    slow_start.note(first)
    assert slow_start.room(held, 1024) == 0
    clock.advance(50)
    assert [slow_start.room(held, 1024) for _ in range(3)] == [3, 3, 3]
    clock.advance(5000)
    assert slow_start.room(held, 1024) == 3  # nothing was put to the test since


@pytest.mark.promise(6)
def test_the_more_often_a_message_was_lost_the_fewer_may_be_beside_it() -> None:
    held, _ = in_flight(messages=3000)
    slow_start = SlowStart(VirtualClock())
    for _ in range(12):
        slow_start.note([delivery(0)])
        slow_start.room(held, 1024)
    assert slow_start.room(held, 1024) == 1024
    for lost, company in ((1, 256), (4, 32), (12, 1)):
        suspect = [delivery(100 + lost, lost=lost)]
        held.add(suspect)
        slow_start.note(suspect)
        assert slow_start.room(held, 1024) == company - 1
        held.remove(suspect)
        assert slow_start.room(held, 1024) == held.room(1024)
