"""Topics and groups: declaring, subscribing, owning, moving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from qframe.drivers.redis import Call, Command, Missing, Redis
from qframe.errors import StoreDamaged, UnknownGroup
from qframe.stores.base import Groups
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.stores.types import NO_EPOCH, SlotsAway, SlotSplit
from qframe.topic import Topic

NO_GROUP = -2
_REMAINS = -3


class RedisGroups(RedisRole, Groups):
    """Groups, decided by the first slot; epochs and positions in every slot."""

    @override
    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (), max_parked: int = 0,
    ) -> bool:  # fmt: skip
        self._check_rights("consumer", self._keys(topic), 0)
        names, new = (group, *beside), set[str]()
        terms = (start, expires_ms, max_parked, self._now())
        self._call(topic, subscribe, names, *terms, new)
        for name in new:
            self._readahead.forget(topic.name, name)  # one of that name may have been dropped
        return group in new

    @override
    def groups(self, topic: Topic) -> list[str]:
        return self._call(topic, names)

    @override
    def drop_group(self, topic: Topic, group: str) -> bool:
        was: list[bool] = []
        self._call(topic, drop, group, was)
        return any(was)

    @override
    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        self._call(topic, seek, group, positions)
        self._readahead.forget(topic.name, group)

    @override
    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        return self._call(topic, epochs, group)

    @override
    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        return self._call(topic, take, group, epochs, self._now())


def known(redis: Redis, keys: SlotKeys, group: str, reply: Any) -> int:
    """The reply, where it is a number; refuses one that says that there is no such group."""
    if lacks_group(reply):
        raise UnknownGroup(keys.topic.name, group, names(redis, keys))
    return reply if isinstance(reply, int) else 0


def lacks_group(reply: Any) -> bool:
    """Whether a script says that there is no such group; others reply with bytes and lists."""
    return isinstance(reply, int) and reply == NO_GROUP


def ask_group(redis: Redis, keys: SlotKeys, group: str, name: str, *arguments: Argument) -> Any:
    """The reply of a script under slot 0's prefix; refuses a group that there is not."""
    [reply] = redis.run([keys.call(name, 0, *arguments)])
    known(redis, keys, group, reply)
    return reply


def require(redis: Redis, keys: SlotKeys, group: str) -> None:
    """Refuses a group that there is not."""
    if not redis.ask(keys.key(0, "groups"), "HEXISTS", group):
        raise UnknownGroup(keys.topic.name, group, names(redis, keys))


def subscribe(
    redis: Redis,
    keys: SlotKeys,
    groups: Sequence[str],
    start: str,
    expires_ms: int | None,
    max_parked: int,
    now: str,
    new: set[str],
) -> None:
    """Makes groups collect; adds to `new` the new ones among them.

    Slot 0 decides which groups get what was kept for the first ones; the others follow it, also
    when a subscription that broke off half way is repeated. Of groups that were there before, slots
    that are away now are left as they are.
    """
    kind = str(keys.topic.kind)
    expires = "" if expires_ms is None else expires_ms

    def call(slot: int, how: Mapping[str, str]) -> Call:
        pairs = [word for pair in how.items() for word in pair]
        return keys.call("subscribe", slot, now, kind, expires, max_parked, *pairs)

    starts = dict.fromkeys(groups, start)
    deciding = call(0, starts)
    if not keys.has_first:
        pairs = [word for pair in starts.items() for word in pair]
        deciding = keys.call("enlist", 0, now, kind, expires, *pairs)
    [reply] = redis.run([deciding])
    reply = _without_remains(redis, keys, 0, deciding, reply)
    new.update(group for group, is_new in zip(starts, reply[::2], strict=True) if is_new)
    if keys.topic.has_subjects:
        starts = {group: word.decode() for group, word in zip(starts, reply[1::2], strict=True)}
    rest = {slot: call(slot, starts) for slot in keys.topic.all_slots if slot}
    try:
        replies = redis.run(rest.values(), partly=not new) if rest else []
    except StoreDamaged:  # all of them; the worker tells of each when it takes it
        if new:
            raise
        return
    for (slot, asked), reply in zip(rest.items(), replies, strict=True):
        if not isinstance(reply, Missing):
            _without_remains(redis, keys, slot, asked, reply)


def _without_remains(redis: Redis, keys: SlotKeys, slot: int, call: Call, reply: Any) -> Any:
    """The reply to a subscription; remains of a dropped group of a name are removed first."""
    while reply[0] == _REMAINS:
        redis.run([keys.call("drop_group", slot, str(keys.topic.kind), reply[1], 0)])
        [reply] = redis.run([call])
    return reply


def names(redis: Redis, keys: SlotKeys) -> list[str]:
    """All groups of a topic, by name."""
    return sorted(name.decode() for name in redis.ask(keys.key(0, "groups"), "HKEYS"))


def drop(redis: Redis, keys: SlotKeys, group: str, was: list[bool]) -> None:
    """Forgets a group; adds to `was` whether slots had it."""
    others = [slot for slot in reversed(keys.topic.all_slots) if slot]
    was += drop_from(redis, keys, group, others, anyway=False)
    was += drop_from(redis, keys, group, [0], anyway=not keys.has_first)


def drop_from(
    redis: Redis, keys: SlotKeys, group: str, slots: Sequence[int], *, anyway: bool
) -> list[bool]:
    """Forgets a group in slots, in steps, also in closed ones if so asked; returns who had it."""
    kind, was = str(keys.topic.kind), []
    while slots:
        calls = [keys.call("drop_group", slot, kind, group, int(anyway)) for slot in slots]
        replies = redis.run(calls)
        was += [bool(reply[0]) for reply in replies]
        slots = [slot for slot, reply in zip(slots, replies, strict=True) if reply[1]]
    return was


def seek(redis: Redis, keys: SlotKeys, group: str, positions: Mapping[int, int]) -> None:
    """Moves a stream's group to an offset in each slot named."""
    SlotSplit.check(keys.topic, positions)
    calls = [keys.call("seek", slot, group, max(0, offset)) for slot, offset in positions.items()]
    if not calls:
        require(redis, keys, group)
    for reply in redis.run(calls):
        known(redis, keys, group, reply)


def epochs(redis: Redis, keys: SlotKeys, group: str) -> dict[int, str]:
    """The epoch of each slot that can be asked now."""
    slots = keys.topic.shared_slots
    if not slots:
        require(redis, keys, group)
    cursors = [keys.key(slot, "cursor", group) for slot in slots]
    found = redis.run([Command(key, ("HGET", key, "epoch")) for key in cursors], partly=True)
    here = {
        slot: epoch
        for slot, epoch in zip(slots, found, strict=True) if not isinstance(epoch, Missing)
    }  # fmt: skip
    if here and next(iter(here.values())) is None:
        known(redis, keys, group, NO_GROUP)
    return {slot: epoch.decode() if epoch else NO_EPOCH for slot, epoch in here.items()}


def take(
    redis: Redis, keys: SlotKeys, group: str, wanted: Mapping[int, str], now: str
) -> list[int]:
    """Takes slots under new epochs; returns those taken."""
    kind = str(keys.topic.kind)
    keeps = int(keys.topic.history_ms > 0)
    calls = [
        keys.call("take", slot, now, kind, group, epoch, keeps) for slot, epoch in wanted.items()
    ]
    if not calls:
        require(redis, keys, group)
    replies = dict(zip(wanted, redis.run(calls, partly=True), strict=True))
    away = [slot for slot, reply in replies.items() if isinstance(reply, Missing)]
    taken = [
        slot for slot, reply in replies.items()
        if slot not in away and known(redis, keys, group, reply)
    ]  # fmt: skip
    if away:
        raise SlotsAway(redis.shown, taken, {slot: replies[slot].fault for slot in away})
    return taken
