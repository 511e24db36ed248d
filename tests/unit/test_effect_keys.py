"""Effect keys: different values make different ones, and what makes none is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.errors import BadEffectKey, BadOption, UndecodableBody
from qframe.idempotency.keys import key_of
from qframe.message import Delivery, Message


class Line:
    topic = "t"
    group = "g"

    def acknowledge(self, *_: object) -> None: ...
    def extend(self, *_: object) -> None: ...


def message(body: Any, message_id: str = "m1") -> Message:
    return Message(Delivery(message_id, None, None, msgspec.json.encode(body)), Line())


PARTS = st.text(max_size=200) | st.integers(-(2**63), 2**63 - 1) | st.booleans()


def test_by_default_it_is_the_messages_id() -> None:
    key = key_of(None)
    assert key(message(1, "a")) == key(message(2, "a")) != key(message(1, "b"))


@given(st.tuples(PARTS, PARTS), st.tuples(PARTS, PARTS))
def test_equal_fields_have_one_key_and_different_fields_two(one: Any, other: Any) -> None:
    key = key_of(("a", "b"))
    keys = [key(message({"a": a, "b": b, "c": 1})) for a, b in (one, other)]
    is_same = msgspec.json.encode(one) == msgspec.json.encode(other)
    assert (keys[0] == keys[1]) is is_same
    assert all(len(each) <= 128 and each.isascii() and each.isprintable() for each in keys)


def test_what_is_no_key_is_told() -> None:
    wrong: list[tuple[Any, Any, str]] = [
        *[
            (option, body, "'m1'.*; publish it with that field")
            for option in (lambda m: m.body["n"], "n", ["n"], ("n", "o"))
            for body in ({"n": None, "o": 1}, {"n": 1.5, "o": 1}, {"n": [], "o": 1})
        ],
        ("n", {}, "has no 'n'"),
        ("n", 5, "is not an object"),
        (lambda _: ["a\udcff"], {}, "cannot be written"),
    ]
    for option, body, text in wrong:
        with pytest.raises(BadEffectKey, match=text):
            key_of(option)(message(body))
    with pytest.raises(UndecodableBody):
        key_of("n")(Message(Delivery("m1", None, None, b"{"), Line()))


def test_a_function_may_return_a_text_a_number_or_several() -> None:
    keys = [key_of(lambda _, value=value: value)(message(1)) for value in ("1", 1, ("1",), True)]
    assert len(set(keys)) == 4


def test_an_async_function_is_no_key_since_nobody_would_await_it() -> None:
    async def key(message: Message) -> str:
        return message.id

    with pytest.raises(BadOption, match="or a plain function"):
        key_of(key)
