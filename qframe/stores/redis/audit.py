"""Auditing counts and structure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from qframe.drivers.redis import Redis
from qframe.errors import StoreDamaged, UnknownGroup
from qframe.stores import faults
from qframe.stores.faults import Fault, Part
from qframe.stores.records import Stats
from qframe.stores.redis.counts import counts_of, cursor_of, lengths_of, stats_of
from qframe.stores.redis.envelopes import (
    LENGTH,
    META,
    NUMBER,
    TICKET,
    Attempts,
    delayed,
    delivery_of_dead,
    lead_of,
    letter_of,
    shown,
    state_of,
)
from qframe.stores.redis.groups import names
from qframe.stores.redis.keys import UNCLAIMED, Argument, SlotKeys
from qframe.stores.redis.leads import By
from qframe.stores.redis.logs import log
from qframe.stores.redis.reading import Malformed, place_of
from qframe.stores.rules import BACKLOGGED

PAGE: Final = 500
LOOKS: Final = 5
SUSPECTS: Final = 1000
NOT_DUE: Final = ("waiting", "retry")
PLACES: Final = (*NOT_DUE, "todo", "doing")
_COUNTED: Final = {
    "parked": "behind heads that wait", "running": "in hand", "behind": "behind heads",
}  # fmt: skip

OF_SLOT: Final = {
    "head": "string", "first": "string", "ticket": "string", "log": "stream", "later": "zset",
    "ids": "zset", "groups": "hash", "expiries": "zset", "letters": "hash", "held": "zset",
    "gaps": "zset", "sequences": "hash",
}  # fmt: skip
_OF_GROUP: Final = {
    "cursor": "hash", "waiting": "zset", "retry": "zset", "todo": "zset", "doing": "zset",
    "body": "hash", "tries": "hash", "next": "hash", "dead": "zset", "graves": "hash",
    "named": "zset", "keyed": "zset", "history": "hash", "ended": "zset",
}  # fmt: skip
_UNREADABLE: Final = (StoreDamaged, struct.error, ValueError, TypeError, IndexError)


class _Letter(NamedTuple):
    """The facts of a dead letter that are compared."""

    id: str
    key: str | None
    is_malformed: bool


def verify(redis: Redis, keys: SlotKeys, now: str) -> list[Fault]:
    """The faults; nothing if there is none.

    A slot is read in pages, while others may work on it. A slot that looks wrong is looked at
    again, and told of only if it looks so each time; what there is of an ordered slot is compared
    with its counts only if these have stood still meanwhile.
    """
    try:
        groups: list[str | None] = [*names(redis, keys)]
    except StoreDamaged as error:
        return [Fault(f"{keys.topic.name} slot 0", error.why, None, 0, left=faults.FOREIGN)]
    if not groups and keys.topic.has_subjects:
        groups = [UNCLAIMED]
    wrong: list[Fault] = []
    for group in groups or [None]:
        for slot in keys.topic.all_slots:
            found = _looked(redis, keys, group, slot, now)
            for _ in range(LOOKS - 1):
                if not found:
                    break
                again = _looked(redis, keys, group, slot, now)
                found = {place: each for place, each in again.items() if place in found}
            wrong += sorted(found.values(), key=str)
    return faults.with_counts_last(wrong)


def _looked(
    redis: Redis, keys: SlotKeys, group: str | None, slot: int, now: str
) -> dict[Fault, Fault]:
    """The faults of a slot, by what stays the same: where a count differs, by how much it does."""
    return {
        msgspec.structs.replace(each, what="") if each.part is Part.COUNT else each: each
        for each in _faults(redis, keys, group, slot, now)
    }


def _faults(
    redis: Redis, keys: SlotKeys, group: str | None, slot: int, now: str
) -> Iterable[Fault]:
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
        what = "the group has subscribed to the topic, but this slot has no record of it"
        return [Fault(where, what, group, slot, left=faults.RECORD)]
    except _UNREADABLE as error:
        why = error.why if isinstance(error, StoreDamaged) else f"{type(error).__name__}: {error}"
        what = f"its keys cannot be read ({why})"
        return [Fault(where, what, group, slot, left=faults.FOREIGN)]


def _types(
    redis: Redis, keys: SlotKeys, group: str | None, slot: int, where: str
) -> Iterator[Fault]:
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
            what = f"its key {name} is a {found.decode()}, and should be a {kind}"
            yield Fault(where, what, group, slot, left=faults.FOREIGN)


def _slot(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[Fault]:
    missing = missing_of(one)
    if missing:
        what = f"{one.published} published, {one.published - missing} accounted for"
        yield Fault(where, what, one.group, one.slot, Part.COUNT, missing)
    if not keys.topic.has_subjects:
        yield from _line(redis, keys, one, where)
        yield from _later(redis, keys, one, where)
    yield from _subjects(redis, keys, one, where)
    yield from _dead(redis, keys, one, where)
    kept, ended = redis.ask_many([
        (keys.key(one.slot, "history", one.group), "HLEN"),
        (keys.key(one.slot, "ended", one.group), "ZCARD"),
    ])  # fmt: skip
    if kept != ended:
        what = f"{kept} messages and keys have a history, and {ended} of them an end"
        yield Fault(where, what, one.group, one.slot, left=faults.HISTORY)


def missing_of(one: Stats) -> int:
    """How many messages are published and not accounted for."""
    parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
    return one.published - parts


def _line(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[Fault]:
    cursor = cursor_of(redis, keys, one.group, one.slot)
    group, slot = one.group, one.slot

    def wrong(what: str, left: str | None) -> Fault:
        return Fault(where, what, group, slot, Part.WINDOW, left=left)

    is_ordered = cursor.floor <= cursor.read <= one.head
    if not is_ordered:
        what = f"floor {cursor.floor}, read {cursor.read}, head {one.head}"
        yield wrong(what, faults.POSITION)
    if cursor.floor < cursor.read:
        receipt, lease = redis.ask(keys.key(slot, "cursor", group), "HMGET", "receipt", "lease")
        if not receipt or not int(lease):
            left = None if is_ordered else faults.POSITION
            yield wrong("a window without a receipt or lease", left)
    for subject, seqs in _offsets_of(redis, keys, group, slot, cursor.has_backlog):
        if any(cursor.state_of(seq) != "settled" for seq in seqs):
            place = f"{where} subject {shown(subject)}"
            what = "it is also in the line"
            yield Fault(place, what, group, slot, Part.SUBJECT, subject, left=faults.TWO_PLACES)
    expected = cursor.floor
    for message in log(redis, keys, slot, cursor.floor):
        if message.seq >= one.head:
            break
        if message.seq > expected:
            yield wrong(f"offsets {expected} to {message.seq - 1} are not in the log", faults.LOST)
        expected = message.seq + 1
        if isinstance(message, Malformed) and cursor.state_of(message.seq) != "settled":
            place = f"{where} offset {message.seq}"
            yield Fault(place, message.error, group, slot, left=faults.UNREADABLE)
    if expected < one.head:
        yield wrong(f"offsets {expected} to {one.head - 1} are not in the log", faults.LOST)


def _offsets_of(
    redis: Redis, keys: SlotKeys, group: str, slot: int, has_backlog: bool
) -> Iterator[tuple[bytes, list[int]]]:
    """The offsets of the messages of each subject of a stream."""
    for subject, value in scanned(redis, keys.key(slot, "body", group), "HSCAN"):
        behind = []
        if has_backlog:
            key = keys.key(slot, "behind:", group) + subject
            behind = redis.ask(key, "LRANGE", 0, -1)
        yield subject, [letter_of(each, slot).seq for each in (value, *behind)]


def _later(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[Fault]:
    for member, _ in scanned(redis, keys.key(one.slot, "later"), "ZSCAN"):
        _, message = delayed(member, one.slot)
        if isinstance(message, Malformed):
            place = f"{where} later"
            yield Fault(place, message.error, one.group, one.slot, left=faults.UNREADABLE)


def _subjects(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[Fault]:
    """Every head stands in one place, and what stands there has a head."""
    group, slot = one.group, one.slot

    def key(name: str) -> bytes:
        return keys.key(slot, name, group)

    def wrong(subject: bytes, what: str, left: str | None, member: bytes = b"") -> Fault:
        place = f"{where} subject {shown(subject)}"
        return Fault(place, what, group, slot, Part.SUBJECT, subject, member, left)

    is_ordered = keys.topic.kind in BACKLOGGED
    before = counts_of(redis, keys, group, slot) if is_ordered else None
    heads: dict[bytes, bytes] = {}
    for subject, value in scanned(redis, key("body"), "HSCAN"):
        heads[subject] = value[: META.size]
        message = letter_of(value, slot).envelope
        if isinstance(message, Malformed):
            yield wrong(subject, message.error, faults.UNREADABLE)
    states = {
        subject: state_of(value)._replace(error=None, traceback=None)
        for subject, value in scanned(redis, key("tries"), "HSCAN")
    }
    rounds = {subject for subject, _ in scanned(redis, key("next"), "HSCAN")}
    lengths = lengths_of(redis, keys, group, slot, list(heads)) if is_ordered else {}
    standing: dict[bytes, list[str]] = {subject: [] for subject in heads}
    suspects: dict[bytes, bytes] = dict.fromkeys((states.keys() | rounds) - heads.keys(), b"")
    for name in PLACES:
        for member in pairs(redis, key(name), "ZSCAN"):
            subject = member[TICKET.size :] if name == "todo" else member
            if subject not in standing:
                suspects.setdefault(subject, member if name == "todo" else b"")
                continue
            standing[subject].append(name)
            due, seq, _, _ = META.unpack_from(heads[subject])
            if name == "todo" and TICKET.unpack_from(member) != (due, seq):
                suspects[subject] = member
    for subject, places in standing.items():
        state = states.get(subject, Attempts())
        behind = lengths.get(subject, 0) if is_ordered else int(subject in rounds)
        if list(_faults_of(places, state, behind, is_ordered=is_ordered)):
            suspects.setdefault(subject, b"")
    # What was read of a subject was not read at one moment: a look decides.
    for subject, member in sorted(suspects.items())[:SUSPECTS]:
        reply = look(redis, keys, group, slot, subject, member)
        for what, left in _seen(reply, is_ordered=is_ordered):
            yield wrong(subject, what, left, member)
    after = counts_of(redis, keys, group, slot) if is_ordered else None
    if after is not None and after == before:
        behind = sum(lengths.values())
        there = len(heads) + behind + after.held
        if keys.topic.has_subjects and (missing := after.unsettled() - there):
            what = f"{after.unsettled()} messages are not settled, {there} exist"
            yield Fault(where, what, group, slot, Part.COUNT, missing)
        waiting = [each for each, of in standing.items() if {*of} & {*NOT_DUE}]
        given = [
            states.get(each, Attempts()).given for each, of in standing.items() if "doing" in of
        ]
        for name, by in after.differences(keys.topic.kind, lengths, waiting, given).items():
            told = getattr(after, name)
            what = f"{told} messages are counted {_COUNTED[name]}, and {told + by} stand there"
            yield Fault(where, what, group, slot, Part.COUNT, f"{name} {by}")


def _dead(redis: Redis, keys: SlotKeys, one: Stats, where: str) -> Iterator[Fault]:
    """Each dead letter has a record, and a place among the dead."""
    group, slot = one.group, one.slot
    places = pairs(redis, keys.key(slot, "dead", group), "ZSCAN")
    letters: dict[bytes, _Letter] = {}
    for member, value in scanned(redis, keys.key(slot, "graves", group), "HSCAN"):
        ended = delivery_of_dead(value, slot, NUMBER.unpack(member)[0])
        letters[member] = _Letter(ended.id, ended.key, isinstance(ended, Malformed))
        if isinstance(ended, Malformed):
            place = f"{where} dead letter {ended.id}"
            left = "retry it or drop it"
            yield Fault(place, ended.error, group, slot, left=left)
    for member in sorted(places.keys() ^ letters.keys()):
        what = "it has no record"
        if member in letters:
            what = "it has a record, and is not among the dead"
        [seq] = NUMBER.unpack(member)
        yield Fault(f"{where} dead letter {seq}", what, group, slot, Part.DEAD, seq)
    yield from _leads(redis, keys, one, where, letters)


def _leads(
    redis: Redis, keys: SlotKeys, one: Stats, where: str, letters: Mapping[bytes, _Letter]
) -> Iterator[Fault]:
    """Each dead letter has its leads, and each lead its letter."""
    group, slot = one.group, one.slot
    for by in By:
        due: set[bytes] = set()
        unread: set[bytes] = set()
        leads = pairs(redis, keys.key(slot, by, group), "ZSCAN")
        named = {lead[-NUMBER.size :] for lead in leads}
        for member, letter in letters.items():
            text = letter.id if by is By.ID else letter.key
            if letter.is_malformed and (by is By.KEY or place_of(letter.id) is not None):
                # Of what cannot be read the script may have taken some bytes for a text.
                unread.add(member)
                text = "" if by is By.ID and member not in named else None
            due |= {lead_of(text, member)} if text is not None else set()
        there = {lead for lead in leads if lead[-NUMBER.size :] not in unread}
        for lead in sorted(due ^ there)[:SUSPECTS]:
            what = "it is not found by it" if lead in due else "it leads to none"
            [seq] = NUMBER.unpack(lead[-NUMBER.size :].rjust(NUMBER.size, b"\0"))
            place = f"{where} dead letter {seq}, {shown(lead[LENGTH.size : -NUMBER.size])}"
            yield Fault(place, what, group, slot, Part.DEAD, seq, lead)


def look(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subject: Argument, member: Argument
) -> list[Any]:
    """Where a subject stands at one moment; `look.lua` names the parts of the reply."""
    call = keys.call("look", slot, str(keys.topic.kind), group, subject, member)
    reply: list[Any] = redis.run([call])[0]
    return reply


def _seen(reply: list[Any], *, is_ordered: bool) -> Iterator[tuple[str, str | None]]:
    """The faults of a subject, by one look, and why they are left."""
    body, state, behind, *stands = reply
    *own, is_stray = stands
    places = [name for name, stood in zip(PLACES, own, strict=True) if stood]
    if not body:
        for name in [*places, *(["todo"] if is_stray else [])]:
            yield f"it is in {name} but has no head", None
        if state or behind:
            yield "it has keys left, but no head", None
        return
    if is_stray:
        yield "its place in todo is another's", None
    yield from _faults_of(places, state_of(state or None), behind, is_ordered=is_ordered)


def _faults_of(
    places: list[str], state: Attempts, behind: int, *, is_ordered: bool
) -> Iterator[tuple[str, str | None]]:
    """The faults of a head that stands in these places, and why they are left."""
    if len(places) != 1:
        yield f"it stands in {' and '.join(places) or 'no keys'}", None
    if ("doing" in places) != bool(state.receipt):
        yield "in doing without a receipt, or with one and not in doing", None
    longest = 1 + (behind if is_ordered else 0)
    if bool(state.given) != bool(state.receipt) or state.given > longest:
        yield f"a run of {state.given}", None
    if state.receipt and not state.tries:
        yield "in doing without an attempt", None
    if not is_ordered and behind and not state.receipt:
        yield "a next round behind a free head", faults.NEXT_ROUND


def pairs(redis: Redis, key: bytes, scan: str) -> dict[bytes, bytes]:
    """All fields of a hash, or members of a sorted set, in pages."""
    return dict(scanned(redis, key, scan))


def scanned(redis: Redis, key: bytes, scan: str) -> Iterator[tuple[bytes, bytes]]:
    """As `pairs`, a page at a time; Redis may tell of one twice."""
    at: bytes | int = 0
    while True:
        at, page = redis.ask(key, scan, at, "COUNT", PAGE)
        yield from zip(page[::2], page[1::2], strict=True)
        if int(at) == 0:
            return
