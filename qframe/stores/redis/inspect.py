"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from typing_extensions import override

from qframe.codec import time_of_token
from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.stores.base import Inspecting
from qframe.stores.faults import sentences
from qframe.stores.records import ChosenDead, Record, Stats
from qframe.stores.redis import dead
from qframe.stores.redis.audit import verify
from qframe.stores.redis.counts import StreamPosition, cursor_of, stats, stats_of
from qframe.stores.redis.envelopes import (
    TICKET,
    Attempts,
    QueuedMessage,
    delayed,
    letter_of,
    shown,
    state_of,
)
from qframe.stores.redis.groups import keeping, names
from qframe.stores.redis.keys import UNCLAIMED, SlotKeys
from qframe.stores.redis.logs import log
from qframe.stores.redis.role import RedisRole
from qframe.stores.rules import BACKLOGGED
from qframe.topic import Topic

PAGE = 200


class _StandingHead(NamedTuple):
    """A subject's head, and where it stands."""

    subject: bytes
    letter: QueuedMessage
    state: Attempts
    lease: int | None


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
    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        return self._call(topic, explain, message_id, self._now_ms())

    @override
    def verify(self, topic: Topic) -> list[str]:
        return sentences(self._call(topic, verify, self._now()))

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._now_ms()


def records_of_heads(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subjects: Sequence[bytes], now_ms: int
) -> list[Record]:
    """The heads of subjects, for people; none for those that there are not."""
    return [
        _record_of_head(keys, group, slot, each, now_ms)
        for each in _heads(redis, keys, group, slot, subjects)
    ]


def _heads(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subjects: Sequence[bytes]
) -> list[_StandingHead]:
    """The facts of each one that there is."""
    if not subjects:
        return []
    bodies, states, leases = redis.ask_many(
        [
            (keys.key(slot, "body", group), "HMGET", *subjects),
            (keys.key(slot, "tries", group), "HMGET", *subjects),
            (keys.key(slot, "doing", group), "ZMSCORE", *subjects),
        ]
    )
    return [
        _StandingHead(
            subject, letter_of(body, slot), state_of(state), int(float(lease)) if lease else None
        )
        for subject, body, state, lease in zip(subjects, bodies, states, leases, strict=True)
        if body is not None
    ]


def _record_of_head(
    keys: SlotKeys,
    group: str,
    slot: int,
    head: _StandingHead,
    now_ms: int,
) -> Record:
    subject, letter, state, lease = head
    stands = "doing" if state.receipt else "todo" if letter.due <= now_ms else "waiting"
    return record_of_message(
        keys, group, slot, letter.envelope, letter.published, stands,
        subject=shown(subject), seq=letter.seq, due_ms=letter.due, priority=letter.priority,
        attempts=state.tries,
        lost=state.lost, error=state.error, traceback=state.traceback,
        lease_until_ms=lease if state.receipt else None,
        held_since_ms=time_of_token(state.receipt), given=state.given,
    )  # fmt: skip


def record_behind(
    keys: SlotKeys, group: str, slot: int, head: Record, number: int, value: bytes
) -> Record:
    """The message at a number, from 1, behind a head: of its run, or after it."""
    one = letter_of(value, slot)
    in_run = head.state == "doing" and number < head.given
    return record_of_message(
        keys, group, slot, one.envelope, one.published,
        "todo" if head.state == "doing" and not in_run else head.state,
        subject=head.subject, seq=one.seq, due_ms=one.due, priority=one.priority,
        lease_until_ms=head.lease_until_ms if in_run else None,
        held_since_ms=head.held_since_ms if in_run else None,
    )  # fmt: skip


def records_of_delayed(
    redis: Redis, keys: SlotKeys, slot: int, members: Sequence[bytes]
) -> list[Record]:
    """The messages that join a stream later, for people; none for those that have joined it."""
    scores = redis.ask(keys.key(slot, "later"), "ZMSCORE", *members) if members else []
    found = []
    for member, due in zip(members, scores, strict=True):
        if due is not None:
            published, one = delayed(member, slot)
            facts = {"due_ms": int(float(due))}
            found.append(record_of_message(keys, None, slot, one, published, "waiting", **facts))
    return found


def record_of_log(
    keys: SlotKeys, group: str | None, slot: int, one: Delivery, state: str,
    position: StreamPosition | None = None,
) -> Record:  # fmt: skip
    """A message of a stream's log, for people."""
    is_doing = state == "doing" and position is not None
    return record_of_message(
        keys, group, slot, one, one.published_at_ms, state, seq=one.seq,
        lease_until_ms=position.lease_until_ms if position and is_doing else None,
        held_since_ms=time_of_token(position.receipt) if position and is_doing else None,
    )  # fmt: skip


def record_of_message(
    keys: SlotKeys,
    group: str | None,
    slot: int,
    one: Delivery,
    published: int,
    state: str,
    **facts: Any,
) -> Record:
    """A message, wherever it stands, for people."""
    fields: dict[str, Any] = {"subject": None, "seq": None, **facts}
    return Record(
        topic=keys.topic.name, group=group or None, slot=slot, state=state, id=one.id,
        key=one.key, headers=one.headers, body=one.body, published_at_ms=published, **fields,
    )  # fmt: skip


class SlotReader:
    """A look at one slot for one group; each part is fetched when it is reached."""

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
        start = cursor.floor if state == "doing" else cursor.read
        if state == "doing" and cursor.floor == cursor.read:
            return
        for one in log(self._redis, self._place, self._slot, start):
            if state == "doing" and one.seq >= cursor.read:
                return
            if cursor.state_of(one.seq) == state:
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

    def _record(self, head: _StandingHead) -> Record:
        return _record_of_head(self._place, self._group, self._slot, head, self._now_ms)

    def _standing(self, state: str) -> Iterator[_StandingHead]:
        if state == "todo":
            yield from self._todo()
            return
        subjects: list[bytes] = []
        for name in ("doing",) if state == "doing" else ("waiting", "retry"):
            subjects += self._redis.ask(
                self._place.key(self._slot, name, self._group), "ZRANGE", 0, -1
            )
        heads = _heads(self._redis, self._place, self._group, self._slot, subjects)
        yield from sorted(heads, key=lambda one: (one.lease or 0, one.letter.due, one.letter.seq))

    def _todo(self) -> Iterator[_StandingHead]:
        start = 0
        key = self._place.key(self._slot, "todo", self._group)
        while members := self._redis.ask(key, "ZRANGE", start, start + PAGE - 1):
            subjects = [member[TICKET.size :] for member in members]
            yield from _heads(self._redis, self._place, self._group, self._slot, subjects)
            start += PAGE

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
        for member in self._redis.ask(keys.key(slot, "held"), "ZRANGE", 0, self._at_most):
            value, passed = self._redis.ask_many(
                [
                    (keys.key(slot, "letters"), "HGET", member),
                    (keys.key(slot, "gaps"), "ZSCORE", member),
                ]
            )
            if value is None or passed is None:
                continue
            letter = letter_of(value, slot)
            sequence = int.from_bytes(member[-8:], "big")
            yield record_of_message(
                keys, None, slot, letter.envelope, letter.published, "held",
                subject=shown(member[:-9]), due_ms=int(float(passed)), priority=letter.priority,
                error=f"waits for a sequence number before {sequence}", sequence=sequence,
            )  # fmt: skip


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


def explain(redis: Redis, keys: SlotKeys, message_id: str, now_ms: int) -> list[Record]:
    """Where a message stands now: a record for each place."""
    found: list[Record] = []
    everything = 2**31
    groups: list[str | None] = [None]
    if keys.topic.has_subjects:
        groups = list(keeping(redis, keys))
    elif named := names(redis, keys):
        groups = list(named)
    for slot in keys.topic.all_slots:
        logged = []
        if not keys.topic.has_subjects:
            logged = [one for one in log(redis, keys, slot, 0) if one.id == message_id]
        for group in groups:
            mine: list[Record] = []
            if group is not None:
                reader = SlotReader(redis, keys, group, slot, now_ms=now_ms, at_most=everything)
                mine = [
                    record for record in _standing(reader, redis, keys, group, slot)
                    if record.id == message_id
                ]  # fmt: skip
            stands = {record.seq for record in mine}
            for one in logged:
                if one.seq not in stands:
                    position = None if group is None else cursor_of(redis, keys, group, slot)
                    state = "todo" if position is None else position.state_of(one.seq)
                    mine.append(record_of_log(keys, group, slot, one, state, position))
            found += mine
        kept = SlotReader(redis, keys, UNCLAIMED, slot, now_ms=now_ms, at_most=everything)
        found += [record for record in kept.kept_back() if record.id == message_id]
    return found


def _standing(
    reader: SlotReader, redis: Redis, keys: SlotKeys, group: str, slot: int
) -> Iterator[Record]:
    """Heads, what is behind them, and the dead."""
    for state in ("doing", "todo", "waiting"):
        yield from reader.heads(state)
    yield from dead.of_slots(redis, keys, group, [slot], ChosenDead())
