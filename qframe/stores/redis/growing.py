"""Splitting slots in two while others use the topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.drivers.scripts import Refused
from qframe.errors import UnknownTopic
from qframe.stores.acts import Growing
from qframe.stores.redis.keys import SlotKeys, declared, identity_of, swap, topics_key
from qframe.stores.redis.role import RedisRole
from qframe.stores.searching import next_token
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic


class RedisGrowing(RedisRole, Growing):
    """The growth of a topic beside its declaration, and a key of a slot that says it is closed."""

    @override
    def grow(self, topic: Topic, following: Topic, tokens: Mapping[int, str] | None = None) -> bool:
        done = self._call_once(topic, grow, self.namespace, topic, following, tokens or {})
        self._read_anew(topic)
        return done

    @override
    def open_slot(
        self, topic: Topic, slot: int, like: int, token: str, *, again: bool = False
    ) -> None:
        self._call_once(topic, open_slot, slot, like, token, again)

    @override
    def close_slot(self, topic: Topic, slot: int) -> None:
        if slot not in self._all_slots(topic):
            raise SlotsClosed(self._redis.shown, topic.name)
        self._call_once(topic, close, slot, self._now())

    @override
    def discard(self, topic: Topic, slot: int, limit: int = 500) -> bool:
        if slot in self._all_slots(topic):
            raise SlotsClosed(self._redis.shown, topic.name)
        return self._call_once(topic, discard, slot, limit, topic.growth.until_ms)

    def _all_slots(self, topic: Topic) -> Sequence[int]:
        """The slots in use, as far as the server knows that has taken over, if one has."""
        found = declared(self._redis, self.namespace, topic.name)
        if found is None:
            raise UnknownTopic(topic.name)
        return found.all_slots


def grow(
    redis: Redis, keys: SlotKeys, namespace: str, topic: Topic, following: Topic,
    tokens: Mapping[int, str],
) -> bool:  # fmt: skip
    """Notes how far a topic has grown, if it stands as it was read.

    Before slots come into use, nobody may write there any more by a token, open or discard them;
    but for who has leased the growth since, for then they do not come into use by this.
    """
    before, after = topic.growth, following.growth
    key, identity = topics_key(namespace), f"{identity_of(topic)} ".encode()
    splits = before.first + before.split < after.first + after.split
    if splits:
        if not (redis.ask(key, "HGET", topic.name) or b"").startswith(identity):
            return False
        split = before.first + before.split
        halves = topic.split_of(split)
        for slot in halves:
            use(redis, keys, slot, tokens.get(slot, "-"), before.until_ms)
        used = f"={before.until_ms}".encode()
        asked = [keys.key(split, "closed"), *(keys.key(slot, "opened") for slot in halves)]
        if redis.ask_many([(key, "GET") for key in asked]) != [b"1", used, used]:
            raise Refused([])  # a server has taken over that has not heard of that
        # The slot that was split is discarded next: until then it has all that replicas lack.
        redis.await_replicas(keys.slots[slot] for slot in halves)
    new, is_done = f"{identity_of(following)} ".encode(), False
    while not is_done and (line := redis.ask(key, "HGET", topic.name) or b"").startswith(identity):
        is_done = swap(redis, namespace, topic.name, line, line.replace(identity, new, 1))
    if splits:
        redis.await_replicas([key])
    return is_done


def use(redis: Redis, keys: SlotKeys, slot: int, token: str, until_ms: int) -> None:
    """Has a slot be in use that was opened under a token, as far as its own keys say."""
    redis.one(keys.call("use", slot, token, until_ms))


def open_slot(redis: Redis, keys: SlotKeys, slot: int, like: int, token: str, again: bool) -> None:
    """Makes a slot with just the groups that another one has, by what that one says of them."""
    flat, claimed, expiring = redis.ask_many([
        (keys.key(like, "groups"), "HGETALL"),
        (keys.key(like, "claimed"), "EXISTS"),
        (keys.key(like, "expiries"), "ZRANGE", 0, -1, "WITHSCORES"),
    ])  # fmt: skip
    words = dict(zip(flat[::2], flat[1::2], strict=True))
    expiries = dict(zip(expiring[::2], expiring[1::2], strict=True))
    cursors = [keys.key(like, "cursor", name.decode()) for name in words]
    parked = redis.ask_many([(cursor, "HGET", "max_parked") for cursor in cursors])
    terms = [
        term
        for (name, word), most in zip(words.items(), parked, strict=True)
        for term in (name, word, expiries.get(name, b""), most or b"")
    ]
    kind = str(keys.topic.kind)
    following = next_token(token) if again else token
    call = keys.call("open_slot", slot, kind, token, following, int(again), claimed, *terms)
    while redis.one(call):
        pass


def close(redis: Redis, keys: SlotKeys, slot: int, now: str) -> None:
    """Has a slot take nothing any more, and fences its owners."""
    keeps = int(keys.topic.history_ms > 0)
    redis.one(keys.call("close", slot, now, str(keys.topic.kind), keeps))


def discard(redis: Redis, keys: SlotKeys, slot: int, limit: int, until_ms: int) -> bool:
    """Removes a part of what stands in a slot; returns whether nothing is left."""
    return not redis.one(keys.call("discard", slot, str(keys.topic.kind), limit, until_ms))
