"""Topics: declaring them, and sweeping away what they no longer need."""

from __future__ import annotations

import secrets

from typing_extensions import override

from qframe.drivers.redis import Call, Redis
from qframe.errors import BadOption, TopicMismatch
from qframe.stores.base import Topics
from qframe.stores.redis import groups
from qframe.stores.redis.audit import OF_SLOT
from qframe.stores.redis.keys import (
    ELSEWHERE,
    UNCLAIMED,
    SlotKeys,
    declared,
    elsewhere,
    is_elsewhere,
    of,
    topic_from,
    topics_key,
)
from qframe.stores.redis.role import RedisRole
from qframe.stores.topic_options import TopicOptions
from qframe.topic import Kind, Topic


class RedisTopics(RedisRole, Topics):
    """Topics in a hash of the namespace."""

    @override
    def declare(self, topic: Topic) -> None:
        declare(self._redis, self.namespace, topic)
        self._known_keys[topic.name] = SlotKeys(self.namespace, topic)

    def point_away(self, topic: Topic) -> None:
        """Refuses the topic from now on to whoever does not know where it lies."""
        declare(self._redis, self.namespace, topic, kind=ELSEWHERE)

    def unpoint(self, topic: Topic) -> None:
        """Forgets what `point_away` has done."""
        self._redis.ask(topics_key(self.namespace), "HDEL", topic.name)

    @override
    def topic(self, name: str) -> Topic | None:
        return declared(self._redis, self.namespace, name)

    @override
    def topics(self) -> list[Topic]:
        return all_declared(self._redis, self.namespace)

    @override
    def birth(self, topic: Topic) -> str:
        return self._call(topic, birth, secrets.token_hex(8))

    @override
    def sweep(self, topic: Topic, limit: int = 500) -> int:
        return self._call(self.topic(topic.name) or topic, sweep, limit, self._now())

    @override
    def delete(self, topic: Topic, limit: int = 500) -> bool:
        group, done = self._call(topic, delete, self.namespace)
        if group is not None:
            self._readahead.forget(topic.name, group)
        if done:
            del self._known_keys[topic.name]
        return done


def declare(redis: Redis, namespace: str, topic: Topic, kind: str = "") -> None:
    """Makes a topic known, or changes its options; under another word than its kind, if given."""
    kind = kind or str(topic.kind)
    [before] = redis.run(
        [
            Call(
                of("declare"), topics_key(namespace),
                (topic.name, f"{kind} {topic.slots}", TopicOptions.of(topic).to_json()),
            )
        ]
    )  # fmt: skip
    if before:
        known, slots = before.decode().split()
        if {known, kind} == {ELSEWHERE, Kind.DELAY}:
            raise elsewhere(topic.name) if known == ELSEWHERE else _is_here(topic.name)
        if known != kind:
            kinds = [str(Kind.DELAY) if each == ELSEWHERE else each for each in (known, kind)]
            raise TopicMismatch(topic.name, "kind", *kinds)
        raise TopicMismatch(topic.name, "slots", int(slots), topic.slots)


def _is_here(name: str) -> BadOption:
    return BadOption(
        "timers_db", "", f"topic {name!r} was declared without it, and its messages lie in Redis",
        "have its workers empty it without timers_db and delete it, or take another name",
    )  # fmt: skip


def all_declared(redis: Redis, namespace: str) -> list[Topic]:
    """All topics that lie here, by name."""
    flat = redis.ask(topics_key(namespace), "HGETALL")
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [
        topic_from(name.decode(), value)
        for name, value in sorted(pairs) if not is_elsewhere(value)
    ]  # fmt: skip


def birth(redis: Redis, keys: SlotKeys, fresh: str) -> str:
    """The name of the topic's data: the given one, where they have none."""
    return str(redis.one(keys.call("birth", 0, fresh)).decode())


def sweep(redis: Redis, keys: SlotKeys, limit: int, now: str) -> int:
    """Removes up to `limit` rows that are no longer needed; returns how many."""
    removed = 0
    topic = keys.topic
    for slot in range(topic.slots):
        while removed < limit:
            step = min(500, limit - removed)
            [gone] = redis.run(
                [
                    keys.call(
                        "sweep", slot, now, str(topic.kind), topic.retain_ms, step, topic.history_ms
                    )
                ]
            )
            removed += gone
            if gone < step:
                break
    return removed


def delete(redis: Redis, keys: SlotKeys, namespace: str) -> tuple[str | None, bool]:
    """Drops one group, or else all that is left; returns the group, and whether that was all."""
    if named := groups.names(redis, keys):
        groups.drop(redis, keys, named[0])
        return named[0], False
    groups.drop(redis, keys, UNCLAIMED)
    for slot in range(keys.topic.slots):
        first, *others = [keys.key(slot, name) for name in (*OF_SLOT, "claimed", "asleep", "birth")]
        redis.ask(first, "UNLINK", *others)
    redis.ask(topics_key(namespace), "HDEL", keys.topic.name)
    return None, True
