"""Batches are gathered by size or time, and keep what a lane promises: order, and one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qframe.clock import SYSTEM_CLOCK
from qframe.message import Delivery
from qframe.runtime.executors.batch_executor import BatchWorker
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.order.batches import Batches

LONG_S = 3600.0


class Line:
    topic = "t"
    group = "g"

    def acknowledge(self, *_: object) -> None: ...
    def extend(self, *_: object) -> None: ...


class StandingClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


def message(key: str | None, seq: int, slot: int = 0) -> Attempt:
    return Attempt(Delivery(f"m{seq}", key, None, b"1", slot=slot, subject=key, seq=seq), Line())


def batches_of(size: int, clock: StandingClock | None = None, *, by_slot: bool = False) -> Batches:
    return Batches(
        size=size, within_s=LONG_S, by_subject=False, by_slot=by_slot,
        clock=clock or StandingClock(),
    )  # fmt: skip


def taken(batches: Batches, *, full_only: bool = False) -> list[Attempt]:
    hand = BatchWorker()
    return hand.next_part() if batches.take_now(hand, full_only=full_only) else []


def seqs(messages: list[Attempt]) -> list[int]:
    return [each.delivery.seq for each in messages]


def test_a_batch_is_full_with_its_size_and_the_next_one_opens() -> None:
    batches = batches_of(3)
    batches.add([message(None, seq) for seq in range(7)])
    assert seqs(taken(batches, full_only=True)) == [0, 1, 2]
    assert seqs(taken(batches, full_only=True)) == [3, 4, 5]
    assert taken(batches, full_only=True) == []
    assert seqs(taken(batches)) == [6]
    assert len(batches) == 0


def test_messages_of_a_key_that_come_while_a_batch_is_open_go_along_in_order() -> None:
    batches = batches_of(10)
    batches.add([message("a", 0), message("b", 1), message("a", 2)])
    batches.add([message("a", 3)])
    assert seqs(taken(batches)) == [0, 1, 2, 3]


def test_a_key_in_one_batch_keeps_its_others_out_of_the_next_until_all_of_it_is_through() -> None:
    batches = batches_of(2)
    batches.add([message("a", 0), message("a", 1), message("a", 2), message("a", 3)])
    first = taken(batches)
    assert seqs(first) == [0, 1]
    assert taken(batches) == []
    batches.free([first[0].delivery])
    assert taken(batches) == []
    batches.free([first[1].delivery])
    assert seqs(taken(batches)) == [2, 3]


def test_the_lanes_of_a_serial_consumer_are_slots() -> None:
    batches = batches_of(2, by_slot=True)
    batches.add([message("a", 0, 1), message("b", 1, 1), message("c", 2, 1), message("d", 3, 2)])
    assert seqs(taken(batches)) == [0, 1]
    assert seqs(taken(batches)) == [3]


def test_a_paused_message_keeps_those_behind_it_and_comes_before_them() -> None:
    clock = StandingClock()
    batches = batches_of(10, clock)
    a0, a1, b2, a3 = message("a", 0), message("a", 1), message("b", 2), message("a", 3)
    batches.add([a0, a1, b2])
    assert seqs(taken(batches)) == [0, 1, 2]
    batches.pause(a0, 5.0)
    batches.add([a3])
    assert batches.held([a1, b2]) == [a1]
    batches.pause(a1, 0)
    assert batches.resume() == 5.0
    assert taken(batches) == []
    clock.now_s = 5.0
    assert batches.resume() is None
    assert seqs(taken(batches)) == [0, 1, 3]


def test_what_is_withdrawn_is_in_no_batch_any_more_and_frees_its_lane() -> None:
    batches = batches_of(2)
    batches.add([message("a", 0, 1), message("b", 1, 2), message("a", 2, 1), message("c", 3, 2)])
    batches.add([message("b", 4, 2)])
    gone = batches.withdraw(lambda one: one.slot == 1)
    assert seqs(gone) == [0, 2]
    assert len(batches) == 3
    assert seqs(taken(batches)) == [1]
    assert seqs(taken(batches)) == [3]


def test_what_stands_before_one_in_hand_is_not_withdrawn_until_that_one_is_set_aside() -> None:
    clock = StandingClock()
    batches = batches_of(10, clock)
    a0, a1, a2, a3, b4 = (message(key, seq) for seq, key in enumerate("aaaab"))
    batches.add([a0, a1, a2])
    assert seqs(taken(batches)) == [0, 1, 2]
    batches.add([a3, b4])
    batches.pause(a0, 1.0)
    batches.pause(a1, 0)
    assert seqs(batches.withdraw(lambda _: True, [a2.delivery])) == [4, 3]
    assert batches.held([a2]) == [a2]
    clock.now_s = 1.0
    batches.resume()
    assert batches.withdraw(lambda _: True, [a2.delivery]) == []
    assert batches.held([a2]) == [a2]
    batches.pause(a2, 0)
    assert seqs(batches.withdraw(lambda _: True)) == [0, 1, 2]
    assert len(batches) == 0


def test_a_thread_gets_what_was_gathered_when_its_time_has_come() -> None:
    batches = Batches(size=100, within_s=0.01, by_subject=False, by_slot=False, clock=SYSTEM_CLOCK)
    batches.add([message(None, 0), message(None, 1)])
    hand = BatchWorker()
    assert batches.take(hand)
    assert seqs(hand.next_part()) == [0, 1]


@pytest.mark.parametrize(
    ("wake", "found"),
    [
        (lambda batches: batches.add([message(None, 1)]), [0, 1]),
        (lambda batches: batches.close_open(), [0]),
        (None, None),
    ],
)
def test_a_thread_that_waits_is_woken_by_a_full_batch_by_haste_and_when_it_is_to_go(
    wake: Callable[[Batches], None] | None, found: list[int] | None
) -> None:
    batches = Batches(size=2, within_s=LONG_S, by_subject=False, by_slot=False, clock=SYSTEM_CLOCK)
    batches.add([message(None, 0)])
    answers: list[list[int] | None] = []
    is_to_go = threading.Event()

    def wait() -> None:
        hand = BatchWorker()
        is_given = batches.take(hand, unless=is_to_go.is_set)
        answers.append(seqs(hand.next_part()) if is_given else None)

    thread = threading.Thread(target=wait)
    thread.start()
    if wake is not None:
        wake(batches)
    else:
        is_to_go.set()
        batches.wake_all()
    thread.join(60)
    assert answers == [found]


KEYS = st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40)


@settings(max_examples=75, deadline=None)
@given(KEYS, st.integers(1, 6), st.data())
def test_whatever_pauses_and_ends_a_lane_is_one_batch_at_a_time_and_in_order(
    keys: list[str | None], size: int, data: st.DataObject
) -> None:
    clock = StandingClock()
    batches = batches_of(size, clock)
    coming = [message(key, seq) for seq, key in enumerate(keys)]
    hands: list[list[Attempt]] = []
    held: list[Attempt] = []  # in their users' hands
    done: list[int] = []
    by_seq = dict(enumerate(keys))

    def work_on(hand: list[Attempt]) -> None:
        """One message of a batch ends, pauses, goes back, or is taken over by its user."""
        one = hand.pop(0)
        if batches.held([one]):
            batches.pause(one, 0)
            return
        busy = [each.key for other in hands if other is not hand for each in started(other)]
        assert one.key is None or one.key not in busy
        ahead = [each for each in held if each.key == one.key and one.key is not None]
        fate = data.draw(st.sampled_from(["end", "end", "pause", "keep"]))
        if fate == "pause":
            batches.pause(one, clock.now_s + data.draw(st.integers(0, 3)))
        elif fate == "keep" or ahead:
            held.append(one)
        else:
            done.append(one.delivery.seq)
            batches.free([one.delivery])

    def started(hand: list[Attempt]) -> list[Attempt]:
        waiting = set(batches.held(hand))
        return [each for each in hand if each not in waiting]

    while coming or hands or held or len(batches):
        step = data.draw(st.integers(0, 4))
        if step == 0 and coming:
            count = data.draw(st.integers(1, len(coming)))
            batches.add(coming[:count])
            del coming[:count]
        elif step == 1 and hands:
            hand = hands[data.draw(st.integers(0, len(hands) - 1))]
            work_on(hand)
            hands = [each for each in hands if each]
        elif step == 2 and held:
            one = held.pop(0)
            done.append(one.delivery.seq)
            batches.free([one.delivery])
        elif step == 3:
            clock.now_s += 1
            batches.resume()
        elif batch := taken(batches):
            assert len(batch) <= size
            hands.append(list(batch))
    assert sorted(done) == list(range(len(keys)))
    for key in ("a", "b", "c"):
        order = [seq for seq in done if by_seq[seq] == key]
        assert order == sorted(order)
