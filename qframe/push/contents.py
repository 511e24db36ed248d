"""The contents of requests: a message as it is, or messages as CloudEvents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal, NamedTuple, cast

from qframe.cloud_events import BATCHED, STRUCTURED, TRACE, batched_of, binary_of, structured_of
from qframe.codec import RAW, TYPE_HEADER
from qframe.message import Delivery, Message
from qframe.runtime.handler.attempt import Attempt

Events = Literal["binary", "structured", "batched"]
EVENTS: Final = ("binary", "structured", "batched")
# All but printable ASCII, and the blanks at both ends: a receiver takes those for the header's own.
_VISIBLE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_ESCAPED: Final = re.compile(r"\A +| +\Z|[^ -~]|%")


class PushContent(NamedTuple):
    """The content of a request.

    Attributes:
        id: names it to its receiver among all namespaces and topics; the same at each attempt, and
            for each group.
        headers: what it has beside the signature.
        body: its body.
    """

    id: str
    headers: dict[str, str]
    body: bytes


def content_of(message: Message, events: Events | None, namespace: str) -> PushContent:
    """A message as the content of a request."""
    delivery = _delivery(message)
    name = f"msg_{_digest(namespace, message.topic, message.id)}"
    headers = {
        "qframe-topic": message.topic, "qframe-id": message.id,
        "qframe-attempt": str(message.attempt),
    }  # fmt: skip
    if message.key is not None:
        headers["qframe-key"] = _in_ascii(message.key)
    for header in TRACE:
        value = message.headers.get(header, "")
        if _VISIBLE.fullmatch(value):  # another one is no context, and no header either
            headers[header] = value
    if events == "binary":
        more, body = binary_of(message.topic, delivery)
        return PushContent(name, headers | more, body)
    if events == "structured":
        headers["content-type"] = STRUCTURED
        return PushContent(name, headers, structured_of(message.topic, delivery))
    is_raw = (delivery.headers or {}).get(TYPE_HEADER) == RAW
    headers["content-type"] = "application/octet-stream" if is_raw else "application/json"
    return PushContent(name, headers, delivery.body)


def batch_of(messages: Sequence[Message], namespace: str) -> PushContent:
    """Messages as the content of one request; the same ones have the same id."""
    topic = messages[0].topic
    name = f"batch_{_digest(namespace, topic, *(message.id for message in messages))}"
    body = batched_of(topic, [_delivery(message) for message in messages])
    return PushContent(name, {"qframe-topic": topic, "content-type": BATCHED}, body)


def _digest(*names: str) -> str:
    """What names messages to every receiver: an id is unique within its topic alone.

    It has no full stop, which parts the id from the time in what is signed.
    """
    return sha256("\n".join(names).encode()).hexdigest()[:40]


def _delivery(message: Message) -> Delivery:
    return cast("Attempt", message).delivery


def _in_ascii(key: str) -> str:
    """A key as the value of a header: `%` and what no header can have as %XX of UTF-8."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), key)
