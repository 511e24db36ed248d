"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.stores.records import Record, Stats, unclaimed
from qframe.stores.redis import dead
from qframe.stores.redis.envelopes import (
    TICKET,
    Letter,
    State,
    delayed,
    letter_of,
    shown,
    state_of,
    unpack,
)
from qframe.stores.redis.groups import keeping, known, names
from qframe.stores.redis.keys import UNCLAIMED, Place
from qframe.stores.redis.reading import logged
from qframe.stores.types import NO_EPOCH

PAGE = 200
_MORE = 1


class Cursor(NamedTuple):
    """Where a group stands in a stream's slot."""

    floor: int
    read: int
    settled: list[int]

    def state_of(self, offset: int) -> str:
        """Where an offset of the line stands."""
        if offset < self.floor or any(
            first <= offset < end
            for first, end in zip(self.settled[::2], self.settled[1::2], strict=True)
        ):
            return "settled"
        return "doing" if offset < self.read else "todo"


class _Head(NamedTuple):
    """A subject's head, and where it stands."""

    subject: bytes
    letter: Letter
    state: State
    lease: int | None


def stats(redis: Redis, place: Place, group: str | None, now: str) -> list[Stats]:
    """Counts for each group and slot."""
    groups = [group] if group is not None else names(redis, place)
    if not groups and not place.topic.has_subjects:
        return _unclaimed(redis, place)
    groups = groups or [UNCLAIMED]
    everywhere = range(place.topic.slots)
    return [one for name in groups for one in stats_of(redis, place, name, everywhere, now)]


def _unclaimed(redis: Redis, place: Place) -> list[Stats]:
    """The counts of a stream that no group reads yet."""
    slots = range(place.topic.slots)
    replies = redis.ask_many(
        [
            question
            for slot in slots
            for question in (
                (place.key(slot, "head"), "GET"),
                (place.key(slot, "first"), "GET"),
                (place.key(slot, "later"), "ZCARD"),
            )
        ]
    )
    numbers = iter(int(reply or 0) for reply in replies)
    return [
        unclaimed(slot, head=next(numbers), first=next(numbers), waiting=next(numbers))
        for slot in slots
    ]


def stats_of(redis: Redis, place: Place, group: str, slots: Sequence[int], now: str) -> list[Stats]:
    """Counts for one group, of some slots."""
    found: dict[int, Stats] = {}
    while slots:
        kind = str(place.topic.kind)
        replies = redis.run([place.call("stats", slot, now, kind, group) for slot in slots])
        for slot, reply in zip(slots, replies, strict=True):
            known(redis, place, group, reply[0])
            if reply[0] != _MORE:
                found[slot] = _stats(slot, group, reply)
        slots = [slot for slot in slots if slot not in found]
    return [found[slot] for slot in sorted(found)]


def _stats(slot: int, group: str, reply: list[Any]) -> Stats:
    epoch, published, waiting, retrying, todo, doing, settled, died, cancelled, head = reply[:10]
    floor, following = reply[10:]
    return Stats(
        slot=slot, group=group, epoch=epoch.decode() if epoch else NO_EPOCH, published=published,
        waiting=waiting, retrying=retrying, todo=todo, doing=doing, settled=settled, dead=died,
        cancelled=cancelled, head=head, floor=None if floor < 0 else floor,
        next_ms=None if following < 0 else following,
    )  # fmt: skip


def cursor_of(redis: Redis, place: Place, group: str, slot: int) -> Cursor:
    """Where a group stands in a stream's slot."""
    key = place.key(slot, "cursor", group)
    floor, read, settled = redis.ask(key, "HMGET", "floor", "read", "settled")
    return Cursor(int(floor or 0), int(read or 0), unpack(settled) if settled else [])


def log(redis: Redis, place: Place, slot: int, start: int) -> Iterator[Delivery]:
    """A stream's messages from an offset on, as deliveries without receipts."""
    key = place.key(slot, "log")
    before = redis.ask(key, "XREVRANGE", f"{start}-18446744073709551615", "-", "COUNT", 1)
    begin = int(before[0][0].split(b"-")[0]) if before else start
    first_kept = int(redis.ask(place.key(slot, "first"), "GET") or 0)
    behind: bytes = b"%d-0" % begin
    while entries := redis.ask(key, "XRANGE", behind, "+", "COUNT", 16):
        for name, fields in entries:
            yield from (
                one for one in logged(slot, name, fields)[2]
                if one.seq >= max(start, first_kept)
            )  # fmt: skip
            behind = b"(" + name


def records_of_heads(
    redis: Redis, place: Place, group: str, slot: int, subjects: Sequence[bytes], now_ms: int
) -> list[Record]:
    """The heads of subjects, for people; none for those that there are not."""
    return [
        _record_of_head(place, group, slot, each, now_ms)
        for each in _heads(redis, place, group, slot, subjects)
    ]


def _heads(
    redis: Redis, place: Place, group: str, slot: int, subjects: Sequence[bytes]
) -> list[_Head]:
    """What is known of each that there is."""
    if not subjects:
        return []
    bodies, states, leases = redis.ask_many(
        [
            (place.key(slot, "body", group), "HMGET", *subjects),
            (place.key(slot, "tries", group), "HMGET", *subjects),
            (place.key(slot, "doing", group), "ZMSCORE", *subjects),
        ]
    )
    return [
        _Head(subject, letter_of(body, slot), state_of(state), int(float(lease)) if lease else None)
        for subject, body, state, lease in zip(subjects, bodies, states, leases, strict=True)
        if body is not None
    ]


def _record_of_head(
    place: Place,
    group: str,
    slot: int,
    head: _Head,
    now_ms: int,
) -> Record:
    subject, letter, state, lease = head
    stands = "doing" if state.receipt else "todo" if letter.due <= now_ms else "waiting"
    return _record(
        place, group, slot, letter.envelope, letter.published, stands,
        subject=shown(subject), seq=letter.seq, due_ms=letter.due, priority=letter.priority,
        attempts=state.tries,
        lost=state.lost, error=state.error, traceback=state.traceback,
        lease_until_ms=lease if state.receipt else None,
    )  # fmt: skip


def _record(
    place: Place,
    group: str | None,
    slot: int,
    one: Delivery,
    published: int,
    state: str,
    **facts: Any,
) -> Record:
    fields: dict[str, Any] = {"subject": None, "seq": None, **facts}
    return Record(
        topic=place.topic.name, group=group or None, slot=slot, state=state, id=one.id,
        key=one.key, headers=one.headers, body=one.body, published_at_ms=published, **fields,
    )  # fmt: skip


class Looking:
    """A look at one slot for one group; each part is fetched when it is reached."""

    def __init__(
        self, redis: Redis, place: Place, group: str, slot: int, *, now_ms: int, at_most: int
    ) -> None:
        self._redis = redis
        self._place = place
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
        yield from dead.of_slot(
            self._redis, self._place, self._group, self._slot, None, self._at_most
        )

    def line(self, state: str) -> Iterator[Record]:
        """What of a stream's line is handed out, or still to come."""
        cursor = cursor_of(self._redis, self._place, self._group, self._slot)
        start = cursor.floor if state == "doing" else cursor.read
        if state == "doing" and cursor.floor == cursor.read:
            return
        for one in log(self._redis, self._place, self._slot, start):
            if state == "doing" and one.seq >= cursor.read:
                return
            if cursor.state_of(one.seq) == state:
                yield _record(
                    self._place, self._group, self._slot, one, one.published_at_ms, state,
                    seq=one.seq,
                )  # fmt: skip

    def heads(self, state: str) -> Iterator[Record]:
        """Heads that stand in a state, each followed by what is behind it."""
        if state == "todo":
            yield from self._todo()
            return
        subjects: list[bytes] = []
        for name in ("doing",) if state == "doing" else ("waiting", "retry"):
            subjects += self._redis.ask(
                self._place.key(self._slot, name, self._group), "ZRANGE", 0, -1
            )
        heads = _heads(self._redis, self._place, self._group, self._slot, subjects)
        heads.sort(key=lambda each: (each.lease or 0, each.letter.due, each.letter.seq))
        yield from self._with_behind(heads)

    def _todo(self) -> Iterator[Record]:
        start = 0
        key = self._place.key(self._slot, "todo", self._group)
        while members := self._redis.ask(key, "ZRANGE", start, start + PAGE - 1):
            subjects = [member[TICKET.size :] for member in members]
            yield from self._with_behind(
                _heads(self._redis, self._place, self._group, self._slot, subjects)
            )
            start += PAGE

    def _with_behind(self, heads: list[_Head]) -> Iterator[Record]:
        for each in heads:
            head = _record_of_head(self._place, self._group, self._slot, each, self._now_ms)
            yield head
            for number, value in enumerate(self.behind(each.subject), start=1):
                stands = head.state
                if stands == "doing" and number >= each.state.given:
                    stands = "todo"
                one = letter_of(value, self._slot)
                yield _record(
                    self._place, self._group, self._slot, one.envelope, one.published, stands,
                    subject=head.subject, seq=one.seq, due_ms=one.due, priority=one.priority,
                )  # fmt: skip

    def behind(self, subject: bytes) -> list[bytes]:
        """What stands behind a head."""
        place, slot = self._place, self._slot
        if place.topic.kind == "ordered":
            key = place.key(slot, "behind:", self._group) + subject
            found: list[bytes] = self._redis.ask(key, "LRANGE", 0, self._at_most)
            return found
        following = self._redis.ask(place.key(slot, "next", self._group), "HGET", subject)
        return [] if following is None else [following]

    def kept_back(self) -> Iterator[Record]:
        """What no group has seen yet: delayed before a stream, held behind gaps."""
        place, slot = self._place, self._slot
        later = self._redis.ask(place.key(slot, "later"), "ZRANGE", 0, self._at_most, "WITHSCORES")
        for member, due in zip(later[::2], later[1::2], strict=True):
            published, one = delayed(member, slot)
            yield _record(place, None, slot, one, published, "waiting", due_ms=int(float(due)))
        for member in self._redis.ask(place.key(slot, "held"), "ZRANGE", 0, self._at_most):
            value, passed = self._redis.ask_many(
                [
                    (place.key(slot, "letters"), "HGET", member),
                    (place.key(slot, "gaps"), "ZSCORE", member),
                ]
            )
            if value is None or passed is None:
                continue
            letter = letter_of(value, slot)
            sequence = int.from_bytes(member[-8:], "big")
            yield _record(
                place, None, slot, letter.envelope, letter.published, "held",
                subject=shown(member[:-9]), due_ms=int(float(passed)), priority=letter.priority,
                error=f"waits for a sequence number before {sequence}",
            )  # fmt: skip


def peek(
    redis: Redis,
    place: Place,
    group: str,
    states: Sequence[str],
    limit: int,
    now: str,
    now_ms: int,
) -> list[Record]:
    """Messages that stand in one of these states, slot by slot, next ones first."""
    stats_of(
        redis, place, group, range(place.topic.slots), now
    )  # refuses an unknown group, and promotes what is due
    found: list[Record] = []
    for slot in range(place.topic.slots):
        looking = Looking(redis, place, group, slot, now_ms=now_ms, at_most=limit)
        wanted = (record for record in looking.records() if record.state in states)
        found += islice(wanted, limit - len(found))
        if len(found) >= limit:
            break
    return found


def explain(redis: Redis, place: Place, message_id: str, now_ms: int) -> list[Record]:
    """Where a message stands now: a record for each place."""
    found: list[Record] = []
    everything = 2**31
    groups: list[str | None] = [None]
    if place.topic.has_subjects:
        groups = list(keeping(redis, place))
    elif named := names(redis, place):
        groups = list(named)
    for slot in range(place.topic.slots):
        logged = []
        if not place.topic.has_subjects:
            logged = [one for one in log(redis, place, slot, 0) if one.id == message_id]
        for group in groups:
            mine: list[Record] = []
            if group is not None:
                looking = Looking(redis, place, group, slot, now_ms=now_ms, at_most=everything)
                mine = [
                    record for record in _standing(looking, redis, place, group, slot)
                    if record.id == message_id
                ]  # fmt: skip
            stands = {record.seq for record in mine}
            for one in logged:
                if one.seq not in stands:
                    state = "todo"
                    if group is not None:
                        state = cursor_of(redis, place, group, slot).state_of(one.seq)
                    mine.append(
                        _record(place, group, slot, one, one.published_at_ms, state, seq=one.seq)
                    )
            found += mine
        kept = Looking(redis, place, UNCLAIMED, slot, now_ms=now_ms, at_most=everything)
        found += [record for record in kept.kept_back() if record.id == message_id]
    return found


def _standing(
    looking: Looking, redis: Redis, place: Place, group: str, slot: int
) -> Iterator[Record]:
    """Heads, what is behind them, and the dead."""
    for state in ("doing", "todo", "waiting"):
        yield from looking.heads(state)
    yield from dead.of_slot(redis, place, group, slot, None, 2**31)
