"""Reading envelopes: also those that another program has written otherwise than it should.

Anything else than an envelope is `Malformed`: its body is the bytes that stand there. A pull makes
a dead letter of it at once, and whoever looks is shown the bytes. Of an entry of a log it must be
known where one ends and the next begins; `scripts/parts/log.lua` cuts as this does.
"""

from __future__ import annotations

import re
from contextlib import suppress
from struct import Struct
from typing import Final

import msgspec

from qframe.codec import RAW, TYPE_HEADER, checked_id
from qframe.message import Delivery
from qframe.stores.types import LateReply

NOT_TEXT: Final = "MalformedMessage: its subject is not a text in UTF-8"

_decode = msgspec.msgpack.Decoder(Delivery).decode
_decode_many = msgspec.msgpack.Decoder(list[Delivery]).decode
_ASSIGNED: Final = re.compile(r"malformed-([0-9]{1,9})-([0-9]{1,19})")
_FAILURES: Final = (ValueError, RecursionError)
_LATE: Final = Struct(">I16sQQHHI")


class Malformed(Delivery, array_like=True, gc=False, eq=False):
    """Something that stands where an envelope should.

    Attributes:
        why: why it is no envelope.
    """

    why: str = ""

    @property
    def error(self) -> str:
        """The error of its dead letter."""
        return (
            f"MalformedMessage: message {self.seq} of slot {self.slot} cannot be read "
            f"({self.why}); have its producer write the envelope that docs/wire.md describes"
        )


class _Named(msgspec.Struct, array_like=True, gc=False):
    """As much of a malformed envelope as tells whose it is."""

    id: str


_decode_name = msgspec.msgpack.Decoder(_Named).decode


def delivery_of(value: bytes, slot: int, seq: int) -> Delivery:
    """The delivery of an envelope, or what stands in its place as a malformed one."""
    try:
        return _decode(value)
    except _FAILURES as error:
        return malformed(value, slot, seq, str(error))


def late_reply(payload: bytes) -> LateReply:
    """The reply to a pull that stood, as `scripts/parts/answer.lua` has sent it."""
    slot, epoch, seq, at_ms, *sizes = _LATE.unpack_from(payload)
    parts, at = [], _LATE.size
    for size in sizes:
        parts.append(payload[at : at + size])
        at += size
    pull, receipt, subject = parts
    one: Delivery | None = None
    with suppress(*_FAILURES):
        name = subject.decode() or None
        one = _decode(payload[at:])
        one.slot, one.subject, one.seq, one.receipt = slot, name, seq, receipt.decode()
        one.published_at_ms = one.due_ms = at_ms
    return LateReply(slot, epoch.decode(), pull.decode(), one)


def malformed(value: bytes, slot: int, seq: int, why: str) -> Malformed:
    """The value in an envelope's place, under its own id or one that tells its place."""
    try:
        name = checked_id(_decode_name(value).id)
    except _FAILURES:
        name = f"malformed-{slot}-{seq}"  # which `place_of` reads
    return Malformed(name, None, {TYPE_HEADER: RAW}, value, slot=slot, seq=seq, why=why)


def place_of(name: str) -> tuple[int, int] | None:
    """The slot and seq that an id tells which `malformed` has assigned; None for any other id."""
    found = _ASSIGNED.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def header(count: int) -> bytes:
    """The bytes that msgpack writes before the items of an array."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def logged(slot: int, name: bytes, fields: list[bytes]) -> tuple[int, int, list[Delivery], bool]:
    """An entry of a log: its first offset, the one behind it, its messages, whether all are sound.

    There may be fewer messages than offsets, where another program has counted wrongly.
    """
    first, count = map(int, name.split(b"-"))
    is_sound = True
    try:
        found = _decode_many(header(count) + fields[1])
        joined = int(fields[3])
        published = int(fields[5]) if len(fields) > 4 else joined  # a delayed one joined later
    except (*_FAILURES, IndexError, OverflowError):
        is_sound = False
        found = _one_by_one(slot, first, count, fields)
        joined = published = _published(fields)
    offset = first
    for one in found:
        one.slot, one.seq, one.published_at_ms, one.due_ms = slot, offset, published, joined
        offset += 1
    return first, first + count, found, is_sound


def _one_by_one(slot: int, first: int, count: int, fields: list[bytes]) -> list[Delivery]:
    named: dict[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=False))
    parts = _cut(named.get(b"b", b""), count)
    return [delivery_of(part, slot, seq) for seq, part in enumerate(parts, start=first)]


def _published(fields: list[bytes]) -> int:
    named: dict[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        return max(0, int(named.get(b"p") or named[b"t"]))
    except (ValueError, KeyError):
        return 0


def _cut(text: bytes, count: int) -> list[bytes]:
    """So many values, one behind the other; where one is not whole, it has all the rest."""
    parts: list[bytes] = []
    at = 0
    for number in range(min(count, len(text) + 1)):
        end = _skip(text, at) if number < count - 1 else None
        parts.append(text[at:end])
        at = len(text) if end is None else end
    return parts


def _skip(text: bytes, at: int) -> int | None:
    """The place behind the msgpack value that begins at `at`; None where there is no whole one."""
    left = 1
    while left:
        left -= 1
        if at >= len(text) or (byte := text[at]) == 0xC1:
            return None
        plain, sized, counted, each = 0, 0, 0, 1
        if byte <= 0x7F or byte >= 0xE0 or 0xC0 <= byte <= 0xC3:
            pass
        elif byte <= 0x9F:
            left += 2 * (byte - 0x80) if byte <= 0x8F else byte - 0x90
        elif byte <= 0xBF:
            plain = byte - 0xA0
        elif byte <= 0xC6:
            sized = 1 << byte - 0xC4
        elif byte <= 0xC9:
            sized, plain = 1 << byte - 0xC7, 1
        elif byte <= 0xCB:
            plain = 4 * (byte - 0xC9)
        elif byte <= 0xD3:
            plain = 1 << (byte - 0xCC) % 4
        elif byte <= 0xD8:
            plain = 1 + (1 << byte - 0xD4)
        elif byte <= 0xDB:
            sized = 1 << byte - 0xD9
        elif byte <= 0xDD:
            counted = 1 << byte - 0xDB
        else:
            counted, each = 1 << byte - 0xDD, 2
        length = sized or counted
        if at + length >= len(text) and length:
            return None
        count = int.from_bytes(text[at + 1 : at + 1 + length])
        left += each * count if counted else 0
        at += 1 + length + plain + (count if sized else 0)
    return at if at <= len(text) else None
