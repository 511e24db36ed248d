"""A pull buffer: attempts wait there until somebody takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from eventually import eventually
from interrupting import interrupt, may_be_lost

from qframe.clock import SYSTEM_CLOCK
from qframe.message import Delivery
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
