"""Pages of whole hashes and sorted sets, in the order in which Redis has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from qframe.drivers.redis import Redis
from qframe.stores.records import Record, Section, SectionPage, Sought
from qframe.stores.redis.counts import counts_of
from qframe.stores.redis.envelopes import record_of_dead
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.leads import By, looked_up
from qframe.stores.redis.reading import place_of
from qframe.stores.redis.records import (
    record_behind,
    records_of_delayed,
    records_of_heads,
    records_of_held,
)
from qframe.stores.rules import BACKLOGGED
from qframe.topic import Kind

_SUBJECTS = 500


class Sections:
    """Reads sections of a topic, a page at a time.

    Args:
        redis: the connections.
        keys: the topic's.
        now_ms: the store's now.
        sought: what to read in a scan; None for all. Of other messages some are read too.
    """

    def __init__(
        self, redis: Redis, keys: SlotKeys, now_ms: int, sought: Sought | None = None
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._now_ms = now_ms
        self._is_scan = sought is not None
        self._sought = Sought() if sought is None else sought
        names = (self._sought.id, self._sought.key)
        self._texts = [] if self._is_assigned() else [name.encode() for name in names if name]

    def read(self, section: Section, after: str, limit: int) -> SectionPage:
        """A page of a section, behind what was read last.

        A backlog may be a million subjects of one message each. So in a scan a page of what is
        behind heads of ordered subjects has the heads too, lest it be long before anything is
        found; heads are no section then.
        """
        slot, part, group = section
        is_together = self._is_scan and self._keys.topic.kind is Kind.ORDERED and not self._texts
        if is_together and part == "heads":
            return SectionPage([], 0, None)
        if part == "behind":
            if is_together:
                return self._ordered(slot, group, after, limit, with_heads=True)
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

    def _is_assigned(self) -> bool:
        """Whether the id that is sought may stand nowhere, since it could not be read."""
        return self._sought.id is not None and place_of(self._sought.id) is not None

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
            found = records_of_held(self._redis, keys, slot, names)
            return sorted(found, key=lambda one: (one.subject or "", one.sequence or 0))
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
            parts = [(name, [value]) for name, value in zip(flat[::2], flat[1::2], strict=True)]
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
                parts.append((subject, self._redis.ask(name, "LRANGE", first, last - 1)))
            passed += length
        found = self._told(slot, group, parts)
        looked = len(subjects) + sum(len(values) for _, values in parts)
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
        self, slot: int, group: str, parts: Sequence[tuple[bytes, list[bytes]]]
    ) -> list[Record]:
        return [
            record_behind(self._keys, group, slot, subject, value)
            for subject, values in parts
            for value in values
            if self._may_fit(value)
        ]


def _next(cursor: bytes) -> str | None:
    return None if cursor == b"0" else cursor.decode()
