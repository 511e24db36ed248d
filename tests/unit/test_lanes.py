"""A lane lets one delivery through at a time, in order."""

from __future__ import annotations

import threading
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.clock import VirtualClock
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.runtime.handler.retry_policy import Disposition
from qframe.runtime.order.batch_order import BatchOrder
from qframe.runtime.order.batches import Batches
from qframe.runtime.order.key_order import KeyOrder
from qframe.runtime.order.lanes import Lanes
from qframe.runtime.order.parked_keys import ParkedKeys
from qframe.runtime.order.settlement_order import One, SettlementOrder


def delivery(key: str | None, seq: int, receipt: str = "r", slot: int = 0) -> Delivery:
    return Delivery(f"m{seq}", key, None, b"1", slot=slot, subject=key, seq=seq, receipt=receipt)


@pytest.mark.promise(3, 4)
@pytest.mark.parametrize("by_slot", [False, True])
@given(
    places=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "c", None])), max_size=30
    ),
    data=st.data(),
)
def test_each_key_or_slot_has_at_most_one_delivery_through_and_keeps_its_order(
    by_slot: bool, places: list[tuple[int, str | None]], data: st.DataObject
) -> None:
    lanes = Lanes(by_subject=by_slot and data.draw(st.booleans()), by_slot=by_slot)
    lane_of = attrgetter("slot" if by_slot else "key")
    waiting = [delivery(key, seq, slot=slot) for seq, (slot, key) in enumerate(places)]
    through: list[Delivery] = []
    done: list[Delivery] = []
    while waiting or through:
        if waiting and (not through or data.draw(st.booleans())):
            size = data.draw(st.integers(1, len(waiting)))
            through += lanes.offer(waiting[:size])
            del waiting[:size]
        else:
            ended = data.draw(st.lists(st.sampled_from(through), min_size=1, unique_by=id))
            through = [one for one in through if one not in ended]
            done += ended
            through += lanes.free(ended)
        busy = [lane_of(each) for each in through if lane_of(each) is not None]
        assert len(busy) == len(set(busy))
    assert len(done) == len(places)
    for lane in {lane_of(each) for each in done} - {None}:
        seqs = [each.seq for each in done if lane_of(each) == lane]
        assert seqs == sorted(seqs)


def test_all_slots_of_a_serial_line_go_on_side_by_side() -> None:
    lanes = Lanes(by_subject=False, by_slot=True)
    offered = [delivery(key, seq, slot=seq % 4) for seq, key in enumerate(["a", None] * 4)]
    assert lanes.offer(offered) == offered[:4]
    assert lanes.free([offered[2]]) == [offered[6]]


def test_dropping_from_a_slots_lane_leaves_the_other_subjects_of_the_pull() -> None:
    lanes = Lanes(by_subject=True, by_slot=True)
    first, second, other = delivery("a", 1), delivery("a", 2), delivery("b", 3)
    third = delivery("a", 4, "later")
    assert lanes.offer([first, other, second, third]) == [first]
    assert lanes.drop(first) == [second]
    assert lanes.free([first]) == [other]
    assert lanes.free([other]) == [third]


def test_withdrawing_and_forgetting_leave_a_slots_lane_to_the_one_that_is_through() -> None:
    lanes = Lanes(by_subject=False, by_slot=True)
    first, second, third = (delivery(key, seq) for seq, key in enumerate("abc"))
    lanes.offer([first, second, third])
    lanes.forget({second})
    assert lanes.withdraw(lambda one: True) == [third]
    fourth = delivery("d", 4)
    assert lanes.offer([fourth]) == []
    assert lanes.free([first]) == [fourth]


def test_dropping_takes_what_waits_under_the_same_receipt_and_leaves_the_rest() -> None:
    lanes = Lanes(by_subject=True)
    first, second, other = delivery("a", 1), delivery("a", 2), delivery("a", 3, "later")
    assert lanes.offer([first, second, other]) == [first]
    assert lanes.drop(first) == [second]
    assert lanes.free([first]) == [other]
    assert lanes.free([other]) == []
    assert lanes.offer([delivery("a", 4)]) != []


def test_withdrawing_takes_what_waits_and_is_wanted_and_keeps_lanes_busy() -> None:
    lanes = Lanes(by_subject=False)
    first, second, third = (delivery("a", seq) for seq in (1, 2, 3))
    lanes.offer([first, second, third])
    assert lanes.withdraw(lambda one: one is second) == [second]
    fourth = delivery("a", 4)
    assert lanes.offer([fourth]) == []
    assert lanes.free([first]) == [third]
    assert lanes.free([third]) == [fourth]


def test_forgetting_takes_out_only_what_is_lost() -> None:
    lanes = Lanes(by_subject=False)
    first, second, third = (delivery("a", seq) for seq in (1, 2, 3))
    lanes.offer([first, second, third])
    lanes.forget({second})
    assert lanes.free([first]) == [third]


@pytest.mark.promise(3)
@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.RELEASE, Verdict.DEAD])
def test_what_waits_behind_one_that_the_store_parks_with_its_subject_goes_back_with_it(
    verdict: Verdict,
) -> None:
    gone: list[Delivery] = []
    order = KeyOrder(
        Lanes(by_subject=True), by_run=True, gone=gone.extend, put=lambda settlement: None
    )
    first, second, other = delivery("a", 1), delivery("a", 2), delivery("b", 3)
    order.offer([first, other, second], lambda _: None)
    order.end(Disposition(first, verdict))
    assert gone == ([] if verdict is Verdict.DEAD else [second])
    assert order.free([first]) == ([second] if verdict is Verdict.DEAD else [])


@pytest.mark.promise(3)
def test_what_is_given_back_behind_one_that_is_retried_meanwhile_is_told_first() -> None:
    first, second = delivery("a", 1), delivery("a", 2)
    told: list[tuple[Delivery, Verdict]] = []
    retrying = threading.Thread(target=lambda: order.end(Disposition(first, Verdict.RETRY)))

    def put(one: list[Delivery] | Disposition) -> None:
        assert isinstance(one, Disposition)
        told.append((one.delivery, one.verdict))

    def gone(_: list[Delivery]) -> None:
        if retrying.ident is None:  # the second one has left its lane, and is not put yet
            retrying.start()
            retrying.join(0.1)

    order = KeyOrder(Lanes(by_subject=True), by_run=True, gone=gone, put=put)
    order.offer([first, second], lambda _: None)
    assert order.give_back([], lambda _: True) == [second]
    retrying.join()
    assert told == [(second, Verdict.RELEASE), (first, Verdict.RETRY)]


@pytest.mark.promise(1)
@pytest.mark.parametrize("keeps_order", [False, True])
def test_what_left_the_lines_of_two_slots_at_one_offset_is_given_back_each_by_itself(
    keeps_order: bool,
) -> None:
    """One pull brings both, under one receipt; the store queues each under its offset."""
    told: list[tuple[Delivery, Verdict]] = []
    gone: list[Delivery] = []

    def put(one: list[Delivery] | Disposition) -> None:
        assert isinstance(one, Disposition)
        told.append((one.delivery, one.verdict))

    both = [
        Delivery(f"m{slot}", None, None, b"1", slot=slot, subject="7", seq=7, receipt="r")
        for slot in (0, 1)
    ]
    parked = ParkedKeys(lambda _: True) if keeps_order else None
    order = KeyOrder(
        Lanes(by_subject=False), by_run=False, parked=parked, gone=gone.extend, put=put
    )
    order.offer(both, lambda _: None)
    order.give_back(both, lambda _: False)
    assert told == [(one, Verdict.RELEASE) for one in both]
    assert gone == []


@pytest.mark.promise(6)
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_run_with_a_retried_dead_letter_behind_its_head_goes_back_from_its_head_on(
    is_refused: bool,
) -> None:
    """The dead letter has the lower number; to release it alone would leave the head leased."""
    told: list[list[Delivery] | Disposition] = []
    gone: list[Delivery] = []
    parked = ParkedKeys(lambda _: True)
    lanes = Lanes(by_subject=False)
    order = KeyOrder(lanes, by_run=False, parked=parked, gone=gone.extend, put=told.append)
    head, dead_letter = delivery("a", 4), delivery("a", 2)
    if is_refused:
        parked.park([delivery("a", 1)])
    order.offer([head, dead_letter], lambda _: None)
    if not is_refused:
        order.give_back([head], lambda _: True)
    [back] = told
    assert isinstance(back, Disposition)
    assert (back.delivery, back.verdict, gone) == (head, Verdict.RELEASE, [dead_letter])


@pytest.mark.promise(3)
def test_what_went_back_with_a_retried_one_of_its_run_is_not_given_back_again() -> None:
    first, second, third = (delivery("a", seq) for seq in (1, 2, 3))
    told: list[One] = []
    gone: list[Delivery] = []
    order = SettlementOrder(told.append, gone.extend)
    order.note([first, second, third])
    retry = Disposition(first, Verdict.RETRY)
    assert order.settle(first, retry) == [second, third]
    order.release([second, third])
    assert told == [retry]
    assert gone == [second, third]


@pytest.mark.promise(3)
def test_giving_back_one_of_a_run_takes_along_what_has_ended_behind_it() -> None:
    first, second, third = (delivery("a", seq) for seq in (1, 2, 3))
    told: list[One] = []
    gone: list[Delivery] = []
    order = SettlementOrder(told.append, gone.extend)
    order.note([first, second, third])
    order.settle(third, third)
    order.release([second])
    assert [(one.delivery, one.verdict) for one in told if isinstance(one, Disposition)] == [
        (second, Verdict.RELEASE)
    ]
    assert gone == [third]
    order.settle(first, first)
    assert told[1:] == [first]


def test_what_was_lost_before_it_came_in_holds_up_nothing_behind_it() -> None:
    lost, mine = delivery("a", 1), delivery("a", 2)
    batches = Batches(size=2, within_s=1.0, clock=VirtualClock(0), by_subject=True, by_slot=False)
    put: list[list[Delivery] | Disposition] = []
    handed: list[Delivery] = []
    order = BatchOrder(
        batches, in_turn=True, parked=None, matches=None, is_mine={mine}.__contains__,
        gone=lambda _: None, put=put.append, on_skipped=lambda _: None,
    )  # fmt: skip
    order.offer([lost, mine], handed.extend)
    assert handed == [mine]
    order.acknowledge([mine])
    assert put == [[mine]]
