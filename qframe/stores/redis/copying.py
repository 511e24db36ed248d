"""Reading a topic section by section, and writing it down as it stood in another store."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.errors import UnknownGroup
from qframe.stores.acts import Copying
from qframe.stores.positions import MemoryPage, Position
from qframe.stores.records import Record, Section
from qframe.stores.redis.envelopes import DEAD_LETTER, META, NUMBER, STATE, TICKET, pack, unpack
from qframe.stores.redis.groups import known, names
from qframe.stores.redis.keys import UNCLAIMED, SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.stores.searching import PASSED_MS, RESTORED, next_token
from qframe.topic import Topic

LENGTH: Final = struct.Struct(">I")
_COUNTS: Final = ("floor", "read", "base", "published", "acked", "cancelled", "max_parked")
_OTHERS: Final = ("settled", "receipt", "lease", "epoch")
_MEMORIES: Final = {"marks": ("ids", "ZSCAN"), "sequences": ("sequences", "HSCAN")}


class RedisCopying(RedisRole, Copying):
    """Keys as they are."""

    @override
    def restore(
        self, topic: Topic, section: Section, records: Sequence[Record], token: str | None = None
    ) -> None:
        call = self._call if token is None else self._call_once
        return call(topic, restore, section, records, self._now(), token or "")

    @override
    def positions(self, topic: Topic, group: str) -> list[Position]:
        return self._call(topic, positions, group)

    @override
    def restore_positions(
        self, topic: Topic, group: str, positions: Sequence[Position], token: str | None = None
    ) -> None:
        call = self._call if token is None else self._call_once
        return call(topic, restore_positions, group, positions, self._now(), token or "")

    @override
    def remembered(
        self, topic: Topic, slot: int, what: str, after: str = "", limit: int = 1000
    ) -> MemoryPage:
        return self._call(topic, remembered, slot, what, after, limit)

    @override
    def remember(
        self, topic: Topic, slot: int, *, marks: Mapping[str, int] | None = None,
        sequences: Mapping[str, int] | None = None, head: int = 0, token: str | None = None,
    ) -> None:  # fmt: skip
        memories = {"marks": marks or {}, "sequences": sequences or {}}
        call = self._call if token is None else self._call_once
        call(topic, remember, slot, memories, head, self._now(), token or "")


def restore(
    redis: Redis, keys: SlotKeys, section: Section, records: Sequence[Record], now: str, token: str
) -> None:
    """Writes down messages of a section."""
    members = _PARTS[section.part](records)
    _write(redis, keys, section, now, token, members)


def remember(
    redis: Redis, keys: SlotKeys, slot: int, memories: Mapping[str, Mapping[str, int]], head: int,
    now: str, token: str,
) -> None:  # fmt: skip
    """Writes down marks and sequences, and the slot's next number."""
    for what, values in memories.items():
        if values:
            _write(redis, keys, Section(slot, what, UNCLAIMED), now, token, values.items())
    if head or not any(memories.values()):
        _write(redis, keys, Section(slot, "head", UNCLAIMED), now, token, [(head,)])


def _write(
    redis: Redis, keys: SlotKeys, section: Section, now: str, token: str,
    members: Iterable[tuple[Any, ...]],
) -> None:  # fmt: skip
    packed = [b"".join(map(_field, member)) for member in members]
    if packed or token:  # the token is used, whatever there is
        following = next_token(token) if token else ""
        words = (now, str(keys.topic.kind), section.group, section.part, token, following)
        reply = redis.one(keys.call("restore", section.slot, *words, *packed))
        known(redis, keys, section.group, reply)


def _field(value: bytes | str | int) -> bytes:
    """A field of a member, behind its length; msgpack in Lua does not know bytes."""
    text = value if isinstance(value, bytes) else str(value).encode()
    return LENGTH.pack(len(text)) + text


def _envelope(record: Record) -> bytes:
    return pack((record.id, record.key, record.headers, record.body))


def _meta(record: Record, due_ms: int) -> bytes:
    return META.pack(due_ms, record.seq or 0, record.priority, record.published_at_ms)


def _of_log(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    """Entries of messages that follow each other, and were published at one time."""
    numbered = enumerate(records)
    for (_, published), some in groupby(
        numbered, key=lambda each: ((each[1].seq or 0) - each[0], each[1].published_at_ms)
    ):
        run = [record for _, record in some]
        yield run[0].seq or 0, len(run), b"".join(map(_envelope, run)), published


def _later(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    for one in records:
        ticket = TICKET.pack(0, one.published_at_ms)
        yield one.due_ms or 0, one.id.encode() + b"\0" + ticket + _envelope(one)


def _held(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    for one in records:
        member = (one.subject or "").encode() + b"\0" + NUMBER.pack(one.sequence or 0)
        yield one.due_ms or 0, member, _meta(one, one.published_at_ms) + _envelope(one)


def _heads(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    for one in records:
        is_doing = one.state == "doing"
        receipt = RESTORED.encode() if is_doing else b""
        given = max(1, one.given) if is_doing else 0
        error = (one.last_words or "").encode()
        state = STATE.pack(one.seq or 0, one.attempts, one.lost, given, len(receipt))
        was_out = is_doing or one.attempts or one.lost or error
        yield (one.subject or "", _meta(one, one.due_ms or 0) + _envelope(one),
               state + receipt + error if was_out else b"")  # fmt: skip


def _behind(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    for one in records:
        yield one.subject or "", _meta(one, one.due_ms or 0) + _envelope(one)


def _dead(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    for one in records:
        facts = pack((one.subject or False, one.priority, one.attempts, one.error or "",
                      one.traceback or ""))  # fmt: skip
        value = DEAD_LETTER.pack(one.published_at_ms, len(facts)) + facts + _envelope(one)
        yield one.died_at_ms or 0, NUMBER.pack(one.seq or 0), value


_PARTS: Final = {
    "line": _of_log, "later": _later, "held": _held, "heads": _heads, "behind": _behind,
    "dead": _dead,
}  # fmt: skip


def positions(redis: Redis, keys: SlotKeys, group: str) -> list[Position]:
    """How far a group is, for each slot that has it."""
    slots: Sequence[int] = keys.topic.all_slots
    if group == UNCLAIMED:
        claimed = redis.ask_many([(keys.key(slot, "claimed"), "EXISTS") for slot in slots])
        slots = [slot for slot, is_it in zip(slots, claimed, strict=True) if not is_it]
        if not slots:
            raise UnknownGroup(keys.topic.name, group, names(redis, keys))
    cursors = [keys.key(slot, "cursor", group) for slot in slots]
    found = redis.ask_many([(key, "HMGET", *_COUNTS, *_OTHERS) for key in cursors])
    return [
        Position(
            slot=slot,
            settled=_ranges(settled),
            receipt=receipt.decode() if receipt else None,
            lease_until_ms=int(float(lease)) if lease else None,
            **_numbers(counts),
        )
        for slot, (*counts, settled, receipt, lease, epoch) in zip(slots, found, strict=True)
        if epoch is not None or group == UNCLAIMED
    ]


def _numbers(counts: Sequence[bytes | None]) -> dict[str, int]:
    return {name: int(float(each or 0)) for name, each in zip(_COUNTS, counts, strict=True)}


def _ranges(packed: bytes | None) -> list[tuple[int, int]]:
    ends = list(map(int, unpack(packed))) if packed else []
    return list(zip(ends[::2], ends[1::2], strict=True))


def restore_positions(
    redis: Redis, keys: SlotKeys, group: str, positions: Sequence[Position], now: str, token: str
) -> None:
    """Writes down how far a group is."""
    for one in positions:
        window = (RESTORED, PASSED_MS) if one.floor < one.read else ("", 0)
        settled = pack([end for pair in one.settled for end in pair]) if one.settled else b""
        facts: dict[str, Any] = {"acked": one.acked, "cancelled": one.cancelled}
        if keys.topic.has_subjects:
            facts["published"] = one.published
        else:
            facts |= {"floor": one.floor, "read": one.read, "base": one.base, "settled": settled,
                      "receipt": window[0], "lease": window[1]}  # fmt: skip
        _write(redis, keys, Section(one.slot, "position", group), now, token, facts.items())


def remembered(
    redis: Redis, keys: SlotKeys, slot: int, what: str, after: str, limit: int
) -> MemoryPage:
    """A part of what a slot remembers."""
    name, word = _MEMORIES[what]
    cursor, flat = redis.ask(keys.key(slot, name), word, after or "0", "COUNT", limit)
    values = {
        mark.decode(): int(float(value)) for mark, value in zip(flat[::2], flat[1::2], strict=True)
    }
    return MemoryPage(values, None if cursor == b"0" else cursor.decode())
