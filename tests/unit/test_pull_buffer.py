"""A pull buffer: attempts wait there until somebody takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from eventually import eventually
from interrupting import interrupt, may_be_lost

from qframe.clock import SYSTEM_CLOCK
from qframe.message import Delivery
from qframe.runtime.demand import Demand
from qframe.runtime.executors.pull_buffer import PullBuffer
from qframe.runtime.handler.attempt import Attempt


class Work:
    """An engine that leaves attempts to their users, but for those that it refuses."""

    def __init__(self) -> None:
        self.refused: list[int] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def begins_in_s(self, _: Delivery) -> float:
        return 0.0

    def take_over(self, attempt: Attempt) -> bool:
        self.meanwhile()
        return attempt.delivery.seq not in self.refused


def attempt(number: int) -> Attempt:
    return Attempt(Delivery(f"m{number}", None, None, b"1", seq=number), cast("Any", None))


def test_an_attempt_is_in_hand_until_it_is_its_users() -> None:
    work = Work()
    buffer = PullBuffer(SYSTEM_CLOCK, work)
    first, second = attempt(1), attempt(2)
    seen: list[list[Attempt]] = []
    work.meanwhile = lambda: seen.append(buffer.in_hand())
    buffer.dispatch([first, second])
    assert buffer.take(None) is first
    assert seen == [[first]]
    assert buffer.in_hand() == []
    assert buffer.busy
    assert buffer.withdraw(lambda _: True) == [second]
    assert not buffer.busy


def test_one_that_is_not_this_workers_any_more_is_passed_over() -> None:
    work = Work()
    work.refused = [1]
    buffer = PullBuffer(SYSTEM_CLOCK, work)
    first, second = attempt(1), attempt(2)
    buffer.dispatch([first, second])
    assert buffer.take(None) is second
    assert not buffer.busy


def test_a_wait_ends_by_its_time_by_a_message_and_by_the_end() -> None:
    buffer = PullBuffer(SYSTEM_CLOCK, Work())
    assert buffer.take(0.0) is None
    taken: list[Any] = []
    waiting = threading.Thread(
        target=lambda: [taken.append(buffer.take(None)) for _ in range(2)], daemon=True
    )
    waiting.start()
    buffer.dispatch([attempt(1)])
    eventually(lambda: taken)
    buffer.stop()
    waiting.join(60)
    assert not waiting.is_alive()
    assert [each is None for each in taken] == [False, True]
    buffer.dispatch([attempt(2)])
    assert buffer.take(None) is None


def test_only_what_is_wanted_is_withdrawn_and_the_rest_keeps_its_order() -> None:
    buffer = PullBuffer(SYSTEM_CLOCK, Work())
    attempts = [attempt(number) for number in range(6)]
    buffer.dispatch(attempts)
    assert buffer.withdraw(lambda one: one.seq % 2 == 0) == attempts[::2]
    assert [buffer.take(None) for _ in range(3)] == attempts[1::2]


@may_be_lost
def test_a_signal_that_ends_a_take_leaves_the_buffer_to_others() -> None:
    buffer = PullBuffer(SYSTEM_CLOCK, Work())
    interrupt(lambda: buffer.take(0), 300)
    other = threading.Thread(target=buffer.stop, daemon=True)
    other.start()
    other.join(30)
    assert buffer.closed


# How much the pull of a loop of the user's own may read.


def test_as_many_are_read_as_are_wanted_and_cannot_be_taken_yet() -> None:
    demand = Demand()
    assert demand.room() == 0
    demand.until(10)
    assert demand.room() == 10
    demand.offer(7)
    assert demand.room() == 3
    demand.offer(5)
    assert demand.room() == 0
    demand.until(2)
    assert demand.room() == 0


def test_more_are_asked_for_each_time_that_a_pull_brings_nothing_to_take() -> None:
    demand = Demand()
    demand.until(3)
    rooms = []
    for _ in range(3):
        rooms.append(demand.room())
        demand.pulled()
    assert rooms == [3, 6, 12]
    demand.offer(1)
    assert demand.room() == 2
    assert demand.room() == 2, "nothing was pulled meanwhile"
    demand.pulled()
    assert demand.room() == 4
    demand.rests()
    assert demand.room() == 2


def test_what_is_taken_back_or_refused_is_read_anew_and_the_pull_loop_is_woken() -> None:
    demand, woken = Demand(), list[int]()
    demand.serve(lambda: woken.append(demand.room()))
    work = Work()
    work.refused = [0, 1]
    buffer = PullBuffer(SYSTEM_CLOCK, work, demand)
    demand.until(2)
    buffer.dispatch([attempt(0), attempt(1)])
    assert (woken, demand.room()) == ([2], 0)
    assert buffer.take(0.01) is None
    assert woken[-1] == 2
    buffer.dispatch([attempt(0), attempt(1)])
    buffer.withdraw(lambda one: one.seq == 1)
    assert (woken[-1], demand.room()) == (1, 1)
