"""Changing and finding what is not handed out."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Any, NamedTuple

from typing_extensions import override

from qframe.codec import KEYLESS
from qframe.drivers.redis import Redis
from qframe.drivers.scripts import Refused
from qframe.outcomes import Moved
from qframe.stores.acts import StoredTimers
from qframe.stores.history import changes_of
from qframe.stores.records import Record, TimerPlace
from qframe.stores.redis.envelopes import META, TICKET, pack
from qframe.stores.redis.groups import keeping
from qframe.stores.redis.histories import lines_of
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.records import records_of_delayed, records_of_heads
from qframe.stores.redis.role import RedisRole
from qframe.stores.rules import RANKED
from qframe.topic import Topic


class RedisTimers(RedisRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def edit(
        self,
        topic: Topic,
        subject: str,
        *,
        due_ms: int | None = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        if_due_ms: int | None = None,
        by: str | None = None,
    ) -> Moved:
        return self._call(
            topic, edit, subject, self._now(), due_ms=due_ms, body=body, headers=headers,
            if_due_ms=if_due_ms, by=by, answered={},
        )  # fmt: skip

    @override
    def cancel(
        self, topic: Topic, subject: str, *, if_due_ms: int | None = None, by: str | None = None
    ) -> Moved:
        return self._call(
            topic, cancel, subject, self._now(), if_due_ms=if_due_ms, by=by, answered={}
        )

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        return self._call(topic, timer, subject, self._now_ms())

    @override
    def timers(
        self,
        topic: Topic,
        *,
        from_ms: int = 0,
        until_ms: int | None = None,
        limit: int = 100,
        after: TimerPlace | None = None,
    ) -> list[Record]:
        span = _TimerSpan(
            max(0, from_ms), 2**53 if until_ms is None else max(0, until_ms), limit, after
        )
        return self._call(topic, timers, span, self._now_ms())


class _TimerSpan(NamedTuple):
    """The timers of a page: due in `[from_ms, until_ms)`, and behind a place."""

    from_ms: int
    until_ms: int
    limit: int
    after: TimerPlace | None

    @property
    def first_ms(self) -> int:
        """The due time from which on they are looked for."""
        return max(self.from_ms, self.after.due_ms if self.after else 0)


class _StandingTimer(NamedTuple):
    """A subject that waits or is due, for a group."""

    due_ms: int
    slot: int
    group: str
    subject: bytes


def edit(
    redis: Redis,
    keys: SlotKeys,
    subject: str,
    now: str,
    *,
    due_ms: int | None,
    body: bytes | None,
    headers: dict[str, str] | None,
    if_due_ms: int | None,
    by: str | None,
    answered: dict[int, Any],
) -> Moved:
    """Makes a subject due at another time, or gives it another body, for every group."""
    return _change(
        redis, keys, answered, "edit", subject, now, str(keys.topic.kind), subject,
        "" if due_ms is None else max(0, due_ms), b"" if body is None else pack(body),
        pack(headers), "" if if_due_ms is None else if_due_ms,
        lines_of(keys, by, changes_of(due_ms, body)),
    )  # fmt: skip


def cancel(
    redis: Redis, keys: SlotKeys, subject: str, now: str, *, if_due_ms: int | None, by: str | None,
    answered: dict[int, Any],
) -> Moved:  # fmt: skip
    """Takes a subject out with all its messages, for every group."""
    return _change(
        redis, keys, answered, "cancel", subject, now, str(keys.topic.kind), subject,
        "" if if_due_ms is None else if_due_ms, lines_of(keys, by),
    )  # fmt: skip


def timer(redis: Redis, keys: SlotKeys, subject: str, now_ms: int) -> list[Record]:
    """Where the subject stands: a record for each group that has it."""
    found = []
    for group in keeping(redis, keys):
        for slot in _slots_of(keys, subject):
            found += records_of_heads(redis, keys, group, slot, [subject.encode()], now_ms)
    return found


def timers(redis: Redis, keys: SlotKeys, span: _TimerSpan, now_ms: int) -> list[Record]:
    """The timers due in a span, in the order of their places."""
    found: list[Record] = []
    standing: list[_StandingTimer] = []
    groups = keeping(redis, keys)
    for slot in keys.topic.all_slots:
        for group in groups:
            pairs = _due(redis, keys, slot, group, span)
            for name in ("waiting", "retry"):
                pairs += _scored(redis, keys.key(slot, name, group), span)
            standing += [_StandingTimer(due_ms, slot, group, subject) for due_ms, subject in pairs]
        if not keys.topic.has_subjects:
            members = [member for _, member in _scored(redis, keys.key(slot, "later"), span)]
            found += records_of_delayed(redis, keys, slot, members)
    for (slot, group), subjects in _by_group(_first(redis, keys, standing, span)).items():
        found += records_of_heads(redis, keys, group, slot, subjects, now_ms)
    found = [each for each in found if span.after is None or each.timer_place > span.after]
    found.sort(key=attrgetter("timer_place"))
    return found[: span.limit]


def _first(
    redis: Redis, keys: SlotKeys, standing: list[_StandingTimer], span: _TimerSpan
) -> list[_StandingTimer]:
    """Timers that a page may have: of many that share a due time only the first ones."""
    ended_ms = -1 if span.after is None else span.after.due_ms
    behind = sorted(each.due_ms for each in standing if each.due_ms > ended_ms)
    if len(behind) > span.limit:
        last_ms = behind[span.limit - 1]
        standing = [each for each in standing if each.due_ms <= last_ms]
    if len(standing) <= span.limit:
        return standing
    placed: list[tuple[TimerPlace, _StandingTimer]] = []
    for (slot, group), subjects in _by_group(standing).items():
        bodies = redis.ask(keys.key(slot, "body", group), "HMGET", *subjects)
        for subject, body in zip(subjects, bodies, strict=True):
            due_ms, seq = META.unpack_from(body)[:2] if body and len(body) >= META.size else (0, 0)
            place = TimerPlace(due_ms, seq, slot, group, "")
            if body is not None and (span.after is None or place > span.after):
                placed.append((place, _StandingTimer(due_ms, slot, group, subject)))
    return [each for _, each in nsmallest(span.limit, placed)]


def _by_group(standing: list[_StandingTimer]) -> dict[tuple[int, str], list[bytes]]:
    """Subjects by their slot and group."""
    found: dict[tuple[int, str], list[bytes]] = {}
    for each in standing:
        found.setdefault((each.slot, each.group), []).append(each.subject)
    return found


def _scored(redis: Redis, key: bytes, span: _TimerSpan) -> list[tuple[int, bytes]]:
    """Members by score, with all that share the score of the first and of the last."""
    found = _pairs(
        redis, key, span.first_ms, f"({span.until_ms}", "WITHSCORES", "LIMIT", 0, span.limit
    )
    if len(found) < span.limit:
        return found
    first, last = found[0][0], found[-1][0]
    if span.after is None or first > span.after.due_ms:
        return [each for each in found if each[0] != last] + _pairs(
            redis, key, last, last, "WITHSCORES"
        )
    # Those of the moment at which the page before has ended may be behind it, or before.
    found = _pairs(redis, key, first, first, "WITHSCORES")
    rest = span._replace(from_ms=span.after.due_ms + 1, after=None)
    return found + (_scored(redis, key, rest) if rest.from_ms < span.until_ms else [])


def _pairs(redis: Redis, key: bytes, *arguments: Argument) -> list[tuple[int, bytes]]:
    """Scores with their members."""
    found = redis.ask(key, "ZRANGEBYSCORE", *arguments)
    return [
        (int(float(score)), member) for member, score in zip(found[::2], found[1::2], strict=True)
    ]


def _due(
    redis: Redis, keys: SlotKeys, slot: int, group: str, span: _TimerSpan
) -> list[tuple[int, bytes]]:
    """The subjects that are due, the first ones of each rank, with the times of their tickets."""
    key = keys.key(slot, "todo", group)
    first, end = TICKET.pack(span.first_ms, 0), TICKET.pack(span.until_ms, 0)
    place = span.after
    if place is not None and place.due_ms == span.first_ms:
        first = TICKET.pack(place.due_ms, place.seq)
    # One more, since the first may be the one at which the page before has ended.
    most = span.limit + 1
    if keys.topic.kind not in RANKED:
        found = redis.ask(key, "ZRANGEBYLEX", b"[" + first, b"(" + end, "LIMIT", 0, most)
        return _timed(found)
    ahead: list[bytes] = []
    start = 0
    while of_rank := redis.ask(key, "ZRANGE", start, start, "WITHSCORES"):
        stop = max(start + 1, redis.ask(key, "ZCOUNT", "-inf", of_rank[1]))
        start = _first_from(redis, key, first, start, stop)
        if start < stop:
            page = redis.ask(key, "ZRANGE", start, min(start + most, stop) - 1)
            ahead += [each for each in page if first <= each < end]
        start = stop
    return _timed(sorted(ahead)[:most])


def _timed(members: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Subjects that are due, with the times of their tickets."""
    return [(TICKET.unpack_from(each)[0], each[TICKET.size :]) for each in members]


def _first_from(redis: Redis, key: bytes, first: bytes, low: int, high: int) -> int:
    """The first place in a part of equal scores whose member is not before one.

    It looks at both ends first: mostly all of a part is in the span, or nothing.
    """
    ends = redis.ask_many([(key, "ZRANGE", each, each) for each in (low, high - 1)])
    if all(ends) and ends[0][0] >= first:
        return low
    if all(ends) and ends[1][0] < first:
        return high
    while low < high:
        middle = (low + high) // 2
        members = redis.ask(key, "ZRANGE", middle, middle)
        if not members or members[0] >= first:
            high = middle
        else:
            low = middle + 1
    return low


def _slots_of(keys: SlotKeys, subject: str) -> Sequence[int]:
    """Where a subject may stand: a body's hash does not tell its slot."""
    if subject.startswith(KEYLESS):
        return keys.topic.all_slots
    return [keys.topic.slot_of(subject.encode())]


def _change(
    redis: Redis, keys: SlotKeys, answered: dict[int, Any], script: str, subject: str,
    *arguments: Argument,
) -> Moved:  # fmt: skip
    """Asks every slot in which a subject may stand, but for those that have answered before."""
    slots = [slot for slot in _slots_of(keys, subject) if slot not in answered]
    try:
        replies = redis.run([keys.call(script, slot, *arguments) for slot in slots])
    except Refused as refused:
        done = zip(slots, refused.replies, strict=True)
        answered.update((slot, reply) for slot, reply in done if reply is not None)
        raise
    results = {Moved(reply.decode()) for reply in (*answered.values(), *replies)}
    for result in (Moved.DOING, Moved.DONE):
        if result in results:
            return result
    return Moved.ABSENT
