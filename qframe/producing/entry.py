"""One message, checked and encoded: the entry that a store writes."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from qframe.codec import (
    SLOT_BASIS_HEADER,
    basis_of,
    body_as_basis,
    checked_id,
    encode_body,
    encode_headers,
    subject_of,
)
from qframe.errors import BadKey, BadOption
from qframe.producing.outgoing import Outgoing
from qframe.retry import checked_times
from qframe.stores.types import Entry
from qframe.topic import Kind, Topic, checked_key, duration_ms

MAX_PRIORITY: Final = 2**31 - 1
MAX_SEQUENCE: Final = 2**53 - 1


def entry_of(topic: Topic, item: Outgoing, made_up: str, mark: str, max_body: int) -> Entry:
    """One message, checked and encoded. The way of a plain body and key through here is hot.

    Raises:
        BadInput: if anything about it is wrong.
    """
    body, raw = encode_body(item.body, max_body)
    key = item.key
    if key is not None:
        checked_key(key)
    headers = None
    if raw or item.headers is not None or item.tags is not None:
        headers = encode_headers(item.headers, item.tags, raw, max_body)
    hashed = body if key is not None else body_as_basis(topic, key, item.body, body)
    basis = hashed if key is None else key.encode()
    if item.id is not None:
        made_up = mark = checked_id(item.id)
        basis = basis_of(topic, None, key, hashed, made_up)
    subject = subject_of(topic, key, hashed, made_up) if topic.has_subjects else None
    number = crc32(basis)
    slot = topic.slot_of_hash(number)
    entry = Entry(slot, subject, made_up, mark, key, headers, body, number)
    if (
        item.delay is not None
        or item.at is not None
        or item.priority
        or item.within is not None
        or item.sequence is not None
        or item.slot_basis is not None
    ):
        _add_options(entry, topic, item)
    return entry


def _add_options(entry: Entry, topic: Topic, item: Outgoing) -> None:
    """The rarer options, each only where the topic's kind has a use for it."""
    kind = topic.kind
    entry.delay_ms, entry.at_ms = checked_times(item.delay, item.at)
    timed = item.delay is not None or item.at is not None
    if item.slot_basis is not None:
        basis = _slot_basis(topic, item, timed=timed)
        entry.hash = crc32(basis.encode())
        entry.slot = topic.slot_of_hash(entry.hash)
        entry.headers = {**(entry.headers or {}), SLOT_BASIS_HEADER: basis}
    if item.priority:
        _refuse_unless(kind in (Kind.PRIORITY, Kind.ORDERED), "priority", item.priority, topic)
        if not _is_whole(item.priority) or abs(item.priority) > MAX_PRIORITY:
            raise BadOption(
                "priority", item.priority, "it must be a whole number within ±2147483647", "use 0"
            )
        entry.priority = item.priority
    if item.within is not None:
        _refuse_unless(kind is Kind.MERGE, "within", item.within, topic)
        _refuse_beside_time("within", item.within, timed=timed)
        entry.within_ms = duration_ms(item.within, "within")
    if item.sequence is not None:
        _refuse_unless(kind is Kind.ORDERED, "sequence", item.sequence, topic)
        _refuse_beside_time("sequence", item.sequence, timed=timed)
        if not _is_whole(item.sequence) or not 1 <= item.sequence <= MAX_SEQUENCE:
            raise BadOption(
                "sequence", item.sequence, "it must be a whole number from 1", "count from 1"
            )
        entry.sequence = item.sequence


def _slot_basis(topic: Topic, item: Outgoing, *, timed: bool) -> str:
    """The `slot_basis` of a message, where nobody looks for the key in its own slot."""
    basis = item.slot_basis
    if item.key is not None and topic.has_subjects:
        remedy = "leave one of the two out, or publish to a stream"
        if topic.kind is not Kind.ORDERED:
            why = (
                f"equal keys must share the key's slot in topic {topic.name!r} of kind {topic.kind}"
            )
            raise BadOption("slot_basis", basis, why, remedy)
        if timed:
            why = "a time and a key are given too, and a timer is in its key's slot"
            raise BadOption("slot_basis", basis, why, remedy)
    try:
        return checked_key(basis)
    except BadKey as error:
        raise BadOption("slot_basis", basis, error.why, "use a string, such as an id") from None


def _refuse_unless(fits: bool, option: str, value: object, topic: Topic) -> None:
    if not fits:
        raise BadOption(
            option, value, f"topic {topic.name!r} is of kind {topic.kind}, which has no use for it",
            "leave it out, or publish to a topic of another kind",
        )  # fmt: skip


def _refuse_beside_time(option: str, value: object, *, timed: bool) -> None:
    if timed:
        raise BadOption(option, value, "a time is given too", "give one of them")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
