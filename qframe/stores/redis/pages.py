"""Messages of sections: pages of sorted sets and hashes, and look-ups by what leads to messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.stores.pages import Pages
from qframe.stores.records import LogSpan, LookUp, PageAsk, Record, Remembered, SectionPage
from qframe.stores.redis.counts import stats_of
from qframe.stores.redis.envelopes import letter_of
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.leads import By, looked_up, records_at
from qframe.stores.redis.logs import read_logs
from qframe.stores.redis.places import by_turn, delayed, died, timers
from qframe.stores.redis.records import (
    heads_at,
    record_behind,
    record_of_head,
    record_of_log,
    records_of_held,
)
from qframe.stores.redis.role import RedisRole
from qframe.stores.redis.scan import Sections
from qframe.stores.rules import BACKLOGGED
from qframe.topic import Topic

_BY_TURN = ("doing", "todo", "waiting")


class RedisPages(RedisRole, Pages):
    """Keys as they are; asks of one sort go together, to all servers at once."""

    @override
    def pages(self, topic: Topic, asks: Sequence[PageAsk]) -> list[SectionPage]:
        return self._call(topic, pages, asks, self._now(), self._now_ms())

    @override
    def look_up(self, topic: Topic, asks: Sequence[LookUp]) -> list[list[Record]]:
        return self._call(topic, look_up, asks, self._now_ms())

    @override
    def spans(self, topic: Topic) -> dict[int, LogSpan]:
        return self._call(topic, spans)

    @override
    def marked(self, topic: Topic, ids: Sequence[str]) -> list[Remembered]:
        return self._call(topic, marked, ids, self._now_ms())


def pages(
    redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk], now: str, now_ms: int
) -> list[SectionPage]:
    """A page for each ask."""
    of_part: dict[str, list[PageAsk]] = {}
    for ask in asks:
        of_part.setdefault(ask.section.part, []).append(ask)
    promoted = {
        (ask.section.group, ask.section.slot)
        for ask in asks
        if ask.section.part in ("todo", "waiting")
    }
    for group, slot in sorted(promoted):
        stats_of(redis, keys, group, [slot], now, partly=True)  # which promotes what is due
    found: Mapping[str, Iterator[SectionPage]] = {
        part: iter(_pages_of(redis, keys, part, some, now_ms)) for part, some in of_part.items()
    }
    return [next(found[ask.section.part]) for ask in asks]


def _pages_of(
    redis: Redis, keys: SlotKeys, part: str, asks: Sequence[PageAsk], now_ms: int
) -> list[SectionPage]:
    if part == "line":
        return _lines(redis, keys, asks)
    if part == "died":
        return died(redis, keys, asks)
    if part == "timers":
        return timers(redis, keys, asks, now_ms)
    if part == "delayed":
        return [delayed(redis, keys, ask) for ask in asks]
    if part in _BY_TURN:
        return [*by_turn(redis, keys, asks, now_ms)]
    return [
        Sections(redis, keys, now_ms, ask.sought).read(ask.section, ask.after, ask.limit)
        for ask in asks
    ]


def _lines(redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk]) -> list[SectionPage]:
    parts = [(ask.section.slot, int(ask.after or 0), ask.limit) for ask in asks]
    return [
        SectionPage(
            [record_of_log(keys, one) for one in messages], len(messages),
            str(messages[-1].seq + 1) if len(messages) >= ask.limit > 0 else None,
        )
        for ask, messages in zip(asks, read_logs(redis, keys, parts), strict=True)
    ]  # fmt: skip


def look_up(
    redis: Redis, keys: SlotKeys, asks: Sequence[LookUp], now_ms: int
) -> list[list[Record]]:
    """The messages of each look-up, sort by sort, in the order in which messages go on."""
    found: dict[int, list[Record]] = {}
    numbered = list(enumerate(asks))
    for part, find in (("held", _held), ("behind", _behind), ("heads", _heads), ("dead", _dead)):
        some = [(number, ask) for number, ask in numbered if ask.section.part == part]
        if some:
            numbers, questions = zip(*some, strict=True)
            found.update(zip(numbers, find(redis, keys, questions, now_ms), strict=True))
    return [found[number] for number in range(len(asks))]


def _heads(redis: Redis, keys: SlotKeys, asks: Sequence[LookUp], now_ms: int) -> list[list[Record]]:
    heads = heads_at(redis, keys, [
        (ask.section.group, ask.section.slot, [name.encode() for name in ask.values])
        for ask in asks
    ])  # fmt: skip
    return [
        [record_of_head(keys, ask.section.group, ask.section.slot, each, now_ms) for each in some]
        for ask, some in zip(asks, heads, strict=True)
    ]


def _behind(
    redis: Redis, keys: SlotKeys, asks: Sequence[LookUp], now_ms: int  # noqa: ARG001
) -> list[list[Record]]:  # fmt: skip
    """The messages behind heads: the first ones, or all to look for one of an id."""
    questions: list[tuple[Any, ...]] = []
    for ask in asks:
        (slot, _, group), last = ask.section, -1 if ask.id is not None else ask.limit - 1
        for subject in map(str.encode, ask.values):
            if keys.topic.kind in BACKLOGGED:
                behind = keys.key(slot, "behind:", group) + subject
                questions.append((behind, "LRANGE", 0, last))
            else:
                questions.append((keys.key(slot, "next", group), "HGET", subject))
    replies = iter(redis.ask_many(questions))
    found = []
    for ask in asks:
        slot, _, group = ask.section
        found.append([
            record_behind(keys, group, slot, subject, value)
            for subject in map(str.encode, ask.values)
            for value in _values(next(replies))
            if ask.id is None or letter_of(value, slot).envelope.id == ask.id
        ])  # fmt: skip
    return found


def _values(reply: Any) -> list[bytes]:
    if isinstance(reply, list):
        return reply
    return [] if reply is None else [reply]


def _held(
    redis: Redis, keys: SlotKeys, asks: Sequence[LookUp], now_ms: int  # noqa: ARG001
) -> list[list[Record]]:  # fmt: skip
    """The messages of keys that wait behind gaps."""
    replies = iter(redis.ask_many([
        (keys.key(ask.section.slot, "held"), "ZRANGEBYLEX", b"[" + key + b"\0", b"(" + key + b"\1",
         "LIMIT", 0, ask.limit)
        for ask in asks
        for key in map(str.encode, ask.values)
    ]))  # fmt: skip
    members = [[each for _ in ask.values for each in next(replies)] for ask in asks]
    return [
        records_of_held(redis, keys, ask.section.slot, some)
        for ask, some in zip(asks, members, strict=True)
    ]


def _dead(
    redis: Redis, keys: SlotKeys, asks: Sequence[LookUp], now_ms: int  # noqa: ARG001
) -> list[list[Record]]:  # fmt: skip
    """Dead letters by their numbers, ids or keys; asks for the same go together."""
    places: dict[tuple[str, tuple[str, ...], int], list[tuple[str, int]]] = {}
    for ask in asks:
        slot, _, group = ask.section
        places.setdefault((ask.by, tuple(ask.values), ask.limit), []).append((group, slot))
    found: dict[tuple[Any, ...], list[Record]] = {}
    for (by, values, limit), some in places.items():
        if by == "seq":
            numbers = [(group, slot, int(value)) for group, slot in some for value in values]
            records = records_at(redis, keys, numbers)
        else:
            lead = By.ID if by == "id" else By.KEY
            records = looked_up(redis, keys, some, values, lead, limit)
        for record in records:
            place = (by, values, limit, record.group or "", record.slot)
            found.setdefault(place, []).append(record)
    return [
        found.get((ask.by, tuple(ask.values), ask.limit, ask.section.group, ask.section.slot), [])
        for ask in asks
    ]


def spans(redis: Redis, keys: SlotKeys) -> dict[int, LogSpan]:
    """The part of each slot of a stream that is kept."""
    slots = keys.topic.all_slots
    replies = redis.ask_many([
        question
        for slot in slots
        for question in (
            (keys.key(slot, "first"), "GET"),
            (keys.key(slot, "head"), "GET"),
            (keys.key(slot, "log"), "XRANGE", "-", "+", "COUNT", 1),
        )
    ])  # fmt: skip
    found = {}
    for slot, first, head, entries in zip(
        slots, replies[::3], replies[1::3], replies[2::3], strict=True
    ):
        since_ms = None
        for _, fields in entries:
            named = dict(zip(fields[::2], fields[1::2], strict=False))
            since_ms = int(named.get(b"t", b"0"))
        found[slot] = LogSpan(int(first or 0), int(head or 0), since_ms)
    return found


def marked(redis: Redis, keys: SlotKeys, ids: Sequence[str], now_ms: int) -> list[Remembered]:
    """The slots that remember an id."""
    asked = [(slot, mark) for slot in keys.topic.all_slots for mark in ids]
    scores = redis.ask_many([(keys.key(slot, "ids"), "ZSCORE", mark) for slot, mark in asked])
    window_ms = keys.topic.dedupe_window_ms
    return [
        Remembered(slot, int(float(until)) - window_ms)
        for (slot, _), until in zip(asked, scores, strict=True)
        if until is not None and float(until) > now_ms
    ]
