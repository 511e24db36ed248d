"""Groups and their cursors: numbers, rows, and the locks that an operation takes."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from sqlalchemy import bindparam, func, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.errors import UnknownGroup, UnknownTopic
from qframe.stores.sql import ranges
from qframe.stores.sql.padding import padded
from qframe.stores.sql.schema import (
    PER_TOPIC,
    Sort,
    cursors,
    dead,
    groups,
    log,
    numbers,
    slots,
    topics,
)
from qframe.stores.sql.topic_ref import (
    TopicRef,
    check_declared,
    closed,
    every_number,
)
from qframe.stores.types import NO_EPOCH

EVERYTHING: Final = 2**62
"""The limit of what has none."""

CLOSED: Final = -1
"""When leases end in a cursor of a closed slot, which has none."""

UNCLAIMED: Final = ""
"""The name of the group that keeps what no group has seen yet."""

_LONGEST_STEP: Final = 2**20

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
_TAKE_NUMBER: Final = Statement(
    numbers.update()
    .where(numbers.c.sort == bindparam("of"))
    .values(last=numbers.c.last + bindparam("step")),
    "step of",
)
_NUMBER: Final = Statement(select(numbers.c.last).where(numbers.c.sort == bindparam("of")), "of")
_LOCK_TOPIC: Final = Statement(
    select(topics.c.id).where(topics.c.id == bindparam("of")).with_for_update(), "of"
)
_LOCK_GROUP: Final = Statement(
    select(groups.c.id).where(groups.c.id == bindparam("of")).with_for_update(), "of"
)
ADD_GROUP: Final = Statement(groups.insert(), "id topic name")
ADD_CURSOR: Final = Statement(
    cursors.insert(),
    "cursor epoch floor read base settled receipt lease_until published acked cancelled",
)
CURSORS: Final = Statement(
    select(cursors)
    .where(cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end"))
    .order_by(cursors.c.cursor),
    "first end",
)
_LOCK_CURSORS: Final = Statement(
    select(cursors.c.cursor)
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
HEAD: Final = Statement(select(slots.c.head).where(slots.c.slot == bindparam("at")), "at")
COUNT_DEAD: Final = Statement(
    select(func.count()).select_from(dead).where(dead.c.cursor == bindparam("at")), "at"
)


_KEPT: Final = Statement(
    select(func.count()).select_from(log).where(log.c.slot == bindparam("at")), "at"
)


class CursorRow(msgspec.Struct):
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

    def in_window(self) -> int:
        """How many messages of a stream's line are handed out and not settled."""
        return self.read - self.floor - ranges.count(ranges.load(self.settled))

    def settle(self, offsets: Iterable[int], settled: ranges.Ranges) -> None:
        """Takes offsets for settled, beside those that are already."""
        self.floor, settled = ranges.added(self.floor, settled, offsets)
        self.settled = ranges.dump(settled)

    @property
    def is_closed(self) -> bool:
        """Whether its slot is closed."""
        return self.lease_until < 0

    def row(self) -> Row:
        """The arguments of `SET_CURSOR`."""
        return (
            self.floor, self.read, self.settled, self.receipt, self.lease_until, self.acked,
            self.cursor,
        )  # fmt: skip


def group_id(transaction: Transaction, ref: TopicRef, group: str) -> int | None:
    """A group's number, or None if there is none of that name."""
    row = transaction.row(_GROUP, (ref.id, group))
    return row[0] if row else None


def known_group(transaction: Transaction, ref: TopicRef, group: str) -> int:
    """A group's number.

    Raises:
        UnknownGroup: if there is none of that name.
    """
    found = group_id(transaction, ref, group)
    if found is None:
        names = [row[1] for row in transaction.rows(GROUPS, (ref.id,)) if row[1]]
        raise UnknownGroup(ref.topic.name, group, names)
    return found


def named_groups(transaction: Transaction, ref: TopicRef) -> list[int]:
    """The groups that have subscribed."""
    rows = transaction.rows(GROUPS, (ref.id,))
    return [row[0] for row in rows if row[1] != UNCLAIMED]


def groups_of(transaction: Transaction, ref: TopicRef) -> list[int]:
    """The groups whose queues get what is published: those named, or else the unclaimed one."""
    rows = transaction.rows(GROUPS, (ref.id,))
    return [row[0] for row in rows if row[1] != UNCLAIMED] or [row[0] for row in rows]


def lock_topic(transaction: Transaction, ref: TopicRef) -> None:
    """Waits for others that change a topic's groups or growth; an operation takes this lock first.

    Raises:
        UnknownTopic: if the topic was deleted.
    """
    if transaction.row(_LOCK_TOPIC, (ref.id,)) is None:
        raise UnknownTopic(ref.topic.name)


def lock_group(transaction: Transaction, number: int) -> bool:
    """Waits for those who change a group's roster or expiry; False if the group is gone."""
    return transaction.row(_LOCK_GROUP, (number,)) is not None


def take_number(transaction: Transaction, sort: Sort) -> int:
    """A number that nothing of the sort had before.

    A database that has failed over may have forgotten the last ones, which programs still know: so
    the next number is not the same again.
    """
    transaction.run(_TAKE_NUMBER, (1 + secrets.randbelow(_LONGEST_STEP), sort))
    return int(transaction.rows(_NUMBER, (sort,))[0][0])


def add_group(
    transaction: Transaction, ref: TopicRef, name: str, starts: dict[int, int] | None = None
) -> int:
    """Adds a group with a cursor in each slot, a stream's at these offsets; returns its number.

    Slots that were split have one too: whoever takes such a slot for one in use is fenced. The
    caller has locked the topic's groups.
    """
    number = take_number(transaction, Sort.GROUPS)
    transaction.run(ADD_GROUP, (number, ref.id, name))
    offsets = starts or {}

    def row(slot: int, start: int, lease_until: int) -> Row:
        at = ref.cursor_number(number, slot)
        return at, NO_EPOCH, start, start, start, ranges.EMPTY, None, lease_until, 0, 0, 0

    in_use = [row(slot, offsets.get(slot, 0), 0) for slot in ref.topic.all_slots]
    past = [row(slot, 0, CLOSED) for slot in ref.topic.past_slots]
    transaction.run_many(ADD_CURSOR, in_use + past)
    return number


@lru_cache(maxsize=64)
def _locked_cursors(count: int) -> Statement:
    names = [f"c{number}" for number in range(count)]
    among = cursors.c.cursor.in_([bindparam(name) for name in names])
    query = select(cursors).where(among).order_by(cursors.c.cursor).with_for_update()
    return Statement(query, " ".join(names))


@lru_cache(maxsize=64)
def _locked_slots(count: int) -> Statement:
    names = [f"s{number}" for number in range(count)]
    among = slots.c.slot.in_([bindparam(name) for name in names])
    query = select(slots.c.slot, slots.c.head).where(among).order_by(slots.c.slot)
    return Statement(query.with_for_update(), " ".join(names))


def lock_slots(transaction: Transaction, ref: TopicRef, wanted: Iterable[int]) -> dict[int, int]:
    """The heads of slots, locked in ascending order; taken before any cursor.

    Raises:
        UnknownTopic: if the topic was deleted.
        SlotsClosed: if one of the slots is closed.
    """
    asked = set(wanted)
    found = lock_open_slots(transaction, ref, asked)
    if len(found) < len(asked):
        raise closed(ref)
    return found


def lock_open_slots(
    transaction: Transaction, ref: TopicRef, wanted: Iterable[int]
) -> dict[int, int]:
    """The heads of those of the slots that are not closed, locked as by `lock_slots`.

    Raises:
        UnknownTopic: if the topic was deleted.
    """
    heads = lock_heads(transaction, ref, wanted)
    return {slot: head for slot, head in heads.items() if head >= 0}


def lock_heads(transaction: Transaction, ref: TopicRef, wanted: Iterable[int]) -> dict[int, int]:
    """The heads of slots, below zero where they are closed, locked as by `lock_slots`.

    Raises:
        UnknownTopic: if the topic was deleted.
    """
    numbers_of = sorted({ref.slot_number(slot) for slot in wanted})
    found: dict[int, int] = {}
    for some in padded(numbers_of):
        found.update(transaction.rows(_locked_slots(len(some)), tuple(some)))
    if len(found) < len(numbers_of):
        check_declared(transaction, ref)
    first = ref.slot_number(0)
    return {number - first: head for number, head in found.items()}


def lock_cursors(transaction: Transaction, wanted: Iterable[int]) -> dict[int, CursorRow]:
    """Cursors by their numbers, locked in ascending order; those of dropped groups are missing."""
    found: dict[int, CursorRow] = {}
    for some in padded(sorted(set(wanted))):
        for row in transaction.rows(_locked_cursors(len(some)), tuple(some)):
            found[row[0]] = CursorRow(*row)
    return found


def lock_all_cursors(transaction: Transaction, group: int) -> None:
    """Locks all cursors of a group that there are, whatever their slots."""
    transaction.rows(_LOCK_CURSORS, every_number(group))


def check_open(ref: TopicRef, locked: Iterable[CursorRow]) -> None:
    """Refuses to change what stands in slots that are closed.

    Raises:
        SlotsClosed: if one of the locked cursors is of such a slot.
    """
    if any(cursor.is_closed for cursor in locked):
        raise closed(ref)


def lock_group_cursors(
    transaction: Transaction, ref: TopicRef, group: str, wanted: Iterable[int],
    *, is_lenient: bool = False,
) -> dict[int, CursorRow]:  # fmt: skip
    """A group's cursors of these slots, by slot, locked.

    Where it `is_lenient`, those of slots that the group does not have are missing.

    Raises:
        UnknownGroup: if there is no such group, or it is dropped before they are locked.
    """
    asked = set(wanted)
    before = None
    found: dict[int, CursorRow] = {}
    # Dropped before they were locked, and subscribed again since, it has another number.
    while (number := known_group(transaction, ref, group)) != before:
        found = lock_cursors(transaction, [ref.cursor_number(number, slot) for slot in asked])
        if len(found) == len(asked):
            break
        before = number
    if len(found) == len(asked) or is_lenient:
        return {cursor.slot: cursor for cursor in found.values()}
    raise UnknownGroup(ref.topic.name, group)


def cursors_of(transaction: Transaction, ref: TopicRef, group: int) -> dict[int, CursorRow]:
    """The cursors of a group by slot in use, as they are committed."""
    rows = transaction.rows(CURSORS, ref.cursor_range(group))
    found = {row[0] % PER_TOPIC: CursorRow(*row) for row in rows}
    return {slot: found[slot] for slot in ref.topic.all_slots if slot in found}


def unsettled(
    transaction: Transaction, ref: TopicRef, slot: int, groups: Sequence[int], *, enough: int
) -> list[int]:
    """How many messages of a slot each group has to settle still; of a stream without any: all.

    Dead letters are counted, and left out, only where there are more than `enough` with them.
    """
    if not groups:
        return [int(transaction.rows(_KEPT, (ref.slot_number(slot),))[0][0])]
    found = []
    for group in groups:
        at = ref.cursor_number(group, slot)
        row = transaction.row(CURSORS, (at, at + 1))
        if row is None:  # dropped since the groups were read
            found.append(0)
            continue
        cursor = CursorRow(*row)
        published = cursor.published
        if not ref.topic.has_subjects:
            head = transaction.rows(HEAD, (ref.slot_number(slot),))[0][0]
            published = head - cursor.base
        left = published - cursor.acked - cursor.cancelled
        found.append(left - transaction.rows(COUNT_DEAD, (at,))[0][0] if left > enough else left)
    return found
