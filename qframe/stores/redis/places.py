"""Pages of sorted sets: timers by due time, the dead by their death, heads by their turn.

Redis has members of one score in the order of their bytes. So timers of one moment stand by their
subjects: to have them by their numbers it would have to read them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from qframe.drivers.redis import Redis
from qframe.stores.records import DeadPlace, PageAsk, Record, SectionPage, TimerPlace
from qframe.stores.redis.envelopes import NUMBER, TICKET, shown
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.leads import records_at
from qframe.stores.redis.records import (
    heads_at,
    record_of_head,
    records_of_delayed,
    records_of_heads,
)
from qframe.stores.rules import RANKED

LOOKS: Final = 5
PAGE: Final = 200
SPARE: Final = 16
_SETS: Final = {"doing": ("doing",), "todo": ("todo",), "waiting": ("waiting", "retry")}
_LAST: Final = b"\xff"


class _Rest(NamedTuple):
    """The members of a sorted set that are wanted: those behind one.

    Attributes:
        key: the set.
        score: members of a smaller score are left out.
        member: of that score, members up to this one too; None for all of that score.
        limit: how many at most.
    """

    key: bytes
    score: int
    member: bytes | None
    limit: int

    def has(self, pair: tuple[int, bytes]) -> bool:
        """Whether a member is wanted."""
        return self.member is not None and pair > (self.score, self.member)

    def cut(self, pairs: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Those that are wanted; the first of that score may be wanted themselves."""
        found = [pair for pair in pairs if pair[0] > self.score or self.has(pair)]
        return found[: self.limit]


def died(redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk]) -> list[SectionPage]:
    """Pages of the dead by their death."""
    wanted = []
    for ask in asks:
        (slot, _, group), place = ask.section, DeadPlace.read(ask.after)
        wanted.append(_Rest(
            keys.key(slot, "dead", group), place.died_at_ms,
            _same(slot, place.slot, NUMBER.pack(place.seq)), ask.limit + 1,
        ))  # fmt: skip
    pages = _members(redis, wanted)
    places = [
        (ask.section.group, ask.section.slot, NUMBER.unpack(member)[0])
        for ask, page in zip(asks, pages, strict=True)
        for _, member in page[: ask.limit]
    ]
    found: dict[tuple[str, int], list[Record]] = {}
    for record in records_at(redis, keys, places):
        found.setdefault((record.group or "", record.slot), []).append(record)
    results = []
    for ask, page in zip(asks, pages, strict=True):
        slot, _, group = ask.section
        after = None
        if len(page) > ask.limit:
            died_at, member = page[ask.limit - 1]
            after = str(DeadPlace(died_at, slot, NUMBER.unpack(member)[0]))
        results.append(SectionPage(found.get((group, slot), []), len(page), after))
    return results


def _same(here: object, there: object, member: bytes) -> bytes | None:
    """What bounds the members of a place's score in a slot, by whether it is before the place's."""
    if here == there:
        return member
    return b"" if here > there else None  # type: ignore[operator]


def delayed(redis: Redis, keys: SlotKeys, ask: PageAsk) -> SectionPage:
    """A page of what joins a stream later, by due time."""
    slot, place = ask.section.slot, TimerPlace.read(ask.after)
    member = _same((0, slot), (place.seq, place.slot), place.id.encode() + b"\0" + _LAST)
    rest = _Rest(keys.key(slot, "later"), place.due_ms, member, ask.limit + 1)
    [page] = _members(redis, [rest])
    records = records_of_delayed(redis, keys, slot, [each for _, each in page[: ask.limit]])
    more = len(page) > ask.limit and records
    return SectionPage(records, len(page), str(records[-1].timer_place) if more else None)


class _Standing(NamedTuple):
    """A subject that waits or is due, for a group."""

    place: TimerPlace
    subject: bytes
    by_subject: bool


def timers(redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk], now_ms: int) -> list[SectionPage]:
    """Pages of heads that are not handed out, by due time."""
    places = [TimerPlace.read(ask.after) for ask in asks]
    standing = [
        sorted(each for each in (*due, *waiting) if each.place > place)
        for due, waiting, place in zip(
            _due(redis, keys, asks, places), _waiting(redis, keys, asks, places), places,
            strict=True,
        )
    ]  # fmt: skip
    heads = heads_at(redis, keys, [
        (ask.section.group, ask.section.slot, [each.subject for each in some[: ask.limit]])
        for ask, some in zip(asks, standing, strict=True)
    ])  # fmt: skip
    pages = []
    for ask, place, some, found in zip(asks, places, standing, heads, strict=True):
        slot, _, group = ask.section
        standing_of = {each.subject: each for each in some}
        records = []
        for head in found:
            one, was = record_of_head(keys, group, slot, head, now_ms), standing_of[head.subject]
            # One that was moved meanwhile stands elsewhere by now.
            if one.state != "doing" and one.due_ms == was.place.due_ms:
                records.append(replace(one, by_subject=was.by_subject))
        records = [one for one in records if one.timer_place > place]
        more = str(some[ask.limit - 1].place) if len(some) > ask.limit else None
        pages.append(SectionPage(records, len(some), more))
    return pages


def _waiting(
    redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk], places: Sequence[TimerPlace]
) -> Iterator[list[_Standing]]:
    """The first ones that wait, by due time and subject."""
    rests = []
    for ask, place in zip(asks, places, strict=True):
        slot, _, group = ask.section
        here, there = (0, slot, group), (place.seq, place.slot, place.group)
        member = _same(here, there, place.id.encode())
        rests += [
            _Rest(keys.key(slot, name, group), place.due_ms, member, ask.limit + 1)
            for name in ("waiting", "retry")
        ]
    pages = iter(_members(redis, rests))
    for ask in asks:
        slot, _, group = ask.section
        yield [
            _Standing(TimerPlace(due_ms, 0, slot, group, shown(subject)), subject, True)
            for page in (next(pages), next(pages))
            for due_ms, subject in page
        ]


def _due(
    redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk], places: Sequence[TimerPlace]
) -> Iterator[list[_Standing]]:
    """The first ones that are due, by their tickets."""
    sets = [keys.key(ask.section.slot, "todo", ask.section.group) for ask in asks]
    firsts = [TICKET.pack(place.due_ms, max(0, place.seq)) for place in places]
    # One more, since the first may be the one at which the page before has ended.
    most = [ask.limit + 2 for ask in asks]
    if keys.topic.kind in RANKED:
        pages = [_first_of_ranks(redis, *each) for each in zip(sets, firsts, most, strict=True)]
    else:
        pages = redis.ask_many([
            (key, "ZRANGEBYLEX", b"[" + first, "+", "LIMIT", 0, limit)
            for key, first, limit in zip(sets, firsts, most, strict=True)
        ])  # fmt: skip
    for ask, page in zip(asks, pages, strict=True):
        slot, _, group = ask.section
        yield [
            _Standing(TimerPlace(due_ms, seq, slot, group, ""), member[TICKET.size :], False)
            for member in page
            for due_ms, seq in [TICKET.unpack_from(member)]
        ]  # fmt: skip


def _first_of_ranks(redis: Redis, key: bytes, first: bytes, most: int) -> list[bytes]:
    """The first members of all ranks together, in the order of their tickets."""
    ahead: list[bytes] = []
    start = 0
    while of_rank := redis.ask(key, "ZRANGE", start, start, "WITHSCORES"):
        stop = max(start + 1, redis.ask(key, "ZCOUNT", "-inf", of_rank[1]))
        start = _first_from(redis, key, first, start, stop)
        if start < stop:
            ahead += redis.ask(key, "ZRANGE", start, min(start + most, stop) - 1)
        start = stop
    return sorted(ahead)[:most]


def _members(redis: Redis, rests: Sequence[_Rest]) -> list[list[tuple[int, bytes]]]:
    """The first members of sorted sets behind some, with their scores."""
    bounded = [rest for rest in rests if rest.member]
    replies = iter(redis.ask_many([
        question
        for rest in bounded
        for question in (
            (rest.key, "ZRANK", rest.member or b""), (rest.key, "ZCOUNT", rest.score, rest.score)
        )
    ]))  # fmt: skip
    places = [(next(replies), next(replies)) if rest.member else (None, 0) for rest in rests]
    pages = redis.ask_many([
        (rest.key, "ZRANGE", rank, rank + rest.limit, "WITHSCORES") if rank is not None else
        (rest.key, "ZRANGEBYSCORE", f"{'(' if rest.member is None else ''}{rest.score}", "+inf",
         "WITHSCORES", "LIMIT", 0, rest.limit + min(ties, SPARE))
        for rest, (rank, ties) in zip(rests, places, strict=True)
    ])  # fmt: skip
    found = []
    for rest, (rank, ties), page in zip(rests, places, map(_paired, pages), strict=True):
        # Others may have changed the set meanwhile.
        is_whole = ties <= SPARE if rank is None else page[:1] == [(rest.score, rest.member)]
        found.append(rest.cut(page) if is_whole else _rest_of_moment(redis, rest, ties))
    return found


def _rest_of_moment(redis: Redis, rest: _Rest, ties: int) -> list[tuple[int, bytes]]:
    """Members behind one of many of the same score, found by halving."""
    key, score, member = rest.key, rest.score, rest.member or b""
    for _ in range(LOOKS):
        low, high = redis.ask_many([
            (key, "ZCOUNT", "-inf", f"({score}"), (key, "ZCOUNT", "-inf", score)
        ])  # fmt: skip
        start = max(0, _first_from(redis, key, member, low, high) - low - 1)
        page = _paired(redis.ask(key, "ZRANGEBYSCORE", score, "+inf", "WITHSCORES", "LIMIT", start,
                                 rest.limit + 2))  # fmt: skip
        # Unless others have changed the set meanwhile, the first one is before the rest.
        if start == 0 or (page and page[0] <= (score, member)):
            return rest.cut(page)
    return rest.cut(_paired(redis.ask(key, "ZRANGEBYSCORE", score, "+inf", "WITHSCORES", "LIMIT", 0,
                                      ties + rest.limit)))  # fmt: skip


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


def _paired(found: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Scores with their members, of a reply with both."""
    return [
        (int(float(score)), member) for member, score in zip(found[::2], found[1::2], strict=True)
    ]


def by_turn(
    redis: Redis, keys: SlotKeys, asks: Sequence[PageAsk], now_ms: int
) -> Iterator[SectionPage]:
    """The first heads that stand in a state, the next ones first; of one moment, by subject."""
    sets = [
        (keys.key(slot, name, group), min(PAGE, limit))
        for (slot, part, group), _, limit, _ in asks
        for name in _SETS[part]
    ]
    pages = iter(redis.ask_many([
        (key, "ZRANGE", 0, size - 1, "WITHSCORES") for key, size in sets
    ]))  # fmt: skip
    rest = iter(sets)
    for (slot, part, group), _, limit, _ in asks:
        scored = islice(
            merge(*(_scored(redis, *next(rest), next(pages)) for _ in _SETS[part])), limit
        )
        found: list[Record] = []
        cut = TICKET.size if part == "todo" else 0
        while page := [member[cut:] for _, member in islice(scored, PAGE)]:
            found += records_of_heads(redis, keys, group, slot, page, now_ms)
        yield SectionPage(found, len(found), None)


def _scored(
    redis: Redis, key: bytes, size: int, page: Sequence[bytes]
) -> Iterator[tuple[int, bytes]]:
    """The members of a sorted set with their scores, in order, from its first page on."""
    start = size
    while page:
        yield from _paired(page)
        if len(page) < 2 * size:
            return
        page = redis.ask(key, "ZRANGE", start, start + size - 1, "WITHSCORES")
        start += size
