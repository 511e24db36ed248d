"""Dead letters: list, look up, retry, drop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import nsmallest
from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.drivers.scripts import Refused
from qframe.stores.acts import DeadLetters
from qframe.stores.records import ALL_DEAD, ChosenDead, DeadPlace, Record
from qframe.stores.redis.envelopes import NUMBER
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.leads import PAGE, By, looked_up, records_at
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

SPARE: Final = 16


class RedisDeadLetters(RedisRole, DeadLetters):
    """Dead letters, page by page."""

    @override
    def retry_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        return self._call(topic, retry, group, chosen, self._now(), [])

    @override
    def drop_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        return self._call(topic, drop, group, chosen, [])


def listed(redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead) -> list[Record]:
    """Dead messages, the longest dead first."""
    require(redis, keys, group)
    if chosen.ids is not None:
        everywhere = [(group, slot) for slot in keys.topic.all_slots]
        named = looked_up(redis, keys, everywhere, set(chosen.ids), By.ID)
        return [one for one in named if chosen.is_between(one.dead_place)][: chosen.limit]
    return of_slots(redis, keys, group, keys.topic.all_slots, chosen)


def of_slots(
    redis: Redis, keys: SlotKeys, group: str, slots: Sequence[int], chosen: ChosenDead
) -> list[Record]:
    """Dead messages of slots, the longest dead first; not by their ids."""
    found: list[Record] = []
    while True:
        places = _places(redis, keys, group, slots, chosen)
        found += records_at(redis, keys, [(group, place.slot, place.seq) for place in places])
        if len(places) < chosen.limit or len(found) >= chosen.limit:
            return found[: chosen.limit]
        chosen = chosen._replace(after=places[-1])  # some of the places have no record


def _places(
    redis: Redis, keys: SlotKeys, group: str, slots: Sequence[int], chosen: ChosenDead
) -> list[DeadPlace]:
    """The first places of the dead of slots, in order."""
    dead = {slot: keys.key(slot, "dead", group) for slot in slots}
    starts = dict.fromkeys(slots, 0)
    if chosen.after is not None:
        before = f"({chosen.after.died_at_ms}"
        counts = redis.ask_many([(key, "ZCOUNT", "-inf", before) for key in dead.values()])
        starts = dict(zip(dead, counts, strict=True))
    size = min(PAGE, chosen.limit // max(1, len(slots)) + SPARE)
    found: list[DeadPlace] = []
    unread: Collection[int] = slots
    while unread:
        pages = redis.ask_many([
            (dead[slot], "ZRANGE", starts[slot], starts[slot] + size - 1, "WITHSCORES")
            for slot in unread
        ])  # fmt: skip
        ends: dict[int, DeadPlace] = {}
        for slot, page in zip(unread, pages, strict=True):
            places = [
                DeadPlace(int(float(died_at)), slot, NUMBER.unpack(member)[0])
                for member, died_at in zip(page[::2], page[1::2], strict=True)
            ]
            found += filter(chosen.is_between, places)
            starts[slot] += size
            if len(places) == size:
                ends[slot] = places[-1]
        found = nsmallest(chosen.limit, found)
        # A slot is read on only where more of it stand before the last one that is wanted.
        last = found[-1] if len(found) == chosen.limit else chosen.until
        unread = [slot for slot, end in ends.items() if last is None or end < last]
        size = min(PAGE, 2 * size)
    return found


def retry(
    redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead, now: str, before: list[int]
) -> int:
    """Makes dead messages due again."""
    return _each_slot(redis, keys, group, chosen, before, "retry_dead",
                      now, str(keys.topic.kind), group)  # fmt: skip


def drop(
    redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead, before: list[int]
) -> int:  # fmt: skip
    """Removes dead messages for good."""
    return _each_slot(redis, keys, group, chosen, before, "drop_dead", group)


def _each_slot(
    redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead, before: list[int], script: str,
    *arguments: str,
) -> int:  # fmt: skip
    """Adds what was done before closed slots have refused, and then adds to that."""
    chosen = chosen._replace(limit=chosen.limit - sum(before))
    members: dict[int, list[bytes]] = {}
    for one in listed(redis, keys, group, chosen):
        members.setdefault(one.slot, []).append(NUMBER.pack(one.seq or 0))
    calls = [
        keys.call(script, slot, *arguments, *numbers[start : start + PAGE])
        for slot, numbers in members.items()
        for start in range(0, len(numbers), PAGE)
    ]
    if not calls:  # there is nothing, or the group was dropped since it was looked for
        require(redis, keys, group)
    try:
        replies = redis.run(calls)
    except Refused as refused:
        replies = [reply for reply in refused.replies if reply is not None]
        before += [known(redis, keys, group, reply) for reply in replies]
        raise
    return sum(before) + sum(known(redis, keys, group, reply) for reply in replies)
