"""A demand: how much the pull of a loop of the user's own may read."""

from __future__ import annotations

from qframe.clock import SYSTEM_CLOCK
from qframe.message import Delivery
from qframe.runtime.demand import Demand
from qframe.runtime.executors.pull_buffer import PullBuffer
from qframe.runtime.handler.attempt import Attempt


class Refusing:
    """An engine that leaves nothing to anybody."""

    def begins_in_s(self, _: Delivery) -> float:
        return 0.0

    def take_over(self, _: Attempt) -> bool:
        return False


def attempts(count: int) -> list[Attempt]:
    return [
        Attempt(Delivery(f"m{seq}", None, None, b"1", seq=seq), None)  # type: ignore[arg-type]
        for seq in range(count)
    ]


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
    buffer = PullBuffer(SYSTEM_CLOCK, Refusing(), demand)
    demand.until(2)
    buffer.dispatch(attempts(2))
    assert (woken, demand.room()) == ([2], 0)
    assert buffer.take(0.01) is None
    assert woken[-1] == 2
    buffer.dispatch(attempts(2))
    buffer.withdraw(lambda one: one.seq == 1)
    assert (woken[-1], demand.room()) == (1, 1)
