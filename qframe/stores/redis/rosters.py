"""Who takes part in a group, and which slots are whose. It all lies under slot 0's prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qframe.drivers.redis import Redis
from qframe.roster import Member, Owner, Roster, fresh_version
from qframe.stores.redis.groups import known
from qframe.stores.redis.keys import Place

_MINE = ord("m")


def heartbeat(redis: Redis, place: Place, group: str, member: str, lease_ms: int, now: str) -> int:
    """Joins a member, or makes its lease begin anew; answers the version."""
    [reply] = redis.run([place.call("heartbeat", 0, now, group, fresh_version(), member, lease_ms)])
    known(redis, place, group, reply)
    return int(reply)


def look(redis: Redis, place: Place, group: str, seen: int | None, now: str) -> Roster | None:
    """The living and what is theirs; None if that is what was seen."""
    [reply] = redis.run([place.call("roster", 0, now, group, "" if seen is None else seen)])
    known(redis, place, group, reply)
    if isinstance(reply, int):
        return None
    version, living, joined, owned = reply
    since = dict(_pairs(joined))
    members = [
        Member(member.decode(), int(since[member]), int(float(until)))
        for member, until in _pairs(living)
    ]
    members.sort(key=lambda each: (each.since_ms, each.id))
    ids = {member.id for member in members}
    owners = sorted((_owner(int(slot), value) for slot, value in _pairs(owned)), key=_slot)
    return Roster(int(version), members, {one.slot: one for one in owners if one.member in ids})


def claim(
    redis: Redis, place: Place, group: str, member: str, epochs: Mapping[int, str], now: str
) -> list[int]:
    """Makes free slots the member's; answers those that are, under these epochs."""
    words = [word for pair in epochs.items() for word in pair]
    [reply] = redis.run([place.call("claim", 0, now, group, fresh_version(), member, *words)])
    known(redis, place, group, reply)
    return [slot for slot, letter in zip(epochs, reply, strict=True) if letter == _MINE]


def release_slots(
    redis: Redis, place: Place, group: str, member: str, slots: Sequence[int], now: str
) -> None:
    """Frees those of the slots that are the member's."""
    [reply] = redis.run(
        [place.call("release_slots", 0, now, group, fresh_version(), member, *slots)]
    )
    known(redis, place, group, reply)


def leave(redis: Redis, place: Place, group: str, member: str, now: str) -> None:
    """Takes a member out, with what it owns."""
    [reply] = redis.run([place.call("leave", 0, now, group, fresh_version(), member)])
    known(redis, place, group, reply)


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _owner(slot: int, value: bytes) -> Owner:
    since, epoch, member = value.decode().split(" ", 2)
    return Owner(slot, member, epoch, int(since))


def _slot(owner: Owner) -> int:
    return owner.slot
