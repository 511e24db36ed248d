"""Finding what is not handed out."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace
from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.stores.acts import StoredTimers
from qframe.stores.edits import slots_of
from qframe.stores.records import ALL_TIMERS, Record, TimerPlace, TimerSpan
from qframe.stores.redis.envelopes import TICKET, shown
from qframe.stores.redis.groups import keeping
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.records import records_of_delayed, records_of_heads
from qframe.stores.redis.role import RedisRole
from qframe.stores.rules import RANKED
from qframe.topic import Topic

LOOKS: Final = 5


class RedisTimers(RedisRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        return self._call(topic, timer, subject, self._now_ms())

    @override
    def timers(self, topic: Topic, span: TimerSpan = ALL_TIMERS) -> list[Record]:
        span = span._replace(from_ms=max(0, span.from_ms), until_ms=max(0, span.until_ms))
        return self._call(topic, timers, span, self._now_ms())


class _StandingTimer(NamedTuple):
    """A subject that waits or is due, for a group."""

    place: TimerPlace
    subject: bytes
    by_subject: bool


def timer(redis: Redis, keys: SlotKeys, subject: str, now_ms: int) -> list[Record]:
    """Where the subject stands: a record for each group that has it."""
    found = []
    for group in keeping(redis, keys):
        for slot in slots_of(keys.topic, subject):
            found += records_of_heads(redis, keys, group, slot, [subject.encode()], now_ms)
    return found


def timers(redis: Redis, keys: SlotKeys, span: TimerSpan, now_ms: int) -> list[Record]:
    """The timers due in a span, in the order of their places."""
    found: list[Record] = []
    groups = keeping(redis, keys)
    where = [(slot, group) for slot in keys.topic.all_slots for group in groups]
    for standing in (_due(redis, keys, where, span), _waiting(redis, keys, where, span)):
        behind = [each for each in standing if span.is_behind(each.place)]
        for (slot, group), some in _by_group(nsmallest(span.limit, behind)).items():
            subjects = [each.subject for each in some]
            heads = records_of_heads(redis, keys, group, slot, subjects, now_ms)
            found += [replace(each, by_subject=some[0].by_subject) for each in heads]
    if not keys.topic.has_subjects:
        for slot in keys.topic.all_slots:
            members = [member for _, member in _scored(redis, keys.key(slot, "later"), span)]
            found += records_of_delayed(redis, keys, slot, members)
    found = [each for each in found if span.is_behind(each.timer_place)]
    found.sort(key=attrgetter("timer_place"))
    return found[: span.limit]


def _by_group(standing: list[_StandingTimer]) -> dict[tuple[int, str], list[_StandingTimer]]:
    """Timers by their slot and group."""
    found: dict[tuple[int, str], list[_StandingTimer]] = {}
    for each in standing:
        found.setdefault((each.place.slot, each.place.group), []).append(each)
    return found


def _waiting(
    redis: Redis, keys: SlotKeys, where: Sequence[tuple[int, str]], span: TimerSpan
) -> list[_StandingTimer]:
    """The first ones that wait of each slot and group, by due time and subject.

    Redis has them in this order: to have those of a moment by seq it would have to read them all.
    """
    sets = [(slot, group, name) for slot, group in where for name in ("waiting", "retry")]
    pages = redis.ask_many([
        (keys.key(slot, name, group), "ZRANGEBYSCORE", _first_score(span, slot, group),
         f"({span.until_ms}", "WITHSCORES", "LIMIT", 0, span.limit)
        for slot, group, name in sets
    ])  # fmt: skip
    found = []
    for (slot, group, name), page in zip(sets, pages, strict=True):
        pairs = _paired(page)
        place = span.after
        if place is not None and _stands_among(place, span, slot, group):
            pairs += _rest_of_moment(redis, keys.key(slot, name, group), place, span.limit)
        found += [
            _StandingTimer(TimerPlace(due_ms, 0, slot, group, shown(subject)), subject,
                           by_subject=True)
            for due_ms, subject in pairs
        ]  # fmt: skip
    return found


def _first_score(span: TimerSpan, slot: int, group: str) -> str:
    """The due time from which on those of a slot and group are behind the page before."""
    place = span.after
    is_done = place is not None and place.due_ms == span.first_ms and (
        (0, slot, group) <= (place.seq, place.slot, place.group)
    )  # fmt: skip
    return f"{'(' if is_done else ''}{span.first_ms}"


def _stands_among(place: TimerPlace, span: TimerSpan, slot: int, group: str) -> bool:
    """Whether the page before has ended among those of a moment that wait in a slot and group."""
    return span.covers(place.due_ms) and (0, slot, group) == (place.seq, place.slot, place.group)


def _rest_of_moment(
    redis: Redis, key: bytes, place: TimerPlace, limit: int
) -> list[tuple[int, bytes]]:
    """Members of a place's moment that are behind it, the first ones at least."""
    behind = place.id.encode() + b"\0"
    for _ in range(LOOKS):
        low, high = redis.ask_many([(key, "ZCOUNT", "-inf", f"({place.due_ms}"),
                                    (key, "ZCOUNT", "-inf", place.due_ms)])  # fmt: skip
        start = _first_from(redis, key, behind, low, high)
        page = _paired(redis.ask(key, "ZRANGE", max(0, start - 1), start + limit, "WITHSCORES"))
        # Unless others have changed the set meanwhile, the first one is before the rest.
        if start == 0 or (page and page[0] < (place.due_ms, behind)):
            return [each for each in page if each[0] == place.due_ms]
    return _pairs(redis, key, place.due_ms, place.due_ms, "WITHSCORES")


def _scored(redis: Redis, key: bytes, span: TimerSpan) -> list[tuple[int, bytes]]:
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
    return _paired(redis.ask(key, "ZRANGEBYSCORE", *arguments))


def _paired(found: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Scores with their members, of a reply with both."""
    return [
        (int(float(score)), member) for member, score in zip(found[::2], found[1::2], strict=True)
    ]


def _due(
    redis: Redis, keys: SlotKeys, where: Sequence[tuple[int, str]], span: TimerSpan
) -> list[_StandingTimer]:
    """The first ones that are due of each slot and group, by their tickets."""
    first, end = TICKET.pack(span.first_ms, 0), TICKET.pack(span.until_ms, 0)
    place = span.after
    if place is not None and place.due_ms == span.first_ms:
        first = TICKET.pack(place.due_ms, place.seq)
    # One more, since the first may be the one at which the page before has ended.
    most = span.limit + 1
    sets = [keys.key(slot, "todo", group) for slot, group in where]
    if keys.topic.kind in RANKED:
        pages = [_first_of_ranks(redis, key, first, end, most) for key in sets]
    else:
        pages = redis.ask_many([
            (key, "ZRANGEBYLEX", b"[" + first, b"(" + end, "LIMIT", 0, most) for key in sets
        ])  # fmt: skip
    found = []
    for (slot, group), page in zip(where, pages, strict=True):
        for member in page:
            due_ms, seq = TICKET.unpack_from(member)
            at = TimerPlace(due_ms, seq, slot, group, "")
            found.append(_StandingTimer(at, member[TICKET.size :], by_subject=False))
    return found


def _first_of_ranks(redis: Redis, key: bytes, first: bytes, end: bytes, most: int) -> list[bytes]:
    """The first members of all ranks together, in the order of their tickets."""
    ahead: list[bytes] = []
    start = 0
    while of_rank := redis.ask(key, "ZRANGE", start, start, "WITHSCORES"):
        stop = max(start + 1, redis.ask(key, "ZCOUNT", "-inf", of_rank[1]))
        start = _first_from(redis, key, first, start, stop)
        if start < stop:
            page = redis.ask(key, "ZRANGE", start, min(start + most, stop) - 1)
            ahead += [each for each in page if first <= each < end]
        start = stop
    return sorted(ahead)[:most]


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
