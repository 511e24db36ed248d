"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.stores.base import Inspecting
from qframe.stores.faults import sentences
from qframe.stores.records import ChosenDead, Record, Stats
from qframe.stores.redis import dead
from qframe.stores.redis.audit import verify
from qframe.stores.redis.counts import cursor_of, stats, stats_of
from qframe.stores.redis.envelopes import TICKET
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.logs import read_log
from qframe.stores.redis.records import (
    StandingHead,
    heads_of,
    record_behind,
    record_of_head,
    record_of_log,
    records_of_delayed,
    records_of_held,
)
from qframe.stores.redis.role import RedisRole
from qframe.stores.rules import BACKLOGGED
from qframe.topic import Topic

PAGE: Final = 200
_PLACES: Final = {"doing": ("doing",), "todo": ("todo",), "waiting": ("waiting", "retry")}


class RedisInspecting(RedisRole, Inspecting):
    """Counts, records and the audit."""

    @override
    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        return self._call(topic, stats, group, self._now())

    @override
    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        return self._call(topic, peek, group, states, limit, self._now(), self._now_ms())

    @override
    def verify(self, topic: Topic) -> list[str]:
        return sentences(self._call(topic, verify, self._now()))

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._now_ms()


class SlotReader:
    """A look at one slot for one group, at up to `at_most` of each sort.

    Each part is fetched when it is reached, some at a time: of a million that wait, those that come
    next are read without the others.
    """

    def __init__(
        self, redis: Redis, keys: SlotKeys, group: str, slot: int, *, now_ms: int, at_most: int
    ) -> None:
        self._redis = redis
        self._place = keys
        self._group = group
        self._slot = slot
        self._now_ms = now_ms
        self._at_most = at_most

    def records(self) -> Iterator[Record]:
        """Messages that are not settled: doing, todo, waiting, held back, dead."""
        if self._place.topic.has_subjects:
            yield from self.heads("doing")
            yield from self.heads("todo")
        else:
            yield from self.line("doing")
            yield from self.heads("doing")
            yield from self.heads("todo")
            yield from self.line("todo")
        yield from self.heads("waiting")
        yield from self.kept_back()
        yield from dead.of_slots(
            self._redis, self._place, self._group, [self._slot], ChosenDead(limit=self._at_most)
        )

    def line(self, state: str) -> Iterator[Record]:
        """The parts of a stream's line that are handed out, or still to come."""
        cursor = cursor_of(self._redis, self._place, self._group, self._slot)
        todo = (cursor.read, cursor.read + self._at_most)
        for start, stop in cursor.doing() if state == "doing" else [todo]:
            limit = min(stop - start, self._at_most)
            for one in read_log(self._redis, self._place, self._slot, start, limit):
                if one.seq < stop:
                    yield record_of_log(self._place, self._group, self._slot, one, state, cursor)

    def heads(self, state: str) -> Iterator[Record]:
        """Heads that stand in a state, each followed by what is behind it."""
        for each in self._standing(state):
            head = self._record(each)
            yield head
            for number, value in enumerate(self.behind(each.subject), start=1):
                yield record_behind(self._place, self._group, self._slot, head, number, value)

    def first(self, state: str) -> Iterator[Record]:
        """Heads that stand in a state."""
        return map(self._record, self._standing(state))

    def _record(self, head: StandingHead) -> Record:
        return record_of_head(self._place, self._group, self._slot, head, self._now_ms)

    def _standing(self, state: str) -> Iterator[StandingHead]:
        """Heads that stand in a state, the next ones first; of one moment, by their subjects."""
        scored = islice(merge(*map(self._scored, _PLACES[state])), self._at_most)
        while page := [subject for _, subject in islice(scored, PAGE)]:
            yield from heads_of(self._redis, self._place, self._group, self._slot, page)

    def _scored(self, name: str) -> Iterator[tuple[float, bytes]]:
        """The subjects of a sorted set with their scores, in order."""
        key = self._place.key(self._slot, name, self._group)
        start, size = 0, min(PAGE, self._at_most)
        cut = TICKET.size if name == "todo" else 0
        while page := self._redis.ask(key, "ZRANGE", start, start + size - 1, "WITHSCORES"):
            for member, score in zip(page[::2], page[1::2], strict=True):
                yield float(score), member[cut:]
            start += size

    def behind(self, subject: bytes) -> list[bytes]:
        """The messages behind a head."""
        keys, slot = self._place, self._slot
        if keys.topic.kind in BACKLOGGED:
            key = keys.key(slot, "behind:", self._group) + subject
            found: list[bytes] = self._redis.ask(key, "LRANGE", 0, self._at_most)
            return found
        following = self._redis.ask(keys.key(slot, "next", self._group), "HGET", subject)
        return [] if following is None else [following]

    def kept_back(self) -> Iterator[Record]:
        """Messages that no group has seen yet: delayed before a stream, held behind gaps."""
        keys, slot = self._place, self._slot
        later = self._redis.ask(keys.key(slot, "later"), "ZRANGE", 0, self._at_most)
        yield from records_of_delayed(self._redis, keys, slot, later)
        held = self._redis.ask(keys.key(slot, "held"), "ZRANGE", 0, self._at_most)
        yield from records_of_held(self._redis, keys, slot, held)


def peek(
    redis: Redis,
    keys: SlotKeys,
    group: str,
    states: Sequence[str],
    limit: int,
    now: str,
    now_ms: int,
) -> list[Record]:
    """Messages that stand in one of these states, slot by slot, next ones first."""
    stats_of(
        redis, keys, group, keys.topic.all_slots, now
    )  # refuses an unknown group, and promotes what is due
    found: list[Record] = []
    for slot in keys.topic.all_slots:
        reader = SlotReader(redis, keys, group, slot, now_ms=now_ms, at_most=limit)
        wanted = (record for record in reader.records() if record.state in states)
        found += islice(wanted, limit - len(found))
        if len(found) >= limit:
            break
    return found
