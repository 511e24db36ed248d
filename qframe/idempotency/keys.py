"""By what an effect is recognised: the message's id, fields of its body, or a function of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from qframe.errors import BadEffectKey, BadOption
from qframe.hooks import is_async
from qframe.message import Message

Key = Callable[[Message], str]
KeyOption = str | Sequence[str] | Callable[[Message], Any] | None

MAX_CHARS: Final = 100
_REMEDY: Final = "publish it with that field, or give the checker another key="


def key_of(option: object) -> Key:
    """Returns the function that makes a message's effect key, from a checker's `key=`.

    Raises:
        BadOption: if the option is not a field, several fields, a function, or None.
    """
    if option is None:
        return _id
    if callable(option) and not is_async(option):
        return _by_function(option)
    fields = (option,) if isinstance(option, str) else option
    if (
        isinstance(fields, tuple | list)
        and fields
        and all(isinstance(field, str) and field for field in fields)
    ):
        return _by_fields(tuple(fields))
    raise BadOption(
        "key", option, "it must be a field of the body, several fields, or a plain function",
        'use key="order_id", key=("order_id", "line"), or key=lambda message: …',
    )  # fmt: skip


def _id(message: Message) -> str:
    return _fitted("id:", message.id)


def _by_fields(fields: tuple[str, ...]) -> Key:
    def key(message: Message) -> str:
        body = message.body
        if not isinstance(body, Mapping):
            raise _bad(message, f"its body is not an object, so it has no field {fields[0]!r}")
        values = [body.get(field) for field in fields]
        for field, value in zip(fields, values, strict=True):
            if value is None:
                raise _bad(message, f"its body has no {field!r}")
            if not isinstance(value, str | int | bool):
                raise _bad(message, f"its {field!r} is neither a string nor a whole number")
        return _fitted("body:", _text(message, values))

    return key


def _by_function(function: Callable[[Message], Any]) -> Key:
    def key(message: Message) -> str:
        value = function(message)
        if isinstance(value, str) and value:
            return _fitted("key:", value)
        values = list(value) if isinstance(value, tuple | list) else [value]
        if not values or not all(isinstance(each, str | int | bool) for each in values):
            raise _bad(message, f"key= returned {value!r}")
        return _fitted("keys:", _text(message, values))

    return key


def _text(message: Message, values: list[Any]) -> str:
    """Different for different values: 1, "1" and true are three."""
    try:
        return msgspec.json.encode(values).decode()
    except (ValueError, OverflowError) as error:  # a lone surrogate
        raise _bad(message, f"{values!r} cannot be written ({error})") from error


def _fitted(kind: str, text: str) -> str:
    """As short as a column takes it, and printable; what is not so is known by its hash.

    So is a text with spaces at its end, without which MySQL and MariaDB compare it.
    """
    is_short = len(text) <= MAX_CHARS and not text.endswith(" ")
    if is_short and text.isascii() and text.isprintable():
        return kind + text
    return f"{kind}sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _bad(message: Message, why: str) -> BadEffectKey:
    return BadEffectKey("effect key of message", message.id, why, _REMEDY)
