"""Topics and groups: declaring, subscribing, owning, moving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qframe.drivers.redis import Call, Command, Missing, Redis
from qframe.errors import SlotsAway, StoreDamaged, TopicMismatch, UnknownGroup
from qframe.stores.redis.keys import UNCLAIMED, Place, of, topics_key
from qframe.stores.types import NO_EPOCH
from qframe.topic import Kind, SubjectRule, Topic

_NO_GROUP = -2
_REMAINS = -3


class Options(msgspec.Struct):
    """What of a topic may be changed later."""

    retain_ms: int
    max_length: int | None
    dedupe_window_ms: int
    gap_timeout_ms: int
    subject: SubjectRule | None = None


def known(redis: Redis, place: Place, group: str, reply: Any) -> int:
    """The reply, where it is a number; refuses one that says that there is no such group."""
    if reply == _NO_GROUP:
        raise UnknownGroup(place.topic.name, group, names(redis, place))
    return reply if isinstance(reply, int) else 0


def require(redis: Redis, place: Place, group: str) -> None:
    """Refuses a group that there is not."""
    if not redis.ask(place.key(0, "groups"), "HEXISTS", group):
        raise UnknownGroup(place.topic.name, group, names(redis, place))


def declare(redis: Redis, namespace: str, topic: Topic) -> None:
    """Makes a topic known, or changes its options."""
    options = Options(
        topic.retain_ms, topic.max_length, topic.dedupe_window_ms, topic.gap_timeout_ms,
        topic.subject,
    )  # fmt: skip
    [before] = redis.run(
        [
            Call(
                of("declare"), topics_key(namespace),
                (topic.name, f"{topic.kind} {topic.slots}", msgspec.json.encode(options)),
            )
        ]
    )  # fmt: skip
    if before:
        kind, slots = before.decode().split()
        if kind != topic.kind:
            raise TopicMismatch(topic.name, "kind", kind, str(topic.kind))
        raise TopicMismatch(topic.name, "slots", int(slots), topic.slots)


def declared(redis: Redis, namespace: str, name: str) -> Topic | None:
    """A topic as declared, or None."""
    value = redis.ask(topics_key(namespace), "HGET", name)
    return None if value is None else _topic(name, value)


def all_declared(redis: Redis, namespace: str) -> list[Topic]:
    """All topics, by name."""
    flat = redis.ask(topics_key(namespace), "HGETALL")
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [_topic(name.decode(), value) for name, value in sorted(pairs)]


def subscribe(
    redis: Redis, place: Place, groups: Sequence[str], start: str, expires_ms: int | None, now: str
) -> list[str]:
    """Makes groups collect; returns the new ones among them.

    The first slot decides which groups get what was kept for the first ones; the others follow
    it, also when a subscription that broke off half way is repeated. Of groups that were there
    before, slots that are away now are left as they are.
    """
    kind = str(place.topic.kind)
    expires = "" if expires_ms is None else expires_ms

    def call(slot: int, how: Mapping[str, str]) -> Call:
        pairs = [word for pair in how.items() for word in pair]
        return place.call("subscribe", slot, now, kind, expires, *pairs)

    starts = dict.fromkeys(groups, start)
    [reply] = redis.run([call(0, starts)])
    reply = _without_remains(redis, place, 0, call(0, starts), reply)
    new = [group for group, is_new in zip(starts, reply[::2], strict=True) if is_new]
    if place.topic.has_subjects:
        starts = {group: word.decode() for group, word in zip(starts, reply[1::2], strict=True)}
    rest = [call(slot, starts) for slot in range(1, place.topic.slots)]
    try:
        replies = redis.run(rest, partly=not new) if rest else []
    except StoreDamaged:  # all of them; the worker tells of each when it takes it
        if new:
            raise
        replies = []
    for slot, reply in enumerate(replies, start=1):
        if not isinstance(reply, Missing):
            _without_remains(redis, place, slot, rest[slot - 1], reply)
    return new


def _without_remains(redis: Redis, place: Place, slot: int, call: Call, reply: Any) -> Any:
    """The reply to a subscription; remains of a dropped group of a name are removed first."""
    while reply[0] == _REMAINS:
        redis.run([place.call("drop_group", slot, str(place.topic.kind), reply[1])])
        [reply] = redis.run([call])
    return reply


def names(redis: Redis, place: Place) -> list[str]:
    """All groups of a topic, by name."""
    return sorted(name.decode() for name in redis.ask(place.key(0, "groups"), "HKEYS"))


def keeping(redis: Redis, place: Place) -> list[str]:
    """The groups that may have something of a topic with subjects: the unclaimed one too."""
    claimed = redis.ask(place.key(0, "claimed"), "EXISTS")
    return [*([] if claimed else [UNCLAIMED]), *names(redis, place)]


def drop(redis: Redis, place: Place, group: str) -> bool:
    """Forgets a group, the first slot last, in steps; False if there was none."""
    was = False
    slots = list(reversed(range(place.topic.slots)))
    while slots:
        calls = [place.call("drop_group", slot, str(place.topic.kind), group) for slot in slots]
        replies = redis.run(calls)
        was = was or any(reply[0] for reply in replies)
        slots = [slot for slot, reply in zip(slots, replies, strict=True) if reply[1]]
    return was


def seek(redis: Redis, place: Place, group: str, positions: Mapping[int, int]) -> None:
    """Moves a stream's group to an offset in each slot named."""
    calls = [place.call("seek", slot, group, max(0, offset)) for slot, offset in positions.items()]
    if not calls:
        require(redis, place, group)
    for reply in redis.run(calls):
        known(redis, place, group, reply)


def offsets_at(redis: Redis, place: Place, at_ms: int) -> dict[int, int]:
    """The first kept offset of each slot that joined the log at a time or later."""
    slots = range(place.topic.slots)
    replies = redis.run([place.call("offsets_at", slot, at_ms) for slot in slots])
    return {slot: int(reply) for slot, reply in zip(slots, replies, strict=True)}


def epochs(redis: Redis, place: Place, group: str) -> dict[int, str]:
    """The epoch of each slot that can be asked now."""
    keys = [place.key(slot, "cursor", group) for slot in range(place.topic.slots)]
    found = redis.run([Command(key, ("HGET", key, "epoch")) for key in keys], partly=True)
    here = {slot: epoch for slot, epoch in enumerate(found) if not isinstance(epoch, Missing)}
    if next(iter(here.values())) is None:
        known(redis, place, group, _NO_GROUP)
    return {slot: epoch.decode() if epoch else NO_EPOCH for slot, epoch in here.items()}


def take(redis: Redis, place: Place, group: str, wanted: Mapping[int, str], now: str) -> list[int]:
    """Takes slots under new epochs; answers those taken."""
    kind = str(place.topic.kind)
    calls = [place.call("take", slot, now, kind, group, epoch) for slot, epoch in wanted.items()]
    if not calls:
        require(redis, place, group)
    replies = dict(zip(wanted, redis.run(calls, partly=True), strict=True))
    away = [slot for slot, reply in replies.items() if isinstance(reply, Missing)]
    taken = [
        slot for slot, reply in replies.items()
        if slot not in away and known(redis, place, group, reply)
    ]  # fmt: skip
    if away:
        raise SlotsAway(redis.shown, taken, {slot: replies[slot].fault for slot in away})
    return taken


def sweep(redis: Redis, place: Place, limit: int, now: str) -> int:
    """Removes up to `limit` rows that are no longer needed; answers how many."""
    removed = 0
    topic = place.topic
    for slot in range(topic.slots):
        while removed < limit:
            step = min(500, limit - removed)
            [gone] = redis.run(
                [place.call("sweep", slot, now, str(topic.kind), topic.retain_ms, step)]
            )
            removed += gone
            if gone < step:
                break
    return removed


def _topic(name: str, value: bytes) -> Topic:
    kind, slots, options = value.split(b" ", 2)
    known_options = msgspec.json.decode(options, type=Options)
    return Topic(
        name, Kind(kind.decode()), int(slots),
        retain=known_options.retain_ms / 1000, max_length=known_options.max_length,
        dedupe_window=known_options.dedupe_window_ms / 1000,
        gap_timeout=known_options.gap_timeout_ms / 1000, subject=known_options.subject,
    )  # fmt: skip
