"""RedisPages of whole hashes and sorted sets, and where messages of a log stand for groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.stores.records import Record, Section, SectionPage, Sought
from qframe.stores.redis.counts import StreamPosition, counts_of, cursor_of
from qframe.stores.redis.dead import By, looked_up
from qframe.stores.redis.envelopes import NUMBER, record_of_dead
from qframe.stores.redis.groups import keeping, names
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.logs import read_log
from qframe.stores.redis.reading import place_of
from qframe.stores.redis.records import (
    record_behind,
    record_of_log,
    records_of_delayed,
    records_of_heads,
    records_of_held,
)
from qframe.stores.rules import BACKLOGGED, subject_of_parked
from qframe.topic import Kind

_SUBJECTS = 500


def groups_of(redis: Redis, keys: SlotKeys) -> list[str]:
    """The groups that may have something of a topic."""
    return list(keeping(redis, keys) if keys.topic.has_subjects else names(redis, keys))


class RedisLineReader:
    """Where messages of a stream's log stand for groups.

    Args:
        redis: the connections.
        keys: the stream's.
        groups: the names of its groups.
        now_ms: the store's now.
    """

    def __init__(self, redis: Redis, keys: SlotKeys, groups: Sequence[str], now_ms: int) -> None:
        self._redis = redis
        self._keys = keys
        self._groups = groups
        self._now_ms = now_ms
        self._known: dict[tuple[str, int], StreamPosition] = {}

    def everywhere(self, slot: int, offset: int) -> Iterator[Record]:
        """The record of a message for each group, wherever it stands."""
        messages = read_log(self._redis, self._keys, slot, offset, 1)
        one = messages[0] if messages and messages[0].seq == offset else None
        subject, member = b"%d" % offset, NUMBER.pack(offset)
        for group in self._groups:
            heads = records_of_heads(self._redis, self._keys, group, slot, [subject], self._now_ms)
            if not heads and one is not None:
                parked = self._parked(group, slot, [one])
                heads = [parked[offset]] if offset in parked else []
            if heads:
                yield heads[0]
                continue
            died, value = self._redis.ask_many(
                [
                    (self._keys.key(slot, "dead", group), "ZSCORE", member),
                    (self._keys.key(slot, "graves", group), "HGET", member),
                ]
            )
            if died is not None and value is not None:
                yield record_of_dead(self._keys.topic.name, group, slot, member, float(died), value)
            elif one is not None:
                yield self._in_line(group, slot, one)
        if one is not None and not self._groups:
            yield record_of_log(self._keys, None, slot, one, "todo")

    def page(self, slot: int, messages: Sequence[Delivery]) -> Iterator[Record]:
        """The records of messages, for each group that has nothing else of them."""
        if not messages:
            return
        subjects = [b"%d" % one.seq for one in messages]
        members = [NUMBER.pack(one.seq) for one in messages]
        for group in self._groups:
            queued, died = self._redis.ask_many(
                [
                    (self._keys.key(slot, "body", group), "HMGET", *subjects),
                    (self._keys.key(slot, "dead", group), "ZMSCORE", *members),
                ]
            )
            parked = self._parked(group, slot, messages)
            for one, is_queued, is_dead in zip(messages, queued, died, strict=True):
                if is_queued is None and is_dead is None and one.seq not in parked:
                    yield self._in_line(group, slot, one)
        if not self._groups:
            for one in messages:
                yield record_of_log(self._keys, None, slot, one, "todo")

    def _in_line(self, group: str, slot: int, one: Delivery) -> Record:
        position = self._position(group, slot)
        state = position.state_of(one.seq)
        return record_of_log(self._keys, group, slot, one, state, position)

    def _position(self, group: str, slot: int) -> StreamPosition:
        position = self._known.get((group, slot))
        if position is None:
            position = cursor_of(self._redis, self._keys, group, slot)
            self._known[group, slot] = position
        return position

    def _parked(self, group: str, slot: int, messages: Sequence[Delivery]) -> dict[int, Record]:
        """The records of what is parked of the keys of some messages, by offset."""
        named = {
            subject_of_parked(one.key, one.seq).encode()
            for one in messages if one.key is not None
        }  # fmt: skip
        if not named or not self._position(group, slot).has_backlog:
            return {}
        found: dict[int, Record] = {}
        heads = records_of_heads(self._redis, self._keys, group, slot, sorted(named), self._now_ms)
        for head in heads:
            found[head.seq or 0] = head
            key = self._keys.key(slot, "behind:", group) + (head.subject or "").encode()
            for number, value in enumerate(self._redis.ask(key, "LRANGE", 0, -1), start=1):
                record = record_behind(self._keys, group, slot, head, number, value)
                found[record.seq or 0] = record
        return found


class RedisPages:
    """Reads sections of a topic, a page at a time.

    Args:
        redis: the connections.
        keys: the topic's.
        groups: the names of its groups.
        now_ms: the store's now.
        sought: what to read; None for all. Of other messages some are read too.
    """

    def __init__(
        self, redis: Redis, keys: SlotKeys, groups: Sequence[str], now_ms: int,
        sought: Sought | None = None,
    ) -> None:  # fmt: skip
        self._redis = redis
        self._keys = keys
        self._now_ms = now_ms
        self._log = RedisLineReader(redis, keys, groups, now_ms)
        self._sought = Sought() if sought is None else sought
        names = (self._sought.id, self._sought.key)
        self._texts = [] if self._is_assigned() else [name.encode() for name in names if name]

    def read(self, section: Section, after: str, limit: int) -> SectionPage:
        """A page of a section, behind what was read last."""
        slot, part, group = section
        if part == "line":
            messages = read_log(self._redis, self._keys, slot, int(after or 0), limit)
            more = str(messages[-1].seq + 1) if len(messages) >= limit else None
            wanted = [one for one in messages if self._names(one)]
            return SectionPage(list(self._log.page(slot, wanted)), len(messages), more)
        if part == "behind":
            return self._behind(slot, group, after, limit)
        if part == "dead" and self._texts:
            return SectionPage(self._dead(slot, group), 0, None)
        name, word = {
            "later": ("later", "ZSCAN"), "held": ("letters", "HSCAN"), "heads": ("body", "HSCAN"),
            "dead": ("graves", "HSCAN"),
        }[part]  # fmt: skip
        key = self._keys.key(slot, name, group if part in ("heads", "dead") else None)
        cursor, flat = self._redis.ask(key, word, after or "0", "COUNT", limit)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        fitting = [(name, value) for name, value in pairs if self._may_fit(name + value)]
        records = self._records(part, slot, group, fitting)
        return SectionPage(records, len(pairs), _next(cursor))

    def read_queues(self, section: Section, after: str, limit: int) -> SectionPage:
        """A page as `read` has it, but that whole queues of ordered subjects stand together.

        A backlog may be a million subjects of one message each. So a page of what is behind heads
        has the heads too, lest it be long before anything is found; heads are no section then.
        """
        is_together = self._keys.topic.kind is Kind.ORDERED and not self._texts
        if section.part not in ("behind", "heads") or not is_together:
            return self.read(section, after, limit)
        if section.part == "heads":
            return SectionPage([], 0, None)
        return self._ordered(section.slot, section.group, after, limit, with_heads=True)

    def _is_assigned(self) -> bool:
        """Whether the id that is sought may stand nowhere, since it could not be read."""
        return self._sought.id is not None and place_of(self._sought.id) is not None

    def _names(self, message: Delivery) -> bool:
        sought = self._sought
        return sought.id in (None, message.id) and sought.key in (None, message.key)

    def _may_fit(self, value: bytes) -> bool:
        """Whether what stands in some bytes may be sought."""
        return all(text in value for text in self._texts)

    def _dead(self, slot: int, group: str) -> list[Record]:
        by, text = (By.ID, self._sought.id) if self._sought.id else (By.KEY, self._sought.key)
        return looked_up(self._redis, self._keys, [(group, slot)], {text or ""}, by)

    def _records(
        self, part: str, slot: int, group: str, pairs: Sequence[tuple[bytes, bytes]]
    ) -> list[Record]:
        keys, names = self._keys, [name for name, _ in pairs]
        if not pairs:
            return []
        if part == "heads":
            return records_of_heads(self._redis, keys, group, slot, names, self._now_ms)
        if part == "later":
            return records_of_delayed(self._redis, keys, slot, names)
        if part == "held":
            return records_of_held(self._redis, keys, slot, names)
        died = self._redis.ask(keys.key(slot, "dead", group), "ZMSCORE", *names)
        return [
            record_of_dead(keys.topic.name, group, slot, member, float(at), value)
            for (member, value), at in zip(pairs, died, strict=True)
            if at is not None
        ]

    def _behind(self, slot: int, group: str, after: str, limit: int) -> SectionPage:
        """Messages behind heads, some subjects at a time, of which a page may end in the middle."""
        if self._keys.topic.kind not in BACKLOGGED:
            key = self._keys.key(slot, "next", group)
            cursor, flat = self._redis.ask(key, "HSCAN", after or "0", "COUNT", limit)
            parts = [(name, 0, [value]) for name, value in zip(flat[::2], flat[1::2], strict=True)]
            return SectionPage(self._told(slot, group, parts), len(parts), _next(cursor))
        is_ordered = self._keys.topic.kind is Kind.ORDERED
        may_be_empty = not after and (self._texts or not is_ordered)
        if may_be_empty and not self._has_behind(slot, group):
            return SectionPage([], 0, None)
        return self._ordered(slot, group, after, limit)

    def _ordered(
        self, slot: int, group: str, after: str, limit: int, *, with_heads: bool = False
    ) -> SectionPage:
        """Messages behind heads of queues, and then the heads of the queues that were read."""
        start, skipped, count = "0", 0, min(limit, _SUBJECTS)
        if after:
            start, *inside = msgspec.json.decode(after, type=list[Any])
            skipped, count = inside or (0, count)  # what ended inside these queues has them again
        key = self._keys.key(slot, "body", group)
        cursor, flat = self._redis.ask(key, "HSCAN", start, "COUNT", count)
        subjects = flat[::2]
        lists = [self._keys.key(slot, "behind:", group) + subject for subject in subjects]
        lengths = self._redis.ask_many([(each, "LLEN") for each in lists]) if lists else []
        parts, passed, end = [], 0, skipped + limit
        for subject, name, length in zip(subjects, lists, lengths, strict=True):
            first, last = max(0, skipped - passed), min(length, end - passed)
            if first < last:
                parts.append((subject, first, self._redis.ask(name, "LRANGE", first, last - 1)))
            passed += length
        found = self._told(slot, group, parts)
        looked = len(subjects) + sum(len(values) for _, _, values in parts)
        if end < passed:
            return SectionPage(found, looked, msgspec.json.encode((start, end, count)).decode())
        if with_heads:
            found += self._records("heads", slot, group, list(zip(subjects, subjects, strict=True)))
        more = _next(cursor)
        following = None if more is None else msgspec.json.encode((more,)).decode()
        return SectionPage(found, looked, following)

    def _has_behind(self, slot: int, group: str) -> bool:
        """Whether a slot has more messages than heads, by its counts."""
        counts = counts_of(self._redis, self._keys, group, slot)
        if not self._keys.topic.has_subjects:
            return counts.behind > 0
        heads: int = self._redis.ask(self._keys.key(slot, "body", group), "HLEN")
        return counts.unsettled() - counts.held > heads

    def _told(
        self, slot: int, group: str, parts: Sequence[tuple[bytes, int, list[Any]]]
    ) -> list[Record]:
        found: list[Record] = []
        for subject, first, values in parts:
            if not any(map(self._may_fit, values)):
                continue
            heads = records_of_heads(self._redis, self._keys, group, slot, [subject], self._now_ms)
            found += [
                record_behind(self._keys, group, slot, head, number, value)
                for head in heads
                for number, value in enumerate(values, start=first + 1)
            ]
        return found


def _next(cursor: bytes) -> str | None:
    return None if cursor == b"0" else cursor.decode()
