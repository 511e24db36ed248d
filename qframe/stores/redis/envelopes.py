"""Messages as they lie in Redis: envelopes, and the facts of heads and dead letters beside them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from qframe.message import Delivery
from qframe.stores.records import Record, told_apart
from qframe.stores.redis.reading import NOT_TEXT, delivery_of, header, malformed
from qframe.stores.types import Entry

META: Final = struct.Struct(">QQiQ")  # due, seq, priority, published at
STATE: Final = struct.Struct(">QIIHB")  # seq, tries, lost, given, length of the receipt
DEAD_LETTER: Final = struct.Struct(">QI")  # published at, length of the facts
NUMBER: Final = struct.Struct(">Q")
LENGTH: Final = struct.Struct(">I")
TICKET: Final = struct.Struct(">QQ")  # ticket, published at

pack: Final[Callable[[Any], bytes]] = msgspec.msgpack.Encoder().encode
unpack: Final[Callable[[bytes], Any]] = msgspec.msgpack.Decoder().decode
_FIELDS: Final = attrgetter("id", "key", "headers", "body")


class QueuedMessage(NamedTuple):
    """A message with what stands beside its envelope."""

    due: int
    seq: int
    priority: int
    published: int
    envelope: Delivery


class Attempts(NamedTuple):
    """The facts of a head that was handed out."""

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
    return packed[len(header(len(entries))) :]


def letter_of(value: bytes, slot: int) -> QueuedMessage:
    """A head, or what stands behind one."""
    if len(value) < META.size:
        return QueuedMessage(0, 0, 0, 0, malformed(value, slot, 0, "it is cut off"))
    due, seq, priority, published = META.unpack_from(value)
    return QueuedMessage(due, seq, priority, published, delivery_of(value[META.size :], slot, seq))


def delayed(member: bytes, slot: int) -> tuple[int, Delivery]:
    """A message that joins its log later: when it was published, and the message."""
    at = member.find(b"\0") + 1
    if not at or len(member) < at + TICKET.size:
        return 0, malformed(member, slot, 0, "it has no ticket")
    _, published = TICKET.unpack_from(member, at)
    return published, delivery_of(member[at + TICKET.size :], slot, 0)


def shown(text: bytes) -> str:
    """A text, for people: what is not UTF-8 in it is spelt out."""
    return text.decode(errors="backslashreplace")


def state_of(value: bytes | None) -> Attempts:
    """The entry of a subject in `tries`."""
    if value is None or len(value) < STATE.size:
        return Attempts()
    _, tries, lost, given, size = STATE.unpack_from(value)
    receipt = shown(value[STATE.size : STATE.size + size])
    last_words = shown(value[STATE.size + size :])
    return Attempts(tries, lost, given, receipt, *told_apart(last_words))


def lead_of(text: str, member: bytes) -> bytes:
    """The lead from a text to the dead letter of a member, as `parts/dead.lua` writes it."""
    encoded = text.encode()
    return LENGTH.pack(len(encoded)) + encoded + member


def delivery_of_dead(value: bytes, slot: int, seq: int) -> Delivery:
    """The message of a dead letter."""
    _, size = _begin_of_dead(value)
    return delivery_of(value[DEAD_LETTER.size + size :], slot, seq)


def _begin_of_dead(value: bytes) -> tuple[int, int]:
    """When its message was published, and the length of the facts."""
    published, size = DEAD_LETTER.unpack_from(value) if len(value) >= DEAD_LETTER.size else (0, 0)
    return published, size


def record_of_dead(
    topic: str, group: str, slot: int, member: bytes, died_at: float, value: bytes
) -> Record:
    """A dead letter."""
    [seq] = NUMBER.unpack(member)
    published, size = _begin_of_dead(value)
    facts = value[DEAD_LETTER.size : DEAD_LETTER.size + size]
    try:
        subject, priority, attempts, error, traceback, *_ = unpack(facts)
    except (ValueError, TypeError):  # its subject is not a text
        subject, priority, attempts, error, traceback = None, 0, 0, NOT_TEXT, None
    one = delivery_of_dead(value, slot, seq)
    if not traceback:  # its last attempt was lost; the text is that of a failure before
        error, traceback = told_apart(error or None)
    return Record(
        topic=topic, group=group, slot=slot, state="dead", subject=subject or None,
        seq=seq, id=one.id, key=one.key, headers=one.headers, body=one.body,
        published_at_ms=published, priority=priority, attempts=attempts, error=error or None,
        traceback=traceback or None, died_at_ms=int(died_at),
    )  # fmt: skip
