"""Which messages of a batch that has failed are tried alone."""

from __future__ import annotations

from typing import Any, cast

from qframe.message import Delivery, Message
from qframe.runtime.order.suspects import Suspects


def messages(count: int) -> list[Message]:
    return [
        Message(Delivery(f"m{n}", None, None, b"1", seq=n), cast("Any", None)) for n in range(count)
    ]


def test_what_was_held_back_after_its_batch_failed_is_alone_and_the_order_stays() -> None:
    suspects, part = Suspects(), messages(6)
    suspects.failed(part[1:3])
    suspects.held_back(part[2:5])
    assert suspects.apart(part) == [part[:2], [part[2]], part[3:]]
    assert suspects.apart([part[2]]) == [[part[2]]]


def test_without_suspects_a_batch_stays_as_it_is_and_nothing_is_nothing() -> None:
    suspects, part = Suspects(), messages(3)
    suspects.failed(part)
    assert suspects.apart(part) == [part]
    suspects.held_back(part)
    assert suspects.apart(part) == [[part[0]], [part[1]], [part[2]]]
    assert suspects.apart([]) == []
