"""Members of a group, and the slots of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from typing_extensions import override

from qframe.roster import NO_VERSION, Member, Owner, Roster, fresh_version
from qframe.stores.base import Rosters
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import RosterState
from qframe.topic import Topic

T = TypeVar("T")


class ModelRosters(ModelRole, Rosters):
    """Rosters as members and owners."""

    @override
    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        def step(roster: RosterState, now_ms: int) -> int:
            heartbeat(roster, member, lease_ms, now_ms)
            return roster.version

        return self._on_roster(topic, group, step)

    @override
    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        return self._on_roster(topic, group, lambda roster, now: snapshot(roster, seen, now))

    @override
    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        return self._on_roster(topic, group, lambda roster, now: claim(roster, member, epochs, now))

    @override
    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        self._on_roster(topic, group, lambda roster, now: release_slots(roster, member, slots, now))

    @override
    def retire(self, topic: Topic, group: str, member: str) -> None:
        self._on_roster(topic, group, lambda roster, now: retire(roster, member, now))

    @override
    def leave(self, topic: Topic, group: str, member: str) -> None:
        self._on_roster(topic, group, lambda roster, now: leave(roster, member, now))

    def _on_roster(self, topic: Topic, group: str, step: Callable[[RosterState, int], T]) -> T:
        with self._lock:
            self._group(topic, group)  # there must be one
            roster = self._state(topic).rosters.setdefault(group, RosterState())
            before = roster.version
            result = step(roster, self._now_ms())
        if roster.version != before:
            self._ring_rosters()
        return result


def heartbeat(roster: RosterState, member: str, lease_ms: int, now_ms: int) -> None:
    """Joins a member, or makes its lease begin anew."""
    drop_passed(roster, now_ms)
    until_ms = now_ms + lease_ms
    known = roster.members.get(member)
    if known is None:
        roster.members[member] = Member(member, now_ms, until_ms)
        roster.version = fresh_version()
    else:
        roster.members[member] = msgspec.structs.replace(known, until_ms=until_ms)


def snapshot(roster: RosterState, seen: int | None, now_ms: int) -> Roster | None:
    """The living and what is theirs; None if that is what was seen."""
    living = {each.id: each for each in roster.members.values() if each.until_ms > now_ms}
    if seen == roster.version and len(living) == len(roster.members):
        return None
    members = sorted(living.values(), key=lambda each: (each.since_ms, each.id))
    owners = {slot: one for slot, one in sorted(roster.owners.items()) if one.member in living}
    version = roster.version if len(living) == len(roster.members) else NO_VERSION
    return Roster(version, members, owners)


def claim(roster: RosterState, member: str, epochs: Mapping[int, str], now_ms: int) -> list[int]:
    """Makes free slots the member's; returns those that are, under these epochs."""
    drop_passed(roster, now_ms)
    if member not in roster.members:
        return []
    for slot, epoch in epochs.items():
        if slot not in roster.owners:
            roster.owners[slot] = Owner(slot, member, epoch, now_ms)
            roster.version = fresh_version()
    claimed = {slot: (owner.member, owner.epoch) for slot, owner in roster.owners.items()}
    return [slot for slot, epoch in epochs.items() if claimed[slot] == (member, epoch)]


def release_slots(roster: RosterState, member: str, slots: Sequence[int], now_ms: int) -> None:
    """Frees those of the slots that are the member's."""
    drop_passed(roster, now_ms)
    for slot in slots:
        if slot in roster.owners and roster.owners[slot].member == member:
            del roster.owners[slot]
            roster.version = fresh_version()


def retire(roster: RosterState, member: str, now_ms: int) -> None:
    """Marks a member as one that is to own nothing."""
    drop_passed(roster, now_ms)
    known = roster.members.get(member)
    if known is not None and not known.retiring:
        roster.members[member] = msgspec.structs.replace(known, retiring=True)
        roster.version = fresh_version()


def leave(roster: RosterState, member: str, now_ms: int) -> None:
    """Takes a member out, with what it owns."""
    drop_passed(roster, now_ms)
    if member in roster.members:
        _take_out(roster, member)


def drop_passed(roster: RosterState, now_ms: int) -> None:
    """Takes those out whose lease has passed."""
    for member in list(roster.members.values()):
        if member.until_ms <= now_ms:
            _take_out(roster, member.id)


def _take_out(roster: RosterState, member: str) -> None:
    del roster.members[member]
    for slot in [slot for slot, owner in roster.owners.items() if owner.member == member]:
        del roster.owners[slot]
    roster.version = fresh_version()
