"""Topics: declaring them, and sweeping away what they no longer need."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.errors import TopicMismatch
from qframe.growth import Growth
from qframe.stores.base import Declaring
from qframe.stores.redis import groups
from qframe.stores.redis.audit import OF_SLOT
from qframe.stores.redis.keys import (
    ELSEWHERE,
    GONE,
    SlotKeys,
    declared,
    elsewhere,
    grown_from,
    identity_of,
    is_elsewhere,
    kind_of,
    swap,
    topic_from,
    topics_key,
)
from qframe.stores.redis.role import RedisRole
from qframe.stores.topic_options import TopicOptions, reading
from qframe.stores.types import LiesHere, TopicList
from qframe.topic import Kind, Topic

_OTHERS: Final = ("claimed", "asleep", "birth", "opened")
_GONE_S: Final = 30 * 86_400
"""For how long a slot of a topic that was deleted stays closed."""


class RedisTopics(RedisRole, Declaring):
    """Topics in a hash of the namespace."""

    @override
    def declare(self, topic: Topic) -> Topic:
        stored = declare(self._redis, self.namespace, topic)
        self._known_keys[topic.name] = SlotKeys(self.namespace, stored)
        return stored

    def point_away(self, topic: Topic, mark: int) -> int:
        """Refuses the topic from now on to whoever does not know where it lies.

        Returns the mark of the database that stands here now: the first one that was given.
        """
        sign = f"{ELSEWHERE}:{mark:016x}"
        is_done, known, slots, _ = _declared(self._redis, self.namespace, topic, sign)
        if is_done:
            return mark
        if known == kind_of(topic):
            raise _is_here(topic.name)
        if known == sign or not known.startswith(ELSEWHERE):
            raise _mismatch(topic, known, slots)
        with reading(topic.name, ELSEWHERE):
            return int(known.partition(":")[2], 16)

    def unpoint(self, topic: Topic) -> None:
        """Forgets what `point_away` has done."""
        self._redis.ask(topics_key(self.namespace), "HDEL", topic.name)

    @override
    def topics(self, names: Sequence[str] | None = None) -> TopicList:
        found = declared_of(self._redis, self.namespace, names)
        for topic in found:
            if topic.name in self._known_keys:
                self._remembered(topic)
        return found

    @override
    def birth(self, topic: Topic) -> str:
        return self._call(topic, birth, secrets.token_hex(8))

    @override
    def sweep(self, topic: Topic, limit: int = 500) -> int:
        found = declared(self._redis, self.namespace, topic.name)
        return self._call(found or topic, sweep, limit, self._now())

    @override
    def delete(self, topic: Topic, limit: int = 500) -> bool:
        group, done = self._call(topic, delete, self.namespace)
        if group is not None:
            self._readahead.forget(topic.name, group)
        if done:
            self._known_keys.pop(topic.name, None)
        return done


def declare(redis: Redis, namespace: str, topic: Topic) -> Topic:
    """Makes a topic known, or changes its options; returns it, as far grown as it is."""
    is_done, known, slots, growth = _declared(redis, namespace, topic)
    if is_done:
        return topic if growth == topic.growth else topic.grown(slots, growth)
    if known.startswith(ELSEWHERE) and topic.kind is Kind.DELAY:
        raise elsewhere(topic.name)
    raise _mismatch(topic, known, slots)


def _declared(
    redis: Redis, namespace: str, topic: Topic, sign: str = ""
) -> tuple[bool, str, int, Growth]:
    """Whether a topic is declared, or signed away; the first word, slots and growth it has.

    Raises:
        BadTopic: if it is declared, and this version of qframe cannot read how.
    """
    key, kind = topics_key(namespace), sign or kind_of(topic)
    while True:
        before = redis.ask(key, "HGET", topic.name) or b""
        has_been = not before or _has_been(topic, before)
        known, numbers, options = (before or _line(topic, sign)).split(b" ", 2)
        slots, growth = grown_from(numbers)
        if known.decode() != kind or not has_been:
            return False, known.decode(), slots, growth
        line = b" ".join((known, numbers, TopicOptions.of(topic).to_json(options)))
        if swap(redis, namespace, topic.name, before, line):
            return True, kind, slots, growth


def _has_been(topic: Topic, value: bytes) -> bool:
    """Whether the topic of a value has, had or is to have so many slots."""
    if is_elsewhere(value):
        return grown_from(value.split(b" ", 2)[1])[0] == topic.slots
    return topic_from(topic.name, value).has_been(topic.slots)


def _line(topic: Topic, sign: str) -> bytes:
    """The value of a topic that is not there yet, without its options."""
    return f"{identity_of(topic, sign)} {{}}".encode()


def _mismatch(topic: Topic, known: str, slots: int) -> TopicMismatch:
    kind = str(Kind.DELAY) if known.startswith(ELSEWHERE) else known.partition("@")[0]
    if kind != topic.kind:
        return TopicMismatch(topic.name, "kind", kind, str(topic.kind))
    return TopicMismatch(topic.name, "slots", slots, topic.slots)


def _is_here(name: str) -> LiesHere:
    return LiesHere(
        "timers_db", "", f"topic {name!r} was declared without it, and its messages lie in Redis",
        "have its workers empty it without timers_db and delete it, or take another name",
    )  # fmt: skip


def declared_of(redis: Redis, namespace: str, names: Sequence[str] | None) -> TopicList:
    """The topics that lie here, by name: all, or those of some names."""
    key = topics_key(namespace)
    if names is None:
        flat = redis.ask(key, "HGETALL")
        lines = {name.decode(errors="replace"): line for name, line in _pairs(flat)}
    else:
        lines = dict(zip(names, redis.ask(key, "HMGET", *names) if names else (), strict=True))
    found = TopicList()
    for name, line in sorted((name, line) for name, line in lines.items() if line is not None):
        with found.passing_by():
            if not is_elsewhere(line):
                found.append(topic_from(name, line))
            elif names is not None:
                raise elsewhere(name)
    return found


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def birth(redis: Redis, keys: SlotKeys, fresh: str) -> str:
    """The name of the topic's data: the given one, where they have none."""
    return str(redis.one(keys.call("birth", 0, fresh)).decode())


def sweep(redis: Redis, keys: SlotKeys, limit: int, now: str) -> int:
    """Removes up to `limit` rows that are no longer needed; returns how many."""
    removed = 0
    topic = keys.topic
    past = topic.past_slots
    for slot in [*topic.all_slots, *past]:
        while removed < limit:
            step = min(500, limit - removed)
            words = (now, str(topic.kind), topic.retain_ms, step, topic.history_ms)
            split = 0 if slot not in past else 1 if slot == 0 else 2
            gone = redis.one(keys.call("sweep", slot, *words, split))
            removed += gone
            if gone < step:
                break
    return removed


def delete(redis: Redis, keys: SlotKeys, namespace: str) -> tuple[str | None, bool]:
    """Drops one group, or else all that is left; returns the group, and whether that was all.

    A slot stays closed for 30 days, for producers that know the topic still.
    """
    numbers = keys.numbers[::-1]
    if named := groups.names(redis, keys):
        groups.drop_from(redis, keys, named[0], numbers, anyway=True)
        return named[0], False
    _close(redis, keys, numbers)
    _empty(redis, keys, numbers)
    redis.ask(topics_key(namespace), "HDEL", keys.topic.name)
    # Whoever found it declared still, and its slots closed, has opened them meanwhile.
    if redis.ask(topics_key(namespace), "HGET", keys.topic.name) is None:
        _close(redis, keys, numbers)
        _empty(redis, keys, numbers)
    return None, True


def _close(redis: Redis, keys: SlotKeys, numbers: Sequence[int]) -> None:
    closed = [keys.key(slot, "closed") for slot in numbers]
    redis.ask_many([(key, "SET", GONE, "EX", _GONE_S) for key in closed])


def _empty(redis: Redis, keys: SlotKeys, numbers: Sequence[int]) -> None:
    # Slots that were split know groups that have gone since.
    left = redis.ask_many([(keys.key(slot, "groups"), "HKEYS") for slot in numbers])
    for name in sorted({b"", *chain.from_iterable(left)}, reverse=True):
        groups.drop_from(redis, keys, name.decode(), numbers, anyway=True)
    for slot in numbers:
        first, *others = [keys.key(slot, name) for name in (*OF_SLOT, *_OTHERS)]
        redis.ask(first, "UNLINK", *others)
