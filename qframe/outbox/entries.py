"""A row of an outbox as the store takes it."""

from __future__ import annotations

from contextlib import suppress
from zlib import crc32

import msgspec

from qframe.codec import (
    SLOT_BASIS_HEADER,
    basis_of,
    body_as_basis,
    checked_id,
    is_raw,
    subject_of,
)
from qframe.errors import TopicMismatch
from qframe.outbox.outbox import Options, TopicFacts
from qframe.outbox.rows import OutboxRow
from qframe.stores.types import Entry
from qframe.topic import Topic, checked_key


def facts_of(row: OutboxRow) -> TopicFacts | None:
    """The row's options of its topic; none if they cannot be read, which is reported elsewhere."""
    with suppress(msgspec.DecodeError):
        return _options(row).topic
    return None


def entry_of(topic: Topic, row: OutboxRow) -> Entry:
    """The entry of a row. Its delay counts from when it was published.

    Raises:
        TopicMismatch: if it was checked for another kind of topic.
        BadInput: if its key or id can be none.
        DecodeError: if its options or headers cannot be read.
    """
    options, body = _options(row), bytes(row.body)
    if options.topic is not None and options.topic.kind != topic.kind:
        raise TopicMismatch(topic.name, "kind", topic.kind, options.topic.kind)
    headers = msgspec.json.decode(row.headers, type=dict[str, str]) if row.headers else None
    key = None if row.key is None else checked_key(row.key)
    passed_ms = max(0, row.now - row.created_at)
    delay_ms = None if options.delay_ms is None else max(0, options.delay_ms - passed_ms)
    if options.slot_basis is not None:
        headers = {**(headers or {}), SLOT_BASIS_HEADER: options.slot_basis}
    hashed = body_as_basis(topic, key, body if is_raw(headers) else msgspec.Raw(body), body)
    number = crc32(basis_of(topic, options.slot_basis, key, hashed, row.id))
    return Entry(
        topic.slot_of_hash(number), subject_of(topic, key, hashed, row.id),
        row.id, checked_id(row.id), key, headers, body, number, delay_ms or None, options.at_ms,
        options.priority, max(0, options.within_ms - passed_ms), options.sequence,
    )  # fmt: skip


def _options(row: OutboxRow) -> Options:
    return msgspec.json.decode(row.options, type=Options) if row.options else Options()
