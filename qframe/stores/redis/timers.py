"""Changing and finding what is not handed out."""

from __future__ import annotations

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.outcomes import Moved
from qframe.stores.base import StoredTimers
from qframe.stores.records import Record
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import keeping
from qframe.stores.redis.inspect import records_of_heads
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic


class RedisTimers(RedisRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        return self._call(topic, move, subject, at_ms, self._now())

    @override
    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        return self._call(topic, change, subject, body, headers)

    @override
    def cancel(self, topic: Topic, subject: str) -> Moved:
        return self._call(topic, cancel, subject)

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        return self._call(topic, timer, subject, self._now_ms())

    @override
    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        return self._call(
            topic, timers, from_ms=from_ms, until_ms=until_ms, limit=limit, now_ms=self._now_ms()
        )


def move(redis: Redis, keys: SlotKeys, subject: str, at_ms: int, now: str) -> Moved:
    """Makes a subject due at another time, for every group."""
    return _everywhere(redis, keys, "move", now, str(keys.topic.kind), subject, max(0, at_ms))


def change(
    redis: Redis, keys: SlotKeys, subject: str, body: bytes, headers: dict[str, str] | None
) -> Moved:
    """Gives a subject another body and headers, for every group."""
    kind = str(keys.topic.kind)
    return _everywhere(redis, keys, "change", kind, subject, pack(body), pack(headers))


def cancel(redis: Redis, keys: SlotKeys, subject: str) -> Moved:
    """Takes a subject out with all its messages, for every group."""
    return _everywhere(redis, keys, "cancel", str(keys.topic.kind), subject)


def timer(redis: Redis, keys: SlotKeys, subject: str, now_ms: int) -> list[Record]:
    """Where the subject stands: a record for each group that has it."""
    found = []
    for group in keeping(redis, keys):
        for slot in range(keys.topic.slots):
            found += records_of_heads(redis, keys, group, slot, [subject.encode()], now_ms)
    return found


def timers(
    redis: Redis, keys: SlotKeys, *, from_ms: int, until_ms: int | None, limit: int, now_ms: int
) -> list[Record]:
    """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""
    found = []
    first = max(from_ms, now_ms + 1)
    last = "+inf" if until_ms is None else f"({until_ms}"
    for group in keeping(redis, keys):
        for slot in range(keys.topic.slots):
            subjects: list[bytes] = []
            for name in ("waiting", "retry"):
                key = keys.key(slot, name, group)
                subjects += _in_span(redis, key, first, last, limit)
            found += records_of_heads(redis, keys, group, slot, subjects, now_ms)
    found.sort(key=lambda one: (one.due_ms or 0, one.seq or 0))
    return found[:limit]


def _in_span(redis: Redis, key: bytes, first: int, last: str, limit: int) -> list[bytes]:
    """Members by score, with all that share the score of the last."""
    found = redis.ask(key, "ZRANGEBYSCORE", first, last, "WITHSCORES", "LIMIT", 0, limit)
    members: list[bytes] = found[::2]
    if len(members) == limit:
        score = found[-1]
        members = [each for each, at in zip(members, found[1::2], strict=True) if at != score]
        members += redis.ask(key, "ZRANGEBYSCORE", score, score)
    return members


def _everywhere(redis: Redis, keys: SlotKeys, script: str, *arguments: Argument) -> Moved:
    """Asks every slot, since a body's hash does not tell its own."""
    slots = range(keys.topic.slots)
    replies = redis.run([keys.call(script, slot, *arguments) for slot in slots])
    results = {Moved(reply.decode()) for reply in replies}
    for result in (Moved.DOING, Moved.DONE):
        if result in results:
            return result
    return Moved.ABSENT
