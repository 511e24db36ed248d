"""The buckets of tokens of groups. They all lie under slot 0's prefix."""

from __future__ import annotations

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.stores.bucket import Buckets, DrawTerms
from qframe.stores.redis.groups import known
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.stores.types import DrawResult
from qframe.topic import Topic


class RedisBuckets(RedisRole, Buckets):
    """Buckets under the prefix of slot 0."""

    @override
    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        terms = DrawTerms(tokens, rate, per_ms, burst)
        return self._call(topic, draw, group, terms, self._now())


def draw(redis: Redis, keys: SlotKeys, group: str, terms: DrawTerms, now: str) -> DrawResult:
    """Draws tokens, as many as there are; who asks in vain asks again, so nobody waits here."""
    reply = redis.one(keys.call("draw", 0, now, group, *terms), partly=True)
    known(redis, keys, group, reply[0])
    return DrawResult(*reply)
