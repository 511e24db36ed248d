"""A message on its way out, as its producer describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

import msgspec

from qframe.errors import BadBody, BadOption
from qframe.models import is_model
from qframe.options.rules import refuse_unknown

_ONE_BODY: Final = (str, bytes, bytearray, memoryview, Mapping)  # iterable, and never meant so


class _Content(msgspec.Struct, gc=False, eq=False):
    """The part of an `Outgoing` that may be given by position."""

    body: Any
    key: str | None = None
    headers: Mapping[str, str] | None = None
    tags: Iterable[str] | None = None
    id: str | None = None


class Outgoing(_Content, gc=False, eq=False, kw_only=True):
    """A message on its way out, for `publish_many`.

    Attributes:
        body: anything that JSON can hold, a dataclass or Struct of such, or bytes.
        key: what must be handled serially and in order with it.
        headers: texts that go with it.
        tags: texts by which consumers may choose.
        id: its id, of one message of the topic alone; one is made up where there is none. The same
            id again within the topic's `dedupe_window` is a duplicate in its slot: with the same
            key or another one of the slot, or without one; where equal bodies are one subject, with
            the same body.
        delay: due so much later: a number of seconds, a text such as "10m", or a timedelta.
        at: due then: a datetime with a time zone, or seconds since 1970.
        priority: higher goes first; in `priority` and `ordered` topics.
        within: in `merge` topics, the window: due so much later unless due already; a number of
            seconds, or a text such as "10m".
        sequence: its number among its key's messages, from 1; in `ordered` topics.
        slot_basis: what decides its slot instead of its key or body, such as an order's customer.
            A key must always come with the same one: in two slots it has no order. Where there is
            a key only `stream` topics, and `ordered` ones without a time, take it.
    """

    delay: float | str | timedelta | None = None
    at: datetime | float | None = None
    priority: int = 0
    within: float | str | None = None
    sequence: int | None = None
    slot_basis: str | None = None


def refuse_one_body(items: Any) -> None:
    """Refuses what is one body where several are wanted.

    Raises:
        BadOption: if it is one, or cannot be iterated over.
    """
    is_one = isinstance(items, _ONE_BODY) or is_model(type(items))
    if is_one or not isinstance(items, Iterable):
        raise BadOption(
            "items", items, "it is a single body, and publish_many takes several",
            "give a list: [body]",
        )  # fmt: skip


def is_envelope(item: Any) -> bool:
    """Whether an item of several reads like an `Outgoing` written as a dict."""
    return (
        isinstance(item, dict)
        and "body" in item
        and len(item) > 1
        and item.keys() <= frozenset(Outgoing.__struct_fields__)
    )


def refuse_envelope(item: Any) -> None:
    """Refuses a dict that may be meant as a body, or as a message with its options.

    Raises:
        BadBody: if it is one.
    """
    if is_envelope(item):
        raise BadBody(
            "body", item, "it may be a body, or a message with its options",
            "write Outgoing(**item) for a message with options, or Outgoing(item) for a body that "
            "has these fields",
        )  # fmt: skip


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of every `publish`; `Outgoing` tells what they mean."""

    key: str | None
    headers: Mapping[str, str] | None
    tags: Iterable[str] | None
    id: str | None
    delay: float | str | timedelta | None
    at: datetime | float | None
    priority: int
    within: float | str | None
    sequence: int | None
    slot_basis: str | None


def outgoing(body: Any, options: MessageOptions) -> Outgoing:
    """The arguments of `publish` as one object.

    Raises:
        BadOption: if an option is not one of `MessageOptions`.
        BadBody: if the body is an `Outgoing` already, or a list of some, which would be sent with
            key and all in it.
    """
    if isinstance(body, Outgoing) or (type(body) is list and body and type(body[0]) is Outgoing):
        raise BadBody(
            "body", body, "an Outgoing is for publish_many",
            "use that, or publish its body, and pass key= and the other options beside it",
        )  # fmt: skip
    try:
        return Outgoing(body, **options)
    except TypeError:
        for name in options:
            if name not in MessageOptions.__annotations__:
                refuse_unknown("publish option", name, MessageOptions.__annotations__, "publish")
        raise
