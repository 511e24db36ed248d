"""Counts of messages, for each slot and group; and where a group stands in a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from qframe.drivers.redis import Redis
from qframe.stores.records import Stats, unclaimed
from qframe.stores.redis.envelopes import (
    unpack,
)
from qframe.stores.redis.groups import known, lacks_group, names
from qframe.stores.redis.keys import UNCLAIMED, SlotKeys
from qframe.stores.types import NO_EPOCH
from qframe.topic import Kind

_MORE: Final = 1
_PAGE: Final = 500


class StreamPosition(NamedTuple):
    """Where a group stands in a stream's slot."""

    floor: int
    read: int
    settled: list[int]
    has_backlog: bool = False

    def state_of(self, offset: int) -> str:
        """Where an offset of the line stands."""
        if offset < self.floor or any(
            first <= offset < end
            for first, end in zip(self.settled[::2], self.settled[1::2], strict=True)
        ):
            return "settled"
        return "doing" if offset < self.read else "todo"


def stats(redis: Redis, keys: SlotKeys, group: str | None, now: str) -> list[Stats]:
    """Counts for each group and slot.

    A group that subscribes at this moment may be in some slots only; a slot that no group is in has
    the counts of what no group has claimed.
    """
    everywhere = keys.topic.all_slots
    if group is not None:
        return stats_of(redis, keys, group, everywhere, now)
    found = [
        one
        for name in names(redis, keys)
        for one in stats_of(redis, keys, name, everywhere, now, partly=True)
    ]
    rest = sorted({*everywhere} - {one.slot for one in found})
    if rest and keys.topic.has_subjects:
        return found + stats_of(redis, keys, UNCLAIMED, rest, now)
    return found + (_unclaimed(redis, keys, rest) if rest else [])


def _unclaimed(redis: Redis, keys: SlotKeys, slots: Sequence[int]) -> list[Stats]:
    """The counts of slots of a stream that no group reads yet."""
    replies = redis.ask_many(
        [
            question
            for slot in slots
            for question in (
                (keys.key(slot, "head"), "GET"),
                (keys.key(slot, "first"), "GET"),
                (keys.key(slot, "later"), "ZCARD"),
            )
        ]
    )
    numbers = iter(int(reply or 0) for reply in replies)
    return [
        unclaimed(slot, head=next(numbers), first=next(numbers), waiting=next(numbers))
        for slot in slots
    ]


def stats_of(
    redis: Redis, keys: SlotKeys, group: str, slots: Sequence[int], now: str,
    *, partly: bool = False,
) -> list[Stats]:  # fmt: skip
    """Counts for one group, of some slots; where `partly`, of those that have it."""
    found: dict[int, Stats] = {}
    while slots:
        kind = str(keys.topic.kind)
        replies = redis.run([keys.call("stats", slot, now, kind, group) for slot in slots])
        for slot, reply in zip(slots, replies, strict=True):
            if partly and lacks_group(reply[0]):
                continue
            known(redis, keys, group, reply[0])
            if not _has_more(reply):
                found[slot] = _stats(slot, group, reply)
        slots = [s for s, reply in zip(slots, replies, strict=True) if _has_more(reply)]
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


def cursor_of(redis: Redis, keys: SlotKeys, group: str, slot: int) -> StreamPosition:
    """Where a group stands in a stream's slot."""
    key = keys.key(slot, "cursor", group)
    names = ("floor", "read", "settled", "max_parked")
    floor, read, settled, max_parked = redis.ask(key, "HMGET", *names)
    ends = unpack(settled) if settled else []
    return StreamPosition(int(floor or 0), int(read or 0), ends, max_parked is not None)


class SlotCounts(NamedTuple):
    """The counts of a slot, which stand still or not; and whether it may have a backlog."""

    published: int
    acked: int
    cancelled: int
    parked: int
    running: int
    behind: int
    dead: int
    held: int
    has_backlog: bool

    def unsettled(self) -> int:
        """How many messages there should be."""
        return self.published + self.held - self.acked - self.cancelled - self.dead

    def differences(
        self, kind: Kind, lengths: Mapping[bytes, int], waiting: Iterable[bytes],
        given: Iterable[int],
    ) -> dict[str, int]:  # fmt: skip
        """The counts of a backlog that are wrong, and by how much what was found is more.

        Args:
            kind: the topic's.
            lengths: how many messages stand behind each head.
            waiting: the heads that are not due.
            given: how many messages of each head that is in doing are handed out.
        """
        if not self.has_backlog:
            return {}
        found = {"parked": sum(lengths.get(each, 0) for each in waiting), "running": sum(given)}
        if kind is Kind.STREAM:
            found["behind"] = sum(lengths.values())
        changes = {name: there - getattr(self, name) for name, there in found.items()}
        return {name: by for name, by in changes.items() if by}


def counts_of(redis: Redis, keys: SlotKeys, group: str, slot: int) -> SlotCounts:
    """The counts of a slot as they are now."""
    names = ("published", "acked", "cancelled", "parked", "running", "behind", "max_parked")
    (*found, max_parked), dead, held = redis.ask_many(
        [
            (keys.key(slot, "cursor", group), "HMGET", *names),
            (keys.key(slot, "dead", group), "ZCARD"),
            (keys.key(slot, "letters"), "HLEN"),
        ]
    )
    published, acked, cancelled, parked, running, behind = (int(each or 0) for each in found)
    has_backlog = keys.topic.kind is Kind.ORDERED or max_parked is not None
    return SlotCounts(published, acked, cancelled, parked, running, behind, dead, held, has_backlog)


def lengths_of(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subjects: list[bytes]
) -> dict[bytes, int]:
    """How many messages stand behind each head."""
    found: dict[bytes, int] = {}
    for start in range(0, len(subjects), _PAGE):
        page = subjects[start : start + _PAGE]
        lists = [keys.key(slot, "behind:", group) + subject for subject in page]
        found |= dict(zip(page, redis.ask_many([(key, "LLEN") for key in lists]), strict=True))
    return found


def _has_more(reply: Any) -> bool:
    """Whether a slot's rows were not all counted yet; the counts themselves are bytes."""
    return isinstance(reply[0], int) and reply[0] == _MORE
