"""How a batch's messages are settled once it has been processed, or has failed."""

from __future__ import annotations

from typing import Any

import pytest

from qframe.batching.settling import ItemSettler
from qframe.errors import AlreadySettled
from qframe.message import Delivery, Message


class Line:
    """A consumer that notes what is settled, each message alone, or refuses it."""

    topic = "t"
    group = "g"

    def __init__(self, refusal: Exception | None = None) -> None:
        self.settled: list[tuple[str, BaseException | None]] = []
        self.refusal = refusal

    def acknowledge(
        self, message: Message, _elapsed_s: float | None, error: BaseException | None
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.settled.append((message.id, error))

    def acknowledge_many(self, messages: list[Message]) -> list[Message]:
        return messages

    def extend(self, message: Message, seconds: float) -> None: ...


def message(line: Line, name: str, *, auto_ack: bool = False) -> Message:
    return Message(Delivery(name, None, None, b"1"), line, auto_ack)


def test_what_its_handler_settles_is_left_to_it() -> None:
    line, settler = Line(), ItemSettler[Any]("batch", None)
    settler.processed([message(line, "mine"), message(line, "its", auto_ack=True), "no message"])
    assert line.settled == [("mine", None)]


def test_what_fails_is_settled_whatever_was_done_to_the_list_of_it() -> None:
    line, error = Line(), ValueError("wrong")
    settler = ItemSettler[Any]("batch", lambda items, _: items.clear())
    settler.failed([message(line, "a"), message(line, "b")], error)
    assert line.settled == [("a", error), ("b", error)]


@pytest.mark.parametrize(("refusal", "lines"), [(AlreadySettled("m"), 0),
                                                (RuntimeError("away"), 2)])  # fmt: skip
def test_what_is_settled_already_is_no_trouble_and_other_refusals_are_told(
    caplog: pytest.LogCaptureFixture, refusal: Exception, lines: int
) -> None:
    line = Line(refusal)
    ItemSettler[Any]("batch", None).processed([message(line, "a"), message(line, "b")])
    assert len(caplog.records) == lines
