"""What a pull asks of each slot, whatever earlier pulls have found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.message import Delivery
from qframe.runtime.feed.ask_planner import (
    DEEP_AT_ONCE,
    QUICK_S,
    WORTH_TURNS,
    AskPlanner,
    Turns,
)
from qframe.stores.types import QUIET, PullRequest, PullResult

EPOCH = f"{1:016x}"
slots = st.sets(st.integers(0, 40), min_size=1, max_size=30)
rooms = st.integers(1, 3000)
depths = st.lists(st.sampled_from([0, 1, QUIET, 10**6]), min_size=41, max_size=41)


def planner_of(owned: set[int], *, subjects: bool = False, turn: int = 0) -> AskPlanner:
    planner = AskPlanner(has_subjects=subjects, turn=turn)
    planner.own(dict.fromkeys(sorted(owned), EPOCH))
    return planner


def pulled_by(asks: Sequence[PullRequest], depths: Sequence[int]) -> PullResult:
    """The reply of a store whose slots have so many messages each, or more than are asked."""
    pulled = PullResult()
    pulled.deliveries = [
        Delivery(f"{ask.slot}-{seq}", None, None, b"", slot=ask.slot, seq=seq)
        for ask in asks
        for seq in range(min(depths[ask.slot], ask.limit))
    ]
    return pulled


@given(slots, rooms, depths, st.integers(0, 99), st.booleans(), st.data())
def test_a_plan_fits_the_room_and_asks_owned_slots_once_each(
    owned: set[int], room: int, depths: list[int], turn: int, subjects: bool, data: st.DataObject
) -> None:
    left_out = data.draw(st.sets(st.integers(0, 40), max_size=5))
    planner = planner_of(owned, subjects=subjects, turn=turn)
    for _ in range(3):
        asks = planner.plan(room, left_out)
        asked = [ask.slot for ask in asks]
        assert len(set(asked)) == len(asked)
        assert set(asked) <= owned - left_out
        assert bool(asks) == bool(owned - left_out)
        assert sum(ask.limit for ask in asks) <= room
        assert all(ask.limit >= 1 and ask.epoch == EPOCH for ask in asks)
        planner.note(asks, pulled_by(asks, depths))


def test_each_slot_of_a_stream_is_told_how_far_its_owner_is_and_how_much_it_has_in_hand() -> None:
    planner = planner_of({0, 1, 2})
    asks = planner.plan(300, in_hand=Counter())
    assert [(ask.position, ask.in_hand) for ask in asks] == [(0, 0)] * 3
    planner.note(asks, pulled_by(asks, [5, 7, 0]))
    asks = planner.plan(300, in_hand=Counter([0, 0, 1]))
    places = {ask.slot: (ask.position, ask.in_hand) for ask in asks}
    assert places == {0: (5, 2), 1: (7, 1), 2: (0, 0)}
    assert {ask.in_hand for ask in planner.plan(300)} == {None}, "nobody has counted"


@given(slots, rooms, depths, st.integers(0, 99), st.booleans())
def test_every_slot_is_asked_again_and_again(
    owned: set[int], room: int, depths: list[int], turn: int, subjects: bool
) -> None:
    planner = planner_of(owned, subjects=subjects, turn=turn)
    for _ in range(3):
        missing = set(owned)
        for _ in range(2 * len(owned)):
            asks = planner.plan(room)
            planner.note(asks, pulled_by(asks, depths))
            missing -= {ask.slot for ask in asks}
        assert not missing


@given(st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=40, max_size=60), st.data())
def test_whoever_can_be_chosen_often_enough_has_a_turn(
    offered: list[set[int]], data: st.DataObject
) -> None:
    """A place in a list would pass some over for ever, where the list changes."""
    turns, most = Turns(data.draw(st.integers(0, 30))), data.draw(st.integers(1, 31))
    waits = Counter[int]()
    for numbers in offered:
        taken = turns.take(sorted(numbers), most)
        assert len(taken) == min(most, len(numbers))
        assert set(taken) <= numbers
        waits = Counter({number: waits[number] + 1 for number in numbers - set(taken)})
        assert max(waits.values(), default=0) <= 31


@pytest.mark.promise(7)
@pytest.mark.parametrize("subjects", [False, True])
@pytest.mark.parametrize("many", [16, 256, 1024, 4096])
def test_a_backlog_over_any_number_of_slots_is_pulled_by_as_many_asks(
    many: int, subjects: bool
) -> None:
    """Each pull took one slot of them and asked all empty ones again; the last ones got nothing."""
    room, now_s = 1024 if subjects else 3000, 0.0
    planner = planner_of(set(range(many)), subjects=subjects)
    depths = [10_000 // many + 1] * many
    left, asked = sum(depths), 0
    while left:
        now_s += 0.001
        asks = planner.plan(room, now_s=now_s)
        pulled = pulled_by(asks, depths)
        planner.note(asks, pulled)
        for one in pulled.deliveries:
            depths[one.slot] -= 1
        left -= len(pulled.deliveries)
        asked += len(asks)
        assert asked <= 4 * many + 2000, left


def test_drained_slots_are_asked_while_others_have_much() -> None:
    """What comes into one of 4,096 waits for some pulls at most, though one has a backlog."""
    planner = planner_of(set(range(4096)))
    depths = [0] * 4095 + [10**9]
    asked, got = Counter[int](), 0
    for _ in range(60):
        asks = planner.plan(3000)
        pulled = pulled_by(asks, depths)
        planner.note(asks, pulled)
        asked.update([ask.slot for ask in asks])
        got += len(pulled.deliveries)
    assert min(asked[slot] for slot in range(4096)) >= 2
    assert got > 60 * 1200


def test_a_slot_that_had_more_gets_most_of_the_room() -> None:
    planner = planner_of({0, 1, 2, 3})
    first = planner.plan(400)
    assert [ask.limit for ask in first] == [100] * 4
    planner.note(first, pulled_by(first, [0, 10**6, 0, 0]))
    limits = {ask.slot: ask.limit for ask in planner.plan(400)}
    assert limits == {0: 16, 1: 352, 2: 16, 3: 16}


def test_deep_slots_of_a_stream_take_turns_and_those_of_subjects_do_not() -> None:
    many = set(range(2 * DEEP_AT_ONCE))
    room = WORTH_TURNS
    for subjects, at_once in ((False, DEEP_AT_ONCE), (True, 2 * DEEP_AT_ONCE)):
        planner = planner_of(many, subjects=subjects)
        asks = planner.plan(room)
        planner.note(asks, pulled_by(asks, [10**6] * len(many)))
        halves = [{ask.slot for ask in planner.plan(room)} for _ in range(2)]
        assert [len(half) for half in halves] == [at_once] * 2
        assert halves[0] | halves[1] == many


@given(st.floats(0.001, 0.9) | st.floats(1.1, 10))
def test_deep_slots_are_asked_one_by_one_while_handlers_are_quick(each: float) -> None:
    """A pull costs a slot the same; slow handlers need the keys of more slots."""
    many = set(range(2 * DEEP_AT_ONCE))
    planner = planner_of(many)
    asks = planner.plan(WORTH_TURNS, now_s=0.0)
    now_s = 0.0
    planner.note(asks, pulled_by(asks, [10**6] * len(many)))
    assert len(planner.plan(WORTH_TURNS, now_s=now_s)) in (DEEP_AT_ONCE, 1)
    asked: set[int] = set()
    for _ in range(2 * len(many)):
        now_s += WORTH_TURNS * QUICK_S * each
        asks = planner.plan(WORTH_TURNS, now_s=now_s)
        assert len(asks) == (1 if each < 1 else DEEP_AT_ONCE)
        asked |= {ask.slot for ask in asks}
        planner.note(asks, pulled_by(asks, [10**6] * len(many)))
    assert asked == many


@given(slots, rooms, st.data())
def test_only_slots_that_the_bell_rang_for_are_asked_if_any_of_them_is_owned(
    owned: set[int], room: int, data: st.DataObject
) -> None:
    planner = planner_of(owned)
    rung = data.draw(st.frozensets(st.integers(0, 40)))
    planner.woken(rung)
    asked = {ask.slot for ask in planner.plan(room)}
    assert asked <= ((rung & owned) or owned)


@given(slots, rooms, depths, st.data())
def test_a_slot_that_the_bell_rang_for_alone_is_asked_for_all_that_fits(
    owned: set[int], room: int, depths: list[int], data: st.DataObject
) -> None:
    planner = planner_of(owned)
    asks = planner.plan(room)
    planner.note(asks, pulled_by(asks, depths))
    slot = data.draw(st.sampled_from(sorted(owned)))
    planner.woken(frozenset({slot}))
    assert [(ask.slot, ask.limit) for ask in planner.plan(room)] == [(slot, room)]
    assert slot not in {ask.slot for ask in planner.plan(room, {slot})}


@given(slots, st.integers(1, 8), st.lists(st.none() | st.integers(1, 9000), min_size=90))
def test_all_is_quiet_once_every_slot_was_and_then_the_first_due_time_is_known(
    owned: set[int], room: int, dues: list[int | None]
) -> None:
    planner = planner_of(owned)
    asked: set[int] = set()
    seen: list[int] = []
    for due_ms in dues:
        asks = planner.plan(room)
        asked |= {ask.slot for ask in asks}
        seen += [] if due_ms is None else [due_ms]
        quiet = planner.all_quiet(asks, PullResult(next_due_ms=due_ms), now_s=1.0)
        assert quiet == (asked == owned)
        assert planner.due_s == (1.0 + min(seen) / 1000 if seen else None)
        if quiet:
            return
    raise AssertionError("some slot was never asked")


@given(slots)
def test_a_slot_that_is_left_out_keeps_nothing_awake(owned: set[int]) -> None:
    planner = planner_of(owned)
    left_out = {min(owned)}
    asks = planner.plan(100, left_out)
    assert planner.all_quiet(asks, PullResult(), now_s=0.0, left_out=left_out)


def test_positions_are_those_of_the_epoch_and_are_forgotten_with_the_group() -> None:
    planner = planner_of({0})
    asks = planner.plan(10)
    planner.note(asks, pulled_by(asks, [3]))
    assert [ask.position for ask in planner.plan(10)] == [3]
    planner.own({0: f"{2:016x}"})
    assert [ask.position for ask in planner.plan(10)] == [0]
    planner.own({0: EPOCH})
    assert [ask.position for ask in planner.plan(10)] == [3]
    planner.forget()
    assert [ask.position for ask in planner.plan(10)] == [0]
