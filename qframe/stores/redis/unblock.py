"""Messages that stand first for a key."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.stores.acts import Unblocking
from qframe.stores.records import Record
from qframe.stores.redis.groups import require
from qframe.stores.redis.inspect import SlotReader
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.records import records_of_heads
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

LOOKED_AT: Final = 10_000


class RedisUnblocking(RedisRole, Unblocking):
    """Heads of a group."""

    @override
    def first_of_key(self, topic: Topic, group: str, key: str, limit: int = 100) -> list[Record]:
        return self._call(topic, first_of_key, group, key, limit, self._now_ms())


def first_of_key(
    redis: Redis, keys: SlotKeys, group: str, key: str, limit: int, now_ms: int
) -> list[Record]:
    """A subject's head by its name; of a stream's slot, the first 10,000 in each state."""
    require(redis, keys, group)
    found: list[Record] = []
    for slot in keys.topic.all_slots:
        if keys.topic.has_subjects:
            found += records_of_heads(redis, keys, group, slot, [key.encode()], now_ms)
            continue
        reader = SlotReader(redis, keys, group, slot, now_ms=now_ms, at_most=LOOKED_AT)
        of_key = [
            record
            for state in ("doing", "todo", "waiting")
            for record in reader.first(state)
            if record.key == key
        ]
        found += sorted(of_key, key=lambda record: record.seq or 0)
    return found[:limit]
