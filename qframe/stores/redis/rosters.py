"""Members of a group, and the slots of each. It all lies under slot 0's prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.roster import Member, Owner, Roster, fresh_version
from qframe.stores.base import Rosters
from qframe.stores.redis.groups import ask_group
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

T = TypeVar("T")

_MINE = ord("m")


class RedisRosters(RedisRole, Rosters):
    """Rosters under the prefix of slot 0."""

    @override
    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        return self._call(topic, heartbeat, group, member, lease_ms, self._now())

    @override
    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        return self._call(topic, snapshot, group, seen, self._now())

    @override
    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        return self._call(topic, claim, group, member, epochs, self._now())

    @override
    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        self._call(topic, release_slots, group, member, slots, self._now())

    @override
    def retire(self, topic: Topic, group: str, member: str) -> None:
        self._call(topic, retire, group, member, self._now())

    @override
    def leave(self, topic: Topic, group: str, member: str) -> None:
        self._call(topic, leave, group, member, self._now())


def heartbeat(
    redis: Redis, keys: SlotKeys, group: str, member: str, lease_ms: int, now: str
) -> int:
    """Joins a member, or makes its lease begin anew; returns the version."""
    words = (now, group, fresh_version(), member, lease_ms)
    return int(ask_group(redis, keys, group, "heartbeat", *words))


def snapshot(redis: Redis, keys: SlotKeys, group: str, seen: int | None, now: str) -> Roster | None:
    """Live members and their slots; None if the version is still `seen`."""
    reply = ask_group(redis, keys, group, "roster", now, group, "" if seen is None else seen)
    if isinstance(reply, int):
        return None
    version, living, joined, owned = reply
    since = dict(_pairs(joined))
    members = _read(
        lambda member, until: _member(member, since.get(member, b"0"), until), _pairs(living)
    )
    members.sort(key=lambda each: (each.since_ms, each.id))
    ids = {member.id for member in members}
    owners = sorted(_read(_owner, _pairs(owned)), key=_slot)
    return Roster(int(version), members, {one.slot: one for one in owners if one.member in ids})


def claim(
    redis: Redis, keys: SlotKeys, group: str, member: str, epochs: Mapping[int, str], now: str
) -> list[int]:
    """Makes free slots the member's; returns those that are, under these epochs."""
    words = [word for pair in epochs.items() for word in pair]
    reply = ask_group(redis, keys, group, "claim", now, group, fresh_version(), member, *words)
    return [slot for slot, code in zip(epochs, reply, strict=True) if code == _MINE]


def release_slots(
    redis: Redis, keys: SlotKeys, group: str, member: str, slots: Sequence[int], now: str
) -> None:
    """Frees those of the slots that are the member's."""
    ask_group(redis, keys, group, "release_slots", now, group, fresh_version(), member, *slots)


def retire(redis: Redis, keys: SlotKeys, group: str, member: str, now: str) -> None:
    """Marks a member as one that is to own nothing."""
    ask_group(redis, keys, group, "retire", now, group, fresh_version(), member)


def leave(redis: Redis, keys: SlotKeys, group: str, member: str, now: str) -> None:
    """Takes a member out, with what it owns."""
    ask_group(redis, keys, group, "leave", now, group, fresh_version(), member)


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _read(of: Callable[[bytes, bytes], T], pairs: Iterable[tuple[bytes, bytes]]) -> list[T]:
    """What pairs say; one of a newer version, which cannot be read, is passed by."""
    found = []
    for pair in pairs:
        with suppress(ValueError):
            found.append(of(*pair))
    return found


def _member(name: bytes, since: bytes, until: bytes) -> Member:
    is_retiring = since.startswith(b"-")
    return Member(name.decode(), abs(int(since)), int(float(until)), retiring=is_retiring)


def _owner(slot: bytes, value: bytes) -> Owner:
    since, epoch, member = value.decode().split(" ", 2)
    return Owner(int(slot), member, epoch, int(since))


def _slot(owner: Owner) -> int:
    return owner.slot
