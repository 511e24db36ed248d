"""Auditing counts and structure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from qframe.drivers.redis import Redis
from qframe.errors import StoreDamaged, UnknownGroup
from qframe.stores.records import Stats
from qframe.stores.redis.counts import cursor_of, stats_of
from qframe.stores.redis.envelopes import (
    META,
    NUMBER,
    TICKET,
    Attempts,
    delayed,
    delivery_of_dead,
    letter_of,
    shown,
    state_of,
)
from qframe.stores.redis.groups import names
from qframe.stores.redis.keys import UNCLAIMED, Argument, SlotKeys
from qframe.stores.redis.logs import log
from qframe.stores.redis.reading import Malformed
from qframe.topic import Kind

PAGE: Final = 500
LOOKS: Final = 5
SUSPECTS: Final = 1000
PLACES: Final = ("waiting", "retry", "todo", "doing")

OF_SLOT: Final = {
    "head": "string", "first": "string", "ticket": "string", "log": "stream", "later": "zset",
    "ids": "zset", "groups": "hash", "expiries": "zset", "letters": "hash", "held": "zset",
    "gaps": "zset", "sequences": "hash",
}  # fmt: skip
_OF_GROUP: Final = {
    "cursor": "hash", "waiting": "zset", "retry": "zset", "todo": "zset", "doing": "zset",
    "body": "hash", "tries": "hash", "next": "hash", "dead": "zset", "graves": "hash",
    "history": "hash", "ended": "zset",
}  # fmt: skip
_UNREADABLE: Final = (StoreDamaged, struct.error, ValueError, TypeError, IndexError)


def verify(redis: Redis, keys: SlotKeys, now: str) -> list[str]:
    """The faults, in sentences; nothing if there is none.

    A slot is read in pages, while others may work on it. A slot that looks wrong while its counts
    move is looked at again, and told of only if it looks so each time.
    """
    try:
        groups: list[str | None] = [*names(redis, keys)]
    except StoreDamaged as error:
        return [f"{keys.topic.name} slot 0: {error.why}"]
    if not groups and keys.topic.has_subjects:
        groups = [UNCLAIMED]
    wrong: list[str] = []
    for group in groups or [None]:
        for slot in range(keys.topic.slots):
            found = set(_faults(redis, keys, group, slot, now))
            for _ in range(LOOKS - 1):
                if not found:
                    break
                found &= set(_faults(redis, keys, group, slot, now))
            wrong += sorted(found)
    return wrong


def _faults(redis: Redis, keys: SlotKeys, group: str | None, slot: int, now: str) -> Iterable[str]:
    """The faults of a slot for a group; for no group, those of what all groups share."""
    whose = keys.topic.name if group is None else f"{keys.topic.name}/{group}"
    where = f"{whose} slot {slot}"
    if found := list(_types(redis, keys, group, slot, where)):
        return found
    if group is None:
        return []
    try:
        [one] = stats_of(redis, keys, group, [slot], now)
        return list(_slot(redis, keys, one, where))
    except UnknownGroup:
        return [
            f"{where}: the group has subscribed to the topic, but this slot has no record of it"
        ]
    except _UNREADABLE as error:
        why = error.why if isinstance(error, StoreDamaged) else f"{type(error).__name__}: {error}"
        return [f"{where}: its keys cannot be read ({why})"]


def _types(redis: Redis, keys: SlotKeys, group: str | None, slot: int, where: str) -> Iterator[str]:
    """Keys of another type than they should be."""
    typed = [(name, keys.key(slot, name), kind) for name, kind in OF_SLOT.items()]
    if group is not None:
        typed += [
            (f"g:{group}:{name}", keys.key(slot, name, group), kind)
            for name, kind in _OF_GROUP.items()
        ]
    types = redis.ask_many([(key, "TYPE") for _, key, _ in typed])
    for (name, _, kind), found in zip(typed, types, strict=True):
        if found.decode() not in (kind, "none"):
            yield f"{where}: its key {name} is a {found.decode()}, and should be a {kind}"


def _slot(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[str]:
    parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
    if one.published != parts:
        yield f"{where}: {one.published} published, {parts} accounted for"
    if not keys.topic.has_subjects:
        yield from _line(redis, keys, one, where)
        yield from _later(redis, keys, one, where)
    yield from _subjects(redis, keys, one, where)
    kept, ended = redis.ask_many([
        (keys.key(one.slot, "history", one.group), "HLEN"),
        (keys.key(one.slot, "ended", one.group), "ZCARD"),
    ])  # fmt: skip
    if kept != ended:
        yield f"{where}: {kept} messages have a history, and {ended} of them an end"


def _line(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[str]:
    cursor = cursor_of(redis, keys, one.group, one.slot)
    if not cursor.floor <= cursor.read <= one.head:
        yield f"{where}: floor {cursor.floor}, read {cursor.read}, head {one.head}"
    if cursor.floor < cursor.read:
        receipt, lease = redis.ask(
            keys.key(one.slot, "cursor", one.group), "HMGET", "receipt", "lease"
        )
        if not receipt or not int(lease):
            yield f"{where}: a window without a receipt or lease"
    for subject in redis.ask(keys.key(one.slot, "body", one.group), "HKEYS"):
        if cursor.state_of(int(subject)) != "settled":
            yield f"{where} subject {shown(subject)}: it is also in the line"
    expected = cursor.floor
    for message in log(redis, keys, one.slot, cursor.floor):
        if message.seq >= one.head:
            break
        if message.seq > expected:
            yield f"{where}: offsets {expected} to {message.seq - 1} are not in the log"
        expected = message.seq + 1
        if isinstance(message, Malformed) and cursor.state_of(message.seq) != "settled":
            yield f"{where} offset {message.seq}: {message.error}"
    if expected < one.head:
        yield f"{where}: offsets {expected} to {one.head - 1} are not in the log"


def _later(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[str]:
    for member in _pairs(redis, keys.key(one.slot, "later"), "ZSCAN"):
        _, message = delayed(member, one.slot)
        if isinstance(message, Malformed):
            yield f"{where} later: {message.error}"


def _subjects(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[str]:
    """Every head stands in one place, and what stands there has a head."""

    def key(name: str) -> bytes:
        return keys.key(one.slot, name, one.group)

    bodies = _pairs(redis, key("body"), "HSCAN")
    states = _pairs(redis, key("tries"), "HSCAN")
    rounds = _pairs(redis, key("next"), "HSCAN")
    for subject, value in bodies.items():
        message = letter_of(value, one.slot).envelope
        if isinstance(message, Malformed):
            yield f"{where} subject {shown(subject)}: {message.error}"
    is_ordered = keys.topic.kind is Kind.ORDERED
    lengths = _lengths(redis, keys, one, list(bodies)) if is_ordered else {}
    standing: dict[bytes, list[str]] = {subject: [] for subject in bodies}
    suspects: dict[bytes, bytes] = dict.fromkeys(set(states) - set(bodies), b"")
    suspects |= dict.fromkeys(set(rounds) - set(bodies), b"")
    for name in PLACES:
        for member in _pairs(redis, key(name), "ZSCAN"):
            subject = member[TICKET.size :] if name == "todo" else member
            if subject not in standing:
                suspects.setdefault(subject, member if name == "todo" else b"")
                continue
            standing[subject].append(name)
            due, seq, _, _ = META.unpack_from(bodies[subject])
            if name == "todo" and TICKET.unpack_from(member) != (due, seq):
                suspects[subject] = member
    for subject, places in standing.items():
        state = state_of(states.get(subject))
        behind = lengths.get(subject, 0) if is_ordered else int(subject in rounds)
        if list(_faults_of(places, state, behind, is_ordered=is_ordered)):
            suspects.setdefault(subject, b"")
    # What was read of a subject was not read at one moment: a look decides.
    for subject, member in sorted(suspects.items())[:SUSPECTS]:
        reply = look(redis, keys, one.group, one.slot, subject, member)
        for fault in _seen(reply, is_ordered=is_ordered):
            yield f"{where} subject {shown(subject)}: {fault}"
    if is_ordered:
        unsettled = one.published - one.settled - one.cancelled - one.dead
        held = redis.ask(keys.key(one.slot, "letters"), "HLEN")
        there = len(bodies) + sum(lengths.values()) + held
        if unsettled != there:
            yield f"{where}: {unsettled} messages are not settled, {there} exist"
    numbers = {NUMBER.unpack(member)[0] for member in _pairs(redis, key("dead"), "ZSCAN")}
    records = _pairs(redis, key("graves"), "HSCAN")
    recorded = {NUMBER.unpack(member)[0] for member in records}
    for seq in sorted(numbers - recorded):
        yield f"{where} dead letter {seq}: it has no record"
    for seq in sorted(recorded - numbers):
        yield f"{where} dead letter {seq}: it has a record, and is not among the dead"
    for member, value in records.items():
        ended = delivery_of_dead(value, one.slot, NUMBER.unpack(member)[0])
        if isinstance(ended, Malformed):
            yield f"{where} dead letter {ended.id}: {ended.error}"


def look(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subject: Argument, member: Argument
) -> list[Any]:
    """Where a subject stands at one moment; `look.lua` names the parts of the reply."""
    call = keys.call("look", slot, str(keys.topic.kind), group, subject, member)
    reply: list[Any] = redis.run([call])[0]
    return reply


def _seen(reply: list[Any], *, is_ordered: bool) -> Iterator[str]:
    """The faults of a subject, by one look."""
    body, state, behind, *stands = reply
    *own, is_stray = stands
    places = [name for name, stood in zip(PLACES, own, strict=True) if stood]
    if not body:
        for name in [*places, *(["todo"] if is_stray else [])]:
            yield f"it is in {name} but has no head"
        if state or behind:
            yield "it has keys left, but no head"
        return
    if is_stray:
        yield "its place in todo is another's"
    yield from _faults_of(places, state_of(state or None), behind, is_ordered=is_ordered)


def _faults_of(
    places: list[str], state: Attempts, behind: int, *, is_ordered: bool
) -> Iterator[str]:
    """The faults of a head that stands in these places."""
    if len(places) != 1:
        yield f"it stands in {' and '.join(places) or 'no keys'}"
    if ("doing" in places) != bool(state.receipt):
        yield "in doing without a receipt, or with one and not in doing"
    longest = 1 + (behind if is_ordered else 0)
    if bool(state.given) != bool(state.receipt) or state.given > longest:
        yield f"a run of {state.given}"
    if not is_ordered and behind and not state.receipt:
        yield "a next round behind a free head"


def _lengths(redis: Redis, keys: SlotKeys, one: Stats, subjects: list[bytes]) -> dict[bytes, int]:
    """How many messages stand behind each head."""
    found: dict[bytes, int] = {}
    for start in range(0, len(subjects), PAGE):
        page = subjects[start : start + PAGE]
        lists = [keys.key(one.slot, "behind:", one.group) + subject for subject in page]
        found |= dict(zip(page, redis.ask_many([(key, "LLEN") for key in lists]), strict=True))
    return found


def _pairs(redis: Redis, key: bytes, scan: str) -> dict[bytes, bytes]:
    """All fields of a hash, or members of a sorted set, in pages."""
    return dict(_scanned(redis, key, scan))


def _scanned(redis: Redis, key: bytes, scan: str) -> Iterator[tuple[bytes, bytes]]:
    at: bytes | int = 0
    while True:
        at, page = redis.ask(key, scan, at, "COUNT", PAGE)
        yield from zip(page[::2], page[1::2], strict=True)
        if int(at) == 0:
            return
