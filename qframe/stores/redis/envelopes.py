"""Messages as they lie in Redis: envelopes, and what heads and graves say beside them."""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from qframe.message import Delivery
from qframe.stores.exchange import Entry
from qframe.stores.records import Record, told_apart

META: Final = struct.Struct(">QQiQ")  # due, seq, priority, published at
STATE: Final = struct.Struct(">QIIHB")  # seq, tries, lost, given, length of the receipt
GRAVE: Final = struct.Struct(">QI")  # published at, length of the facts
NUMBER: Final = struct.Struct(">Q")
TICKET: Final = struct.Struct(">QQ")  # ticket, published at

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode
delivery_of = msgspec.msgpack.Decoder(Delivery).decode
_FIELDS: Final = attrgetter("id", "key", "headers", "body")
deliveries_of = msgspec.msgpack.Decoder(list[Delivery]).decode


class Letter(NamedTuple):
    """A message with what stands beside its envelope."""

    due: int
    seq: int
    priority: int
    published: int
    envelope: Delivery


class State(NamedTuple):
    """What is known of a head that was handed out."""

    tries: int = 0
    lost: int = 0
    given: int = 0
    receipt: str = ""
    error: str | None = None
    traceback: str | None = None


def envelope(entry: Entry) -> bytes:
    """An entry's envelope."""
    return pack((entry.id, entry.key, entry.headers, entry.body))


def envelopes(entries: list[Entry]) -> bytes:
    """The envelopes of several entries, one after the other."""
    packed = pack(list(map(_FIELDS, entries)))
    return packed[header_size(len(entries)) :]


def header_size(count: int) -> int:
    """How many bytes msgpack spends on the length of an array."""
    return 1 if count < 16 else 3 if count < 65536 else 5


def header(count: int) -> bytes:
    """What msgpack writes before the items of an array."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def letter_of(value: bytes) -> Letter:
    """A head, or what stands behind one."""
    due, seq, priority, published = META.unpack_from(value)
    return Letter(due, seq, priority, published, delivery_of(value[META.size :]))


def state_of(value: bytes | None) -> State:
    """What `tries` has of a subject."""
    if value is None:
        return State()
    _, tries, lost, given, size = STATE.unpack_from(value)
    receipt = value[STATE.size : STATE.size + size].decode()
    last_words = value[STATE.size + size :].decode()
    return State(tries, lost, given, receipt, *told_apart(last_words))


def record_of_grave(
    topic: str, group: str, slot: int, member: bytes, died_at: float, value: bytes
) -> Record:
    """A dead letter."""
    published, size = GRAVE.unpack_from(value)
    subject, priority, attempts, error, traceback = unpack(value[GRAVE.size : GRAVE.size + size])
    one = delivery_of(value[GRAVE.size + size :])
    if not traceback:  # its last attempt was lost; the text is that of a failure before
        error, traceback = told_apart(error or None)
    return Record(
        topic=topic, group=group, slot=slot, state="dead", subject=subject or None,
        seq=NUMBER.unpack(member)[0], id=one.id, key=one.key, headers=one.headers, body=one.body,
        published_at_ms=published, priority=priority, attempts=attempts, error=error or None,
        traceback=traceback or None, died_at_ms=int(died_at),
    )  # fmt: skip
