"""Messages that stand first for a key: looked up, made due, given up."""

from __future__ import annotations

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.outcomes import Moved
from qframe.stores.acts import Unblocking
from qframe.stores.records import HeadPlace
from qframe.stores.redis.groups import known
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic


class RedisUnblocking(RedisRole, Unblocking):
    """Heads of a group, each by a script of its own."""

    @override
    def hasten(self, topic: Topic, group: str, place: HeadPlace) -> Moved:
        return self._call(topic, hasten, group, place, self._now())

    @override
    def skip(
        self, topic: Topic, group: str, place: HeadPlace, error: str, *, force: bool = False
    ) -> Moved:
        return self._call(topic, skip, group, place, error, force, self._now())


def hasten(redis: Redis, keys: SlotKeys, group: str, place: HeadPlace, now: str) -> Moved:
    """Makes a message due now."""
    return _changed(redis, keys, "hasten", group, place, now)


def skip(
    redis: Redis, keys: SlotKeys, group: str, place: HeadPlace, error: str, force: bool, now: str
) -> Moved:
    """Writes a message among the dead, and lets its subject go on."""
    return _changed(redis, keys, "skip", group, place, now, error, int(force))


def _changed(
    redis: Redis, keys: SlotKeys, script: str, group: str, place: HeadPlace, now: str,
    *others: Argument,
) -> Moved:  # fmt: skip
    slot, subject, seq = place
    kind = str(keys.topic.kind)
    [reply] = redis.run([keys.call(script, slot, now, kind, group, subject, seq, *others)])
    known(redis, keys, group, reply)
    return Moved(reply.decode())
