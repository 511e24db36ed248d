"""A message of qframe as its receiver gets it from SQS."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from qframe.web.gateway.sqs.digests import md5_of, md5_of_attributes
from qframe.web.gateway.sqs.messages import (
    ATTRIBUTE_NAME,
    DEDUPLICATION,
    FAIR_GROUP,
    FIRST_ID,
    PREFIX,
    SENDER,
    SEQUENCE,
    TEXT,
    TRACE,
    TRACE_NAME,
    TYPES,
)
from qframe.web.gateway.sqs.requests import AttributeValue


class Received(NamedTuple):
    """The attributes that a receiver asks for.

    Attributes:
        system: the names of attributes of SQS's own.
        attributes: the names of the message's attributes, or how they begin.
    """

    system: frozenset[str]
    attributes: Sequence[str]


class Taken(NamedTuple):
    """A message that was handed out."""

    receipt: str
    id: str
    key: str | None
    headers: Mapping[str, str]
    body: bytes
    published_at_ms: int
    attempt: int
    first_ms: int


def shown(
    taken: Taken, asked: Received, *, is_fifo: bool, source_arn: str | None
) -> dict[str, Any]:
    """A message as its receiver gets it."""
    text = taken.body.decode("utf-8", "replace")
    message: dict[str, Any] = {
        "MessageId": taken.headers.get(FIRST_ID, taken.id),
        "ReceiptHandle": taken.receipt,
        "MD5OfBody": md5_of(text),
        "Body": text,
    }
    system = _system_attributes(taken, is_fifo=is_fifo, source_arn=source_arn)
    if "All" not in asked.system:
        system = {name: value for name, value in system.items() if name in asked.system}
    if system:
        message["Attributes"] = system
    attributes = {
        name: each for name, each in attributes_in(taken.headers).items()
        if any(_is_asked(name, wanted) for wanted in asked.attributes)
    }  # fmt: skip
    if attributes:
        message["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        message["MessageAttributes"] = {
            name: _shown_value(each) for name, each in attributes.items()
        }
    return message


def attributes_in(headers: Mapping[str, str]) -> dict[str, AttributeValue]:
    """The message's attributes among its headers; one that is not of its type is a text."""
    types = _types_in(headers)
    return {
        name: _attribute_of(value, types.get(name, TEXT))
        for name, value in headers.items()
        if not name.startswith((PREFIX, "qf-")) and ATTRIBUTE_NAME.fullmatch(name)
    }


def _attribute_of(value: str, kind: str) -> AttributeValue:
    if kind.startswith("Binary"):
        try:
            return AttributeValue(data_type=kind, binary_value=b64decode(value, validate=True))
        except ValueError:
            kind = TEXT
    return AttributeValue(data_type=kind, string_value=value)


def _types_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The types of attributes; none if another producer has written there what is not such."""
    try:
        return msgspec.json.decode(headers.get(TYPES, "{}"), type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _system_attributes(
    taken: Taken, *, is_fifo: bool, source_arn: str | None
) -> dict[str, str]:  # fmt: skip
    headers = taken.headers
    found: dict[str, str | None] = {
        "SenderId": headers.get(SENDER, "qframe"),
        "SentTimestamp": str(taken.published_at_ms),
        "ApproximateReceiveCount": str(taken.attempt),
        "ApproximateFirstReceiveTimestamp": str(taken.first_ms),
        "MessageGroupId": taken.key if is_fifo else headers.get(FAIR_GROUP),
        "MessageDeduplicationId": headers.get(DEDUPLICATION, taken.id if is_fifo else None),
        "SequenceNumber": headers.get(SEQUENCE, "0" * 20) if is_fifo else None,
        TRACE_NAME: headers.get(TRACE),
        "DeadLetterQueueSourceArn": source_arn,
    }
    return {name: value for name, value in found.items() if value is not None}


def _is_asked(name: str, wanted: str) -> bool:
    if wanted in ("All", ".*"):
        return True
    return name.startswith(wanted[:-2]) if wanted.endswith(".*") else name == wanted


def _shown_value(attribute: AttributeValue) -> dict[str, Any]:
    value: dict[str, Any] = {"DataType": attribute.data_type}
    if attribute.binary_value is not None:
        value["BinaryValue"] = attribute.binary_value
    else:
        value["StringValue"] = attribute.string_value
    return value
