"""Finding messages, and changing nothing: by names of keys and subjects, then entry by entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from typing_extensions import override

from qframe.codec import KEYLESS, batch_mark_of
from qframe.drivers.redis import Redis
from qframe.stores.base import Searching
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.records import Found, HistoryEntry, LogSpan, Record, Remembered, ScanPage, Sought
from qframe.stores.redis import histories
from qframe.stores.redis.dead import By, looked_up, records_at
from qframe.stores.redis.envelopes import NUMBER, TICKET, letter_of
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.logs import read_log
from qframe.stores.redis.records import record_behind, records_of_heads, records_of_held
from qframe.stores.redis.role import RedisRole
from qframe.stores.redis.scan import RedisLineReader, RedisPages, groups_of
from qframe.stores.searching import Span, scanned, sections_of, spans_of
from qframe.topic import Kind, Topic

_MOST_OF_A_TIME: Final = 2000


class RedisSearching(RedisRole, Searching):
    """Look-ups, and pages of whole hashes."""

    @override
    def find(self, topic: Topic, sought: Sought, limit: int = 100) -> Found:
        return self._call(topic, find, sought, limit, self._now_ms())

    @override
    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        found = self._call(topic, histories.found, message_id, slot)
        return in_time(found, topic, self._now_ms())

    @override
    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        found = self._call(topic, histories.found_by_key, key)
        return in_time(of_last_slots(found), topic, self._now_ms())

    @override
    def scan(
        self, topic: Topic, place: str | None = None, limit: int = 500,
        sought: Sought | None = None,
    ) -> ScanPage:  # fmt: skip
        return self._call(topic, scan, place, limit, sought, self._now_ms())


def find(redis: Redis, keys: SlotKeys, sought: Sought, limit: int, now_ms: int) -> Found:
    """Finds what names of keys and subjects lead to."""
    look = _RedisLookUp(redis, keys, sought, limit, now_ms)
    if keys.topic.has_subjects:
        return Found(look.subjects(), look.remembered)
    return Found(look.stream(), look.remembered, look.kept)


def scan(
    redis: Redis, keys: SlotKeys, place: str | None, limit: int, sought: Sought | None, now_ms: int
) -> ScanPage:
    """A page of all that there is."""
    groups = groups_of(redis, keys)
    pages = RedisPages(redis, keys, groups, now_ms, sought)
    sections = sections_of(keys.topic, sorted(groups), sought)
    return scanned(sections, place, limit, pages.read_queues, sought)


class _RedisLookUp:
    """One look-up.

    Args:
        redis: the connections.
        keys: the topic's.
        sought: what is sought.
        limit: how many behind a head at most.
        now_ms: the store's now.
    """

    def __init__(
        self, redis: Redis, keys: SlotKeys, sought: Sought, limit: int, now_ms: int
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._sought = sought
        self._limit = limit
        self._now_ms = now_ms
        self._groups = groups_of(redis, keys)
        self._slots = keys.topic.all_slots if sought.slot is None else [sought.slot]
        self.remembered: list[Remembered] = self._remembered()
        self.kept: dict[int, LogSpan] = {}

    def stream(self) -> list[Record]:
        """Messages of a stream: of its log, and of the dead."""
        self.kept = _spans(self._redis, self._keys)
        sought = self._sought
        dead = self._dead()
        offsets = {(one.slot, one.seq) for one in dead if one.seq is not None}
        if sought.offset is not None:
            offsets |= {(slot, sought.offset) for slot in self._slots}
        elif sought.id is not None:
            offsets |= set(self._offsets_of(sought.id))
        reader = RedisLineReader(self._redis, self._keys, self._groups, self._now_ms)
        found = [
            record for slot, offset in sorted(offsets)
            for record in reader.everywhere(slot, offset)
            if sought.fits(record)
        ]  # fmt: skip
        known = {(one.group, one.slot, one.seq) for one in found}
        return found + [one for one in dead if (one.group, one.slot, one.seq) not in known]

    def subjects(self) -> list[Record]:
        """Messages of subjects: heads, what is behind them, what is held, the dead."""
        sought = self._sought
        dead = self._dead()
        wanted = {one.subject.encode() for one in dead if one.subject is not None}
        if sought.key is not None:
            wanted.add(sought.key.encode())
        elif sought.id is not None:
            if self._keys.topic.subject == "id":
                wanted.add((KEYLESS + sought.id).encode())
            wanted |= set(self._subjects_due(sought.id))
        found = [record for subject in sorted(wanted) for record in self._of_subject(subject)]
        return [record for record in found if sought.fits(record)] + dead

    def _remembered(self) -> list[Remembered]:
        if self._sought.id is None:
            return []
        wanted = [each for each in (self._sought.id, batch_mark_of(self._sought.id)) if each]
        asked = [(slot, mark) for slot in self._keys.topic.all_slots for mark in wanted]
        scores = self._redis.ask_many(
            [(self._keys.key(slot, "ids"), "ZSCORE", mark) for slot, mark in asked]
        )
        window_ms = self._keys.topic.dedupe_window_ms
        return [
            Remembered(slot, int(float(until)) - window_ms)
            for (slot, _), until in zip(asked, scores, strict=True)
            if until is not None and float(until) > self._now_ms
        ]

    def _of_subject(self, subject: bytes) -> Iterator[Record]:
        """A subject in every slot and group, since its slot need not follow from it."""
        everywhere = [(group, slot) for group in self._groups for slot in self._slots]
        there = self._redis.ask_many(
            [(self._keys.key(slot, "body", name), "HEXISTS", subject) for name, slot in everywhere]
        )
        for (group, slot), is_there in zip(everywhere, there, strict=True):
            if is_there:
                yield from self._with_behind(group, slot, subject)
        first, last = b"[" + subject + b"\0", b"(" + subject + b"\1"
        held = self._redis.ask_many(
            [
                (self._keys.key(slot, "held"), "ZRANGEBYLEX", first, last, "LIMIT", 0, self._limit)
                for slot in self._slots
            ]
        )
        for slot, members in zip(self._slots, held, strict=True):
            yield from records_of_held(self._redis, self._keys, slot, members)

    def _with_behind(self, group: str, slot: int, subject: bytes) -> Iterator[Record]:
        """A head and what is behind it; one that is sought by its id however far behind."""
        records = records_of_heads(self._redis, self._keys, group, slot, [subject], self._now_ms)
        if not records:
            return
        [head] = records
        yield head
        if self._keys.topic.kind is not Kind.ORDERED:
            key = self._keys.key(slot, "next", group)
            values = [value] if (value := self._redis.ask(key, "HGET", subject)) else []
            start = 0
        else:
            key = self._keys.key(slot, "behind:", group) + subject
            for start in range(0, 2**31, self._limit):
                values = self._redis.ask(key, "LRANGE", start, start + self._limit - 1)
                ids = [letter_of(value, slot).envelope.id for value in values]
                if self._sought.id is None or self._sought.id in ids or len(ids) < self._limit:
                    break
        for number, value in enumerate(values, start=start + 1):
            yield record_behind(self._keys, group, slot, head, number, value)

    def _dead(self) -> list[Record]:
        """Dead letters of the id or the key, or at the offset."""
        everywhere = [(group, slot) for group in self._groups for slot in self._slots]
        sought = self._sought
        if sought.offset is not None:
            places = [(group, slot, sought.offset) for group, slot in everywhere]
            return records_at(self._redis, self._keys, places)
        text, by = (sought.id, By.ID) if sought.id is not None else (sought.key or "", By.KEY)
        found = looked_up(self._redis, self._keys, everywhere, {text}, by, self._limit)
        return [one for one in found if sought.fits(one)][: self._limit]

    def _offsets_of(self, message_id: str) -> Iterator[tuple[int, int]]:
        """Where a stream's log has an id, among the messages of its time."""
        spans = spans_of(self._sought, self.remembered, self._slots)
        calls = [self._keys.call("offsets_at", slot, from_ms) for slot, from_ms, _ in spans]
        starts = self._redis.run(calls) if calls else []
        for (slot, _, to_ms), start in zip(spans, starts, strict=True):
            for one in read_log(self._redis, self._keys, slot, int(start), _MOST_OF_A_TIME):
                if one.published_at_ms > to_ms:
                    break
                if one.id == message_id:
                    yield slot, one.seq

    def _subjects_due(self, message_id: str) -> Iterator[bytes]:
        """The subjects of heads with an id that are due since they were published."""
        name = message_id.encode()
        places = [
            (group, span)
            for span in spans_of(self._sought, self.remembered, self._slots)
            for group in self._groups
        ]
        waiting = self._redis.ask_many([
            (self._keys.key(span.slot, "waiting", group), "ZRANGEBYSCORE", span.from_ms, span.to_ms,
             "LIMIT", 0, _MOST_OF_A_TIME)
            for group, span in places
        ])  # fmt: skip
        subjects = {
            place: [*some, *todo]
            for place, some, todo in zip(places, waiting, self._todo_since(places), strict=True)
            if some or todo
        }
        bodies = self._redis.ask_many([
            (self._keys.key(span.slot, "body", group), "HMGET", *some)
            for (group, span), some in subjects.items()
        ])  # fmt: skip
        for ((_, span), some), values in zip(subjects.items(), bodies, strict=True):
            for subject, value in zip(some, values, strict=True):
                if value is None or name not in value:  # most are not worth decoding
                    continue
                if letter_of(value, span.slot).envelope.id == message_id:
                    yield subject

    def _todo_since(self, places: Sequence[tuple[str, Span]]) -> list[list[bytes]]:
        """Subjects of the rank 0 that are due in each span, found by halving: all at once."""
        keys = [self._keys.key(span.slot, "todo", group) for group, span in places]
        ranks = self._redis.ask_many([
            (key, "ZCOUNT", "-inf", last) for last in ("(0", 0) for key in keys
        ])  # fmt: skip
        low, high, ends = ranks[: len(keys)], ranks[len(keys) :], ranks[len(keys) :]
        while unsure := [n for n in range(len(keys)) if low[n] < high[n]]:
            middles = [(low[n] + high[n]) // 2 for n in unsure]
            found = self._redis.ask_many([
                (keys[n], "ZRANGE", at, at) for n, at in zip(unsure, middles, strict=True)
            ])  # fmt: skip
            for n, middle, members in zip(unsure, middles, found, strict=True):
                if not members or NUMBER.unpack(members[0][:8])[0] >= places[n][1].from_ms:
                    high[n] = middle
                else:
                    low[n] = middle + 1
        pages = self._redis.ask_many([
            (key, "ZRANGE", start, start + _MOST_OF_A_TIME - 1)
            for key, start in zip(keys, low, strict=True)
        ])  # fmt: skip
        return [
            [
                member[TICKET.size :]
                for member in members[: max(0, end - start)]
                if NUMBER.unpack(member[:8])[0] <= span.to_ms
            ]
            for (_, span), start, end, members in zip(places, low, ends, pages, strict=True)
        ]


def _spans(redis: Redis, keys: SlotKeys) -> dict[int, LogSpan]:
    """The part of each slot of a stream that is kept."""
    slots = keys.topic.all_slots
    replies = redis.ask_many(
        [
            question
            for slot in slots
            for question in (
                (keys.key(slot, "first"), "GET"),
                (keys.key(slot, "head"), "GET"),
                (keys.key(slot, "log"), "XRANGE", "-", "+", "COUNT", 1),
            )
        ]
    )
    found = {}
    for number, slot in enumerate(slots):
        first, head, entries = replies[3 * number : 3 * number + 3]
        since_ms = None
        for _, fields in entries:
            named = dict(zip(fields[::2], fields[1::2], strict=False))
            since_ms = int(named.get(b"t", b"0"))
        found[slot] = LogSpan(int(first or 0), int(head or 0), since_ms)
    return found
