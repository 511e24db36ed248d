"""A message of SQS as a message of qframe; `received` has the way back.

The body of one is the body of the other: a text that is JSON is stored as that JSON, so that a
consumer in Python gets it decoded, and any other text as its bytes. A message's attributes are
headers of the same names, so either side sees what the other has sent; `sqs-types` has the types of
those that are not just `String`. Sender, deduplication id and the like are in headers that begin
with `sqs-`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from qframe.codec import RAW, TYPE_HEADER
from qframe.producing.outgoing import Outgoing
from qframe.topic import Kind
from qframe.web.gateway.kept_names import OF_SQS
from qframe.web.gateway.sqs.attributes import LONGEST_DELAY_S
from qframe.web.gateway.sqs.digests import md5_of, md5_of_attributes
from qframe.web.gateway.sqs.queues import Queue
from qframe.web.gateway.sqs.refusals import (
    SqsRefusal,
    invalid_parameter,
    invalid_value,
    missing,
)
from qframe.web.gateway.sqs.requests import AttributeValue, SentMessage

PREFIX: Final = OF_SQS
SENDER: Final = f"{PREFIX}sender"
DEDUPLICATION: Final = f"{PREFIX}deduplication-id"
FAIR_GROUP: Final = f"{PREFIX}group"
SEQUENCE: Final = f"{PREFIX}sequence"
TRACE: Final = f"{PREFIX}trace"
TYPES: Final = f"{PREFIX}types"
FIRST_ID: Final = f"{PREFIX}id"
DEAD_FROM: Final = f"{PREFIX}dead-from"

TEXT: Final = "String"
TRACE_NAME: Final = "AWSTraceHeader"
ATTRIBUTE_NAME: Final = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_WORD: Final = re.compile(r"[!-~]{1,128}")
_UNSENDABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_ATTRIBUTES: Final = 10


class PreparedMessage(NamedTuple):
    """A message that may be sent.

    Attributes:
        outgoing: the message.
        answer: what its sender is told, but for the id.
        size: how many bytes body and attributes have.
    """

    outgoing: Outgoing
    answer: dict[str, str]
    size: int


def prepared(
    sent: SentMessage, queue: Queue, *, sender: str, sequence: str, most: int
) -> PreparedMessage:
    """A message as it is published.

    Args:
        sent: the message as its sender describes it.
        queue: where it goes.
        sender: who sends it.
        sequence: its number, for a FIFO queue.
        most: how many bytes it may have.

    Raises:
        SqsRefusal: if it may not be sent as it is.
    """
    attributes = sent.message_attributes or {}
    headers = _headers_of(attributes)
    size = _checked_size(sent.message_body, attributes, most)
    answer = {"MD5OfMessageBody": md5_of(sent.message_body)}
    if (digest := md5_of_attributes(attributes)) is not None:
        answer["MD5OfMessageAttributes"] = digest
    if system := sent.message_system_attributes:
        headers[TRACE] = _trace_of(system)
        answer["MD5OfMessageSystemAttributes"] = md5_of_attributes(system) or ""
    headers[SENDER] = sender
    key = message_id = None
    group, deduplication = _group_of(sent, queue), _deduplication_of(sent, queue)
    if deduplication is not None:
        headers[DEDUPLICATION] = deduplication
    if queue.is_fifo:
        key, headers[SEQUENCE] = group, sequence
        answer["SequenceNumber"] = sequence
        if deduplication is not None:
            message_id = id_of(deduplication if queue.has_one_scope else f"{key} {deduplication}")
    elif group is not None:
        headers[FAIR_GROUP] = group
        key = group if queue.kind is Kind.STREAM else None
    delay_s = _delay_of(sent, queue)
    outgoing = Outgoing(
        stored_body(sent.message_body), key=key, headers=headers, id=message_id,
        delay=delay_s or None,
    )  # fmt: skip
    return PreparedMessage(outgoing, answer, size)


def stored_body(text: str) -> Any:
    """The body of a message of this text."""
    body = text.encode()
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body
    return msgspec.Raw(body)


def resent(
    body: bytes, headers: Mapping[str, str] | None, *, key: str | None, message_id: str,
    more: Mapping[str, str],
) -> Outgoing:  # fmt: skip
    """A stored message once more, for another queue, with more headers.

    Args:
        body: its body, as it is stored.
        headers: its headers, as they are stored.
        key: the new one's key.
        message_id: the new one's id.
        more: headers that it has beside its own, or instead of them.
    """
    kept = {name: each for name, each in (headers or {}).items() if not name.startswith("qf-")}
    is_raw = (headers or {}).get(TYPE_HEADER) == RAW
    return Outgoing(
        body if is_raw else msgspec.Raw(body), key=key, headers={**kept, **more}, id=message_id
    )


def id_of(text: str) -> str:
    """The id of a message of which the same text tells that it is the same message."""
    return str(UUID(bytes=sha256(text.encode()).digest()[:16]))


def _checked_size(body: str, attributes: Mapping[str, AttributeValue], most: int) -> int:
    if not body:
        raise missing("MessageBody")
    _check_sendable(body, "message body")
    size = len(body.encode()) + sum(
        len(name.encode()) + len(each.data_type)
        + len(each.binary_value or b"") + len((each.string_value or "").encode())
        for name, each in attributes.items()
    )  # fmt: skip
    if size > most:
        reason = f"Message must be shorter than {most} bytes."
        raise invalid_value(f"One or more parameters are invalid. Reason: {reason}")
    return size


def _check_sendable(text: str, where: str) -> None:
    """Refuses characters that XML cannot hold, so that each client can receive the text."""
    if (found := _UNSENDABLE.search(text)) is not None:
        raise SqsRefusal(
            "InvalidMessageContents",
            f"Invalid binary character '#x{ord(found[0]):X}' was found in the {where}, the "
            "set of allowed characters is #x9 | #xA | #xD | [#x20 to #xD7FF] | "
            "[#xE000 to #xFFFD] | [#x10000 to #x10FFFF]",
        )  # fmt: skip


def _headers_of(attributes: Mapping[str, AttributeValue]) -> dict[str, str]:
    if len(attributes) > _MOST_ATTRIBUTES:
        raise invalid_value(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{_MOST_ATTRIBUTES}]."
        )
    headers: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, each in attributes.items():
        headers[name] = _value_of(name, each)
        if each.data_type != TEXT:
            types[name] = each.data_type
    if types:
        headers[TYPES] = msgspec.json.encode(types).decode()
    return headers


def _value_of(name: str, attribute: AttributeValue) -> str:
    if not ATTRIBUTE_NAME.fullmatch(name):
        raise invalid_value(
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, "
            "0-9, underscore (_), hyphen (-), and period (.) characters."
        )
    if name.lower().startswith(("aws.", "amazon.", PREFIX, "qf-")):
        raise invalid_value(
            f"The message attribute name '{name}' is invalid. Names that begin with AWS., Amazon., "
            f"{PREFIX} or qf- are reserved."
        )
    if not attribute.data_type:
        raise invalid_value(f"The message attribute '{name}' must contain a non-empty type.")
    sort = attribute.data_type.partition(".")[0]
    if sort not in ("Binary", "Number", "String") or len(attribute.data_type) > 256:
        raise invalid_value(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    text, data = attribute.string_value, attribute.binary_value
    if not (data if sort == "Binary" else text):
        raise invalid_value(
            f"The message attribute '{name}' must contain a non-empty value of type '{sort}'."
        )
    if data is not None and sort == "Binary":
        return b64encode(data).decode()
    if sort == "Number" and not _NUMBER.fullmatch(text or ""):
        raise invalid_value(
            f"Can't cast the value of message (user) attribute '{name}' to a number."
        )
    _check_sendable(text or "", f"message attribute '{name}'")
    return text or ""


def _trace_of(system: Mapping[str, AttributeValue]) -> str:
    for name in system:
        if name != TRACE_NAME:
            raise invalid_parameter("MessageSystemAttributes", name, "It is not supported.")
    value = system[TRACE_NAME]
    if value.data_type != TEXT or not value.string_value:
        raise invalid_value(f"The message system attribute '{TRACE_NAME}' must be a String.")
    _check_sendable(value.string_value, f"message system attribute '{TRACE_NAME}'")
    return value.string_value


def checked_word(name: str, value: str) -> str:
    """The value itself, if it is 1 to 128 letters, digits and punctuation.

    Raises:
        SqsRefusal: if it is not.
    """
    if not _WORD.fullmatch(value):
        raise invalid_parameter(
            name, value,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )  # fmt: skip
    return value


def _group_of(sent: SentMessage, queue: Queue) -> str | None:
    if sent.message_group_id is not None:
        return checked_word("MessageGroupId", sent.message_group_id)
    if queue.is_fifo:
        raise missing("MessageGroupId")
    return None


def _deduplication_of(sent: SentMessage, queue: Queue) -> str | None:
    if sent.message_deduplication_id is not None:
        return checked_word("MessageDeduplicationId", sent.message_deduplication_id)
    if queue.needs_deduplication_id:
        raise invalid_value(
            "The queue should either have ContentBasedDeduplication enabled "
            "or MessageDeduplicationId provided explicitly"
        )
    by_content = queue.attributes.get("ContentBasedDeduplication") == "true"
    return sha256(sent.message_body.encode()).hexdigest() if by_content else None


def _delay_of(sent: SentMessage, queue: Queue) -> int:
    of_queue = int(queue.attributes.get("DelaySeconds", "0"))
    asked = sent.delay_seconds
    if asked is None:
        return of_queue
    if not 0 <= asked <= LONGEST_DELAY_S:
        raise invalid_parameter(
            "DelaySeconds", asked, f"DelaySeconds must be >= 0 and <= {LONGEST_DELAY_S}."
        )
    if not queue.is_fifo:
        return asked
    if asked:
        raise invalid_parameter(
            "DelaySeconds", asked,
            "The request include parameter that is not valid for this queue type.",
        )  # fmt: skip
    return of_queue
