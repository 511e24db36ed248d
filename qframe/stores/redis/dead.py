"""Dead letters: list, retry, drop."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.stores.acts import DeadLetters
from qframe.stores.records import ChosenDead, DeadPlace, Record
from qframe.stores.redis.envelopes import NUMBER, record_of_dead
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

PAGE = 500


class RedisDeadLetters(RedisRole, DeadLetters):
    """Dead letters, page by page."""

    @override
    def dead(
        self,
        topic: Topic,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        after: DeadPlace | None = None,
    ) -> list[Record]:
        return self._call(topic, listed, group, ChosenDead(ids, limit, after))

    @override
    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500,
        *, after: DeadPlace | None = None, until: DeadPlace | None = None,
    ) -> int:  # fmt: skip
        chosen = ChosenDead(ids, limit, after, until)
        return self._call(topic, retry, group, chosen, self._now())

    @override
    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500,
        *, after: DeadPlace | None = None, until: DeadPlace | None = None,
    ) -> int:  # fmt: skip
        return self._call(topic, drop, group, ChosenDead(ids, limit, after, until))


def listed(redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead) -> list[Record]:
    """Dead messages, the longest dead first."""
    require(redis, keys, group)
    found = [
        record
        for slot in range(keys.topic.slots)
        for record in of_slot(redis, keys, group, slot, chosen)
    ]
    found.sort(key=lambda one: one.dead_place)
    return found[: chosen.limit]


def of_slot(
    redis: Redis, keys: SlotKeys, group: str, slot: int, chosen: ChosenDead
) -> list[Record]:
    """Dead messages of one slot, page by page, until there are enough."""
    wanted = None if chosen.ids is None else set(chosen.ids)
    found: list[Record] = []
    key = keys.key(slot, "dead", group)
    after, until = chosen.after, chosen.until
    start = 0 if after is None else redis.ask(key, "ZCOUNT", "-inf", f"({after.died_at_ms}")
    while len(found) < chosen.limit:
        page = redis.ask(key, "ZRANGE", start, start + PAGE - 1, "WITHSCORES")
        members = page[::2]
        if not members:
            break
        records = redis.ask(keys.key(slot, "graves", group), "HMGET", *members)
        for member, died_at, value in zip(members, page[1::2], records, strict=True):
            if value is None:
                continue
            one = record_of_dead(keys.topic.name, group, slot, member, float(died_at), value)
            if until is not None and one.dead_place > until:
                return found[: chosen.limit]
            is_wanted = wanted is None or one.id in wanted
            if is_wanted and (after is None or one.dead_place > after):
                found.append(one)
        start += PAGE
    return found[: chosen.limit]


def retry(redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead, now: str) -> int:
    """Makes dead messages due again."""
    return _each_slot(redis, keys, group, chosen, "retry_dead",
                      now, str(keys.topic.kind), group)  # fmt: skip


def drop(redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead) -> int:
    """Removes dead messages for good."""
    return _each_slot(redis, keys, group, chosen, "drop_dead", group)


def _each_slot(
    redis: Redis, keys: SlotKeys, group: str, chosen: ChosenDead, script: str, *arguments: str
) -> int:
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
        return 0
    return sum(known(redis, keys, group, reply) for reply in redis.run(calls))
