"""Members of a group, and the slots of each.

The row of the group is the lock of those who change its roster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, func, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.roster import NO_VERSION, Member, Owner, Roster, fresh_version
from qframe.stores.base import Rosters
from qframe.stores.sql.cursors import known_group
from qframe.stores.sql.notifications import notify_roster
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import groups, members, owners, rosters
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_LOOK: Final = Statement(
    select(
        groups.c.id,
        rosters.c.version,
        select(func.min(members.c.until)).where(members.c.group_id == groups.c.id)
        .scalar_subquery(),
    )
    .select_from(groups.outerjoin(rosters, rosters.c.group_id == groups.c.id))
    .where(groups.c.topic == bindparam("of"), groups.c.name == bindparam("n")),
    "of n",
)  # fmt: skip
_LOCK: Final = Statement(
    select(groups.c.id)
    .where(groups.c.topic == bindparam("of"), groups.c.name == bindparam("n"))
    .with_for_update(),
    "of n",
)
_ADD_ROSTER: Final = Statement(rosters.insert(), "group_id version")
_SET_VERSION: Final = Statement(
    rosters.update().where(rosters.c.group_id == bindparam("of")).values(version=bindparam("v")),
    "v of",
)
_LIVING: Final = Statement(
    select(members.c.member, members.c.since, members.c.until)
    .where(members.c.group_id == bindparam("of"), members.c.until > bindparam("now"))
    .order_by(func.abs(members.c.since), members.c.member),
    "of now",
)
_MEMBER: Final = Statement(
    select(members.c.until).where(
        members.c.group_id == bindparam("of"), members.c.member == bindparam("m")
    ),
    "of m",
)
_JOIN: Final = Statement(members.insert(), "group_id member since until")
_RENEW: Final = Statement(
    members.update()
    .where(members.c.group_id == bindparam("of"), members.c.member == bindparam("m"))
    .values(until=bindparam("t")),
    "t of m",
)
# Since when a member is there is kept below zero from when it retires.
_RETIRE: Final = Statement(
    members.update()
    .where(
        members.c.group_id == bindparam("of"),
        members.c.member == bindparam("m"),
        members.c.since > 0,
    )
    .values(since=-members.c.since),
    "of m",
)
_OWNERS: Final = Statement(
    select(owners.c.slot, owners.c.member, owners.c.epoch, owners.c.since)
    .where(owners.c.group_id == bindparam("of"))
    .order_by(owners.c.slot),
    "of",
)
_OWN: Final = Statement(owners.insert(), "group_id slot member epoch since")
_FREE: Final = Statement(
    delete(owners).where(
        owners.c.group_id == bindparam("of"),
        owners.c.slot == bindparam("s"),
        owners.c.member == bindparam("m"),
    ),
    "of s m",
)
_DISOWN: Final = Statement(
    delete(owners).where(owners.c.group_id == bindparam("of"), owners.c.member == bindparam("m")),
    "of m",
)
_TAKE_OUT: Final = Statement(
    delete(members).where(
        members.c.group_id == bindparam("of"), members.c.member == bindparam("m")
    ),
    "of m",
)
_PASSED: Final = Statement(
    select(members.c.member).where(
        members.c.group_id == bindparam("of"), members.c.until <= bindparam("now")
    ),
    "of now",
)
_FORGET: Final = [
    Statement(delete(table).where(table.c.group_id == bindparam("of")), "of")
    for table in (rosters, members, owners)
]


class _Opened(msgspec.Struct):
    """A group's number, its roster's version, when the next lease passes, and the time."""

    group: int
    version: int | None
    next_ms: int | None
    now_ms: int

    def has_passed(self) -> bool:
        """Whether the lease of a member has."""
        return self.next_ms is not None and self.next_ms <= self.now_ms


class SqlRosters(SqlRole, Rosters):
    """Rosters as rows of members and owners."""

    @override
    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        return self._write(topic, heartbeat, group, member, lease_ms)

    @override
    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        return self._read(topic, snapshot, group, seen)

    @override
    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        return self._write(topic, claim, group, member, epochs)

    @override
    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        return self._write(topic, release_slots, group, member, slots)

    @override
    def retire(self, topic: Topic, group: str, member: str) -> None:
        return self._write(topic, retire, group, member)

    @override
    def leave(self, topic: Topic, group: str, member: str) -> None:
        return self._write(topic, leave, group, member)


def heartbeat(
    transaction: Transaction, ref: TopicRef, group: str, member: str, lease_ms: int
) -> int:
    """Joins a member, or makes its lease begin anew; returns the version."""
    opened = _begin(transaction, ref, group)
    now_ms = opened.now_ms
    if not transaction.run(_RENEW, (now_ms + lease_ms, opened.group, member)):
        transaction.run(_JOIN, (opened.group, member, now_ms, now_ms + lease_ms))
        _rename(transaction, ref, group, opened)
    return opened.version or NO_VERSION


def snapshot(
    transaction: Transaction, ref: TopicRef, group: str, seen: int | None
) -> Roster | None:
    """Returns the live members and their slots, or None if the version is still `seen`."""
    opened = _open(transaction, ref, group)
    now_ms = opened.now_ms
    version = opened.version or NO_VERSION
    if opened.has_passed():
        version = NO_VERSION
    elif seen == version:
        return None
    living = [
        Member(name, abs(since_ms), until_ms, retiring=since_ms < 0)
        for name, since_ms, until_ms in transaction.rows(_LIVING, (opened.group, now_ms))
    ]
    ids = {member.id for member in living}
    owned = [Owner(*row) for row in transaction.rows(_OWNERS, (opened.group,))]
    return Roster(version, living, {one.slot: one for one in owned if one.member in ids})


def claim(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    member: str,
    epochs: Mapping[int, str],
) -> list[int]:
    """Makes free slots the member's; returns those that are, under these epochs."""
    opened = _begin(transaction, ref, group)
    if transaction.row(_MEMBER, (opened.group, member)) is None:
        return []
    owned = {row[0]: row[1:3] for row in transaction.rows(_OWNERS, (opened.group,))}
    free = {slot: epoch for slot, epoch in epochs.items() if slot not in owned}
    if free:
        transaction.run_many(
            _OWN,
            [(opened.group, slot, member, epoch, opened.now_ms) for slot, epoch in free.items()],
        )
        _rename(transaction, ref, group, opened)
    return [
        slot for slot, epoch in epochs.items() if slot in free or owned[slot] == (member, epoch)
    ]


def release_slots(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    member: str,
    slots: Sequence[int],
) -> None:
    """Frees those of the slots that are the member's."""
    opened = _begin(transaction, ref, group)
    if transaction.run_many(_FREE, [(opened.group, slot, member) for slot in slots]):
        _rename(transaction, ref, group, opened)


def retire(transaction: Transaction, ref: TopicRef, group: str, member: str) -> None:
    """Marks a member as one that is to own nothing."""
    opened = _begin(transaction, ref, group)
    if transaction.run(_RETIRE, (opened.group, member)):
        _rename(transaction, ref, group, opened)


def leave(transaction: Transaction, ref: TopicRef, group: str, member: str) -> None:
    """Takes a member out, with what it owns."""
    opened = _begin(transaction, ref, group)
    transaction.run(_DISOWN, (opened.group, member))
    if transaction.run(_TAKE_OUT, (opened.group, member)):
        _rename(transaction, ref, group, opened)


def forget(transaction: Transaction, group: int) -> None:
    """Forgets the roster of a group that is dropped."""
    for statement in _FORGET:
        transaction.run(statement, (group,))


def _open(transaction: Transaction, ref: TopicRef, group: str) -> _Opened:
    row = transaction.row(_LOOK, (ref.id, group))
    if row is None:
        row = known_group(transaction, ref, group), None, None
    number, version, next_ms = row
    return _Opened(number, version, next_ms, transaction.now_ms())


def _begin(transaction: Transaction, ref: TopicRef, group: str) -> _Opened:
    """Locks a roster, and drops those whose lease has passed."""
    # What is read together with a lock may be older than the lock.
    transaction.row(_LOCK, (ref.id, group))
    opened = _open(transaction, ref, group)
    if opened.has_passed():
        passed = transaction.rows(_PASSED, (opened.group, opened.now_ms))
        for statement in (_DISOWN, _TAKE_OUT):
            transaction.run_many(statement, [(opened.group, member) for (member,) in passed])
        _rename(transaction, ref, group, opened)
    return opened


def _rename(transaction: Transaction, ref: TopicRef, group: str, opened: _Opened) -> None:
    """Gives a roster that has changed another version, and says so."""
    is_new, opened.version = opened.version is None, fresh_version()
    if is_new:
        transaction.run(_ADD_ROSTER, (opened.group, opened.version))
    else:
        transaction.run(_SET_VERSION, (opened.version, opened.group))
    notify_roster(transaction, ref, group)
