"""Where a topic's and a group's rows are: numbers, ranges, and the rows of cursors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, func, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.stores.base import NO_EPOCH
from qframe.stores.sql import ranges
from qframe.stores.sql.schema import PER_TOPIC, cursors, dead, groups, log, slots
from qframe.topic import Topic

UNCLAIMED: Final = ""
"""The name of the group that keeps what no group has seen yet."""

GROUPS: Final = Statement(
    select(groups.c.id, groups.c.name)
    .where(groups.c.topic == bindparam("of"))
    .order_by(groups.c.name),
    "of",
)
_GROUP: Final = Statement(
    select(groups.c.id).where(groups.c.topic == bindparam("of"), groups.c.name == bindparam("n")),
    "of n",
)
_LAST_GROUP: Final = Statement(select(func.max(groups.c.id)), "")
_ADD_GROUP: Final = Statement(groups.insert(), "id topic name")
ADD_CURSOR: Final = Statement(
    cursors.insert(),
    "cursor epoch floor read base settled receipt lease_until published acked cancelled",
)
CURSORS: Final = Statement(
    select(cursors)
    .where(cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end"))
    .order_by(cursors.c.cursor)
    .with_for_update(),
    "first end",
)
SET_CURSOR: Final = Statement(
    cursors.update()
    .where(cursors.c.cursor == bindparam("at"))
    .values(
        floor=bindparam("f"), read=bindparam("r"), settled=bindparam("s"),
        receipt=bindparam("t"), lease_until=bindparam("l"), acked=bindparam("a"),
    ),
    "f r s t l a at",
)  # fmt: skip
_HEAD: Final = Statement(select(slots.c.head).where(slots.c.slot == bindparam("at")), "at")
_DEAD: Final = Statement(
    select(func.count()).select_from(dead).where(dead.c.cursor == bindparam("at")), "at"
)


_KEPT: Final = Statement(
    select(func.count()).select_from(log).where(log.c.slot == bindparam("at")), "at"
)


class Place(msgspec.Struct, frozen=True):
    """A topic, and the number under which its rows stand."""

    topic: Topic
    id: int

    def slot_number(self, slot: int) -> int:
        """The number of a slot's row."""
        return self.id * PER_TOPIC + slot

    def slot_range(self) -> tuple[int, int]:
        """The numbers of all slots: from, and up to but not including."""
        first = self.id * PER_TOPIC
        return first, first + self.topic.slots

    def cursor_number(self, group: int, slot: int) -> int:
        """The number of a group's cursor in a slot."""
        return group * PER_TOPIC + slot

    def cursor_range(self, group: int) -> tuple[int, int]:
        """The numbers of all cursors of a group: from, and up to but not including."""
        first = group * PER_TOPIC
        return first, first + self.topic.slots


class Cursor(msgspec.Struct):
    """A row of the table of cursors, its fields in the order of the columns."""

    cursor: int
    epoch: str
    floor: int
    read: int
    base: int
    settled: bytes
    receipt: str | None
    lease_until: int
    published: int
    acked: int
    cancelled: int

    @property
    def slot(self) -> int:
        """The slot that it stands for."""
        return self.cursor % PER_TOPIC

    def has_window(self) -> bool:
        """Whether anything of a stream's line is handed out and not settled."""
        return self.floor < self.read

    def row(self) -> Row:
        """What `SET_CURSOR` takes."""
        return (
            self.floor, self.read, self.settled, self.receipt, self.lease_until, self.acked,
            self.cursor,
        )  # fmt: skip


def group_id(transaction: Transaction, place: Place, group: str) -> int | None:
    """A group's number, or None if there is none of that name."""
    row = transaction.row(_GROUP, (place.id, group))
    return row[0] if row else None


def known_group(transaction: Transaction, place: Place, group: str) -> int:
    """A group's number.

    Raises:
        UnknownGroup: if there is none of that name.
    """
    found = group_id(transaction, place, group)
    if found is None:
        names = [row[1] for row in transaction.rows(GROUPS, (place.id,)) if row[1]]
        raise UnknownGroup(place.topic.name, group, names)
    return found


def named_groups(transaction: Transaction, place: Place) -> list[int]:
    """The groups that have subscribed."""
    rows = transaction.rows(GROUPS, (place.id,))
    return [row[0] for row in rows if row[1] != UNCLAIMED]


def groups_of(transaction: Transaction, place: Place) -> list[int]:
    """The groups whose queues get what is published: those named, or else the unclaimed one."""
    if named := named_groups(transaction, place):
        return named
    kept = group_id(transaction, place, UNCLAIMED)
    return [add_group(transaction, place, UNCLAIMED) if kept is None else kept]


def add_group(
    transaction: Transaction, place: Place, name: str, starts: dict[int, int] | None = None
) -> int:
    """Adds a group with a cursor in each slot, a stream's at these offsets; answers its number."""
    row = transaction.row(_LAST_GROUP)
    number = 1 + (row[0] or 0 if row else 0)
    transaction.run(_ADD_GROUP, (number, place.id, name))
    offsets = starts or {}
    transaction.run_many(
        ADD_CURSOR,
        [
            (place.cursor_number(number, slot), NO_EPOCH, start, start, start, ranges.EMPTY,
             None, 0, 0, 0, 0)
            for slot in range(place.topic.slots)
            for start in [offsets.get(slot, 0)]
        ],
    )  # fmt: skip
    return number


def cursors_of(transaction: Transaction, place: Place, group: int) -> dict[int, Cursor]:
    """The cursors of a group by slot, locked."""
    rows = transaction.rows(CURSORS, place.cursor_range(group))
    return {row[0] % PER_TOPIC: Cursor(*row) for row in rows}


def unsettled(
    transaction: Transaction, place: Place, slot: int, groups: Sequence[int]
) -> list[int]:
    """How many messages of a slot each group has to settle still; of a stream without any: all."""
    if not groups:
        return [int(transaction.rows(_KEPT, (place.slot_number(slot),))[0][0])]
    found = []
    for group in groups:
        at = place.cursor_number(group, slot)
        cursor = Cursor(*transaction.rows(CURSORS, (at, at + 1))[0])
        published = cursor.published
        if not place.topic.has_subjects:
            head = transaction.rows(_HEAD, (place.slot_number(slot),))[0][0]
            published = head - cursor.base
        gone = transaction.rows(_DEAD, (at,))[0][0]
        found.append(published - cursor.acked - cursor.cancelled - gone)
    return found
