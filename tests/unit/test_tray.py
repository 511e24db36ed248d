"""A tray: what lies there until somebody takes it."""

from __future__ import annotations

import threading
from typing import Any, cast

from eventually import eventually

from qframe.clock import SYSTEM_CLOCK
from qframe.message import Delivery, Message
from qframe.runtime.executors.tray import Tray


def message(number: int) -> Message:
    return Message(Delivery(f"m{number}", None, None, b"1", seq=number), cast("Any", None))


def test_what_is_taken_is_in_hand_until_it_has_landed() -> None:
    tray = Tray(SYSTEM_CLOCK)
    first, second = message(1), message(2)
    tray.dispatch([first, second])
    taking = tray.take(None)
    assert taking is not None
    assert taking.message is first
    assert [each.message for each in tray.hands] == [first]
    assert tray.withdraw(lambda _: True) == [second]
    assert tray.busy
    tray.landed(taking)
    assert not tray.busy


def test_a_wait_ends_by_its_time_by_a_message_and_by_the_end() -> None:
    tray = Tray(SYSTEM_CLOCK)
    assert tray.take(SYSTEM_CLOCK.monotonic_s()) is None
    taken: list[Any] = []
    waiting = threading.Thread(target=lambda: taken.extend([tray.take(None), tray.take(None)]))
    waiting.start()
    tray.dispatch([message(1)])
    eventually(lambda: tray.hands)
    tray.stop()
    waiting.join(60)
    assert not waiting.is_alive()
    assert [each is None for each in taken] == [False, True]
    tray.dispatch([message(2)])
    assert tray.take(None) is None


def test_only_what_is_wanted_is_withdrawn_and_the_rest_keeps_its_order() -> None:
    tray = Tray(SYSTEM_CLOCK)
    messages = [message(number) for number in range(6)]
    tray.dispatch(messages)
    assert tray.withdraw(lambda one: one.seq % 2 == 0) == messages[::2]
    left = [tray.take(None) for _ in range(3)]
    assert [each.message for each in left if each] == messages[1::2]
