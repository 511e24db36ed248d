"""Topics and groups: declaring, subscribing, owning, moving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import bindparam, delete, exists, func, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.base import Groups
from qframe.stores.sql import buckets, documents, ranges, window
from qframe.stores.sql.cursors import (
    ADD_GROUP,
    COUNT_DEAD,
    GROUPS,
    SET_CURSOR,
    UNCLAIMED,
    CursorRow,
    add_group,
    cursors_of,
    group_id,
    groups_of,
    known_group,
    lock_all_cursors,
    lock_cursors,
    lock_group,
    lock_group_cursors,
    lock_slots,
    lock_topic,
    take_number,
)
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.leases import lose_doing
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.parking import set_max_parked
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import (
    HeadState,
    Sort,
    backlog,
    cursors,
    dead,
    endings,
    expiries,
    groups,
    history,
    log,
    slot_head,
    slots,
    subjects,
)
from qframe.stores.sql.topic_ref import TopicRef, check_splitting, every_number
from qframe.stores.types import SlotsClosed, SlotSplit
from qframe.topic import Topic

_RENAME: Final = Statement(
    groups.update().where(groups.c.id == bindparam("of")).values(name=bindparam("n")), "n of"
)
_FORGET_GROUP: Final = Statement(delete(groups).where(groups.c.id == bindparam("of")), "of")
_NEVER: Final = Statement(delete(expiries).where(expiries.c.id == bindparam("of")), "of")
_EXPIRES: Final = Statement(expiries.insert(), "id at")
_EXPIRED: Final = Statement(
    select(groups.c.id, groups.c.name)
    .join(expiries, expiries.c.id == groups.c.id)
    .where(groups.c.topic == bindparam("of"), expiries.c.at <= bindparam("now"))
    .order_by(expiries.c.at, groups.c.id)
    .limit(bindparam("most")),
    "of now most",
)
_TABLES: Final = (cursors, subjects, backlog, dead, history, endings)
_OF_GROUP: Final = [
    Statement(
        delete(table).where(
            table.c.cursor >= bindparam("first"), table.c.cursor < bindparam("end")
        ),
        "first end",
    )
    for table in _TABLES
]
_COPY_GROUP: Final = [
    Statement(
        table.insert().from_select(
            [column.name for column in table.columns],
            select(
                *[
                    column + bindparam("distance") if column.name == "cursor" else column
                    for column in table.columns
                ]
            ).where(table.c.cursor >= bindparam("first"), table.c.cursor < bindparam("end")),
        ),
        "distance first end",
    )
    for table in _TABLES
]
SLOTS: Final = Statement(
    select(slots.c.slot, slot_head, select(func.min(log.c.seq))
           .where(log.c.slot == slots.c.slot).scalar_subquery())
    .where(slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end"))
    .order_by(slots.c.slot),
    "first end",
)  # fmt: skip
_EPOCH: Final = Statement(
    cursors.update().where(cursors.c.cursor == bindparam("at")).values(epoch=bindparam("e")),
    "e at",
)
_WITH_DOING: Final = Statement(
    select(cursors.c.cursor).where(
        cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end"),
        exists().where(
            subjects.c.cursor == cursors.c.cursor, subjects.c.state == HeadState.DOING
        ),
    ),
    "first end",
)  # fmt: skip
_DOING: Final = Statement(
    select(subjects)
    .where(subjects.c.cursor == bindparam("at"), subjects.c.state == HeadState.DOING)
    .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq),
    "at",
)
_DROP_QUEUED: Final = Statement(delete(subjects).where(subjects.c.cursor == bindparam("at")), "at")
_DROP_BEHIND: Final = Statement(delete(backlog).where(backlog.c.cursor == bindparam("at")), "at")
_MOVE: Final = Statement(
    cursors.update()
    .where(cursors.c.cursor == bindparam("at"))
    .values(
        floor=bindparam("f"), read=bindparam("r"), base=bindparam("b"), settled=ranges.EMPTY,
        receipt=None, lease_until=0, acked=0, cancelled=0,
    ),
    "f r b at",
)  # fmt: skip
_DROP_DEAD: Final = Statement(
    delete(dead).where(dead.c.cursor == bindparam("at"), dead.c.seq >= bindparam("to")), "at to"
)


class SqlGroups(SqlRole, Groups):
    """Groups, their epochs and positions."""

    @override
    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (), max_parked: int = 0,
    ) -> bool:  # fmt: skip
        names = (group, *beside)
        return self._write(topic, subscribe, names, start, expires_ms, max_parked)

    @override
    def groups(self, topic: Topic) -> list[str]:
        return self._read(topic, names)

    @override
    def drop_group(self, topic: Topic, group: str) -> bool:
        return self._write(topic, drop, group)

    @override
    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        return self._write(topic, seek, group, positions)

    @override
    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        return self._read(topic, epochs, group)

    @override
    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        return self._write(topic, take, group, epochs)


def subscribe(
    transaction: Transaction, ref: TopicRef, asked: Sequence[str], start: str,
    expires_ms: int | None, max_parked: int,
) -> bool:  # fmt: skip
    """Makes groups collect; False if the first did before."""
    lock_topic(transaction, ref)
    known = {name: group_id(transaction, ref, name) for name in asked}
    new = [name for name, number in known.items() if number is None]
    if new:
        check_splitting(transaction, ref)
        known |= _subscribe(transaction, ref, new, start)
    for number in known.values():
        transaction.run(_NEVER, (number,))
        if expires_ms is not None:
            transaction.run(_EXPIRES, (number, transaction.now_ms() + expires_ms))
        if number is not None and not ref.topic.has_subjects:
            set_max_parked(transaction, number, max_parked)
    return asked[0] in new


def _subscribe(
    transaction: Transaction, ref: TopicRef, names: Sequence[str], start: str
) -> dict[str, int]:
    """Adds groups, or gives them what no group has seen; returns their numbers."""
    # Meanwhile nothing is published, and what is kept is not swept away.
    lock_slots(transaction, ref, ref.topic.all_slots)
    starts: dict[int, int] = {}
    if ref.topic.has_subjects:
        kept = group_id(transaction, ref, UNCLAIMED)
        if kept is not None and start == "earliest":
            return _share(transaction, ref, kept, names)
    else:
        starts = {
            row[0] - ref.slot_number(0): row[1] if start == "latest" or row[2] is None else row[2]
            for row in transaction.rows(SLOTS, ref.slot_range())
        }
    return {name: add_group(transaction, ref, name, starts) for name in names}


def _share(
    transaction: Transaction, ref: TopicRef, kept: int, names: Sequence[str]
) -> dict[str, int]:
    """Gives the unclaimed group the first name, and copies of its rows to the others."""
    first, *others = names
    if others:  # they get the same
        transaction.take_time()
        lock_cursors(transaction, ref.cursor_numbers(kept))
    numbers = {first: kept}
    for name in others:
        numbers[name] = number = take_number(transaction, Sort.GROUPS)
        transaction.run(ADD_GROUP, (number, ref.id, name))
        distance = ref.cursor_number(number, 0) - ref.cursor_number(kept, 0)
        for copy in _COPY_GROUP:
            transaction.run(copy, (distance, *every_number(kept)))
    transaction.run(_RENAME, (first, kept))
    return numbers


def names(transaction: Transaction, ref: TopicRef) -> list[str]:
    """All groups of a topic, by name."""
    return [row[1] for row in transaction.rows(GROUPS, (ref.id,)) if row[1] != UNCLAIMED]


def drop(transaction: Transaction, ref: TopicRef, group: str) -> bool:
    """Forgets a group and all its rows; False if there is none."""
    lock_topic(transaction, ref)
    check_splitting(transaction, ref)
    return drop_locked(transaction, ref, group)


def drop_locked(transaction: Transaction, ref: TopicRef, group: str) -> bool:
    """Forgets a group of a topic that is locked."""
    number = group_id(transaction, ref, group)
    if number is None:
        return False
    _drop(transaction, ref, number, group)
    return True


def drop_expired(transaction: Transaction, ref: TopicRef, limit: int) -> int:
    """Forgets groups whose time has passed, the first first; returns how many.

    There are `limit` of them at most, and none follows those whose rows were as many already.
    """
    asked = (ref.id, transaction.now_ms(), limit)
    if transaction.row(_EXPIRED, asked) is None:
        return 0
    lock_topic(transaction, ref)
    try:
        check_splitting(transaction, ref)
    except SlotsClosed:  # the next sweep drops them
        return 0
    dropped = rows = 0
    for number, name in transaction.rows(_EXPIRED, asked):
        if rows >= limit:
            break
        rows += _drop(transaction, ref, number, name)
        dropped += 1
    return dropped


def _drop(transaction: Transaction, ref: TopicRef, number: int, name: str) -> int:
    """Forgets a group and all its rows; returns how many those were."""
    rows = remove(transaction, ref, number, name)
    if ref.topic.has_subjects and not groups_of(transaction, ref):
        add_group(transaction, ref, UNCLAIMED)  # keeps what comes for the next group
    return rows


def remove(transaction: Transaction, ref: TopicRef, number: int, name: str) -> int:
    """Removes the rows of a group; returns how many those were."""
    lock_group(transaction, number)
    lock_all_cursors(transaction, number)
    transaction.take_time()
    rows = sum(transaction.run(each, every_number(number)) for each in _OF_GROUP)
    transaction.run(_NEVER, (number,))
    set_max_parked(transaction, number, 0)
    documents.forget(transaction, ref, number, name)
    buckets.forget(transaction, number)
    transaction.run(_FORGET_GROUP, (number,))
    return rows


def seek(transaction: Transaction, ref: TopicRef, group: str, positions: Mapping[int, int]) -> None:
    """Moves a stream's group; what will be handed out again is forgotten elsewhere."""
    SlotSplit.check(ref.topic, positions)
    lock_slots(transaction, ref, positions)
    known = lock_group_cursors(transaction, ref, group, positions)
    transaction.take_time()
    span = (
        ref.slot_number(min(positions, default=0)),
        ref.slot_number(max(positions, default=0)) + 1,
    )
    kept = {
        row[0] - ref.slot_number(0): (row[1] if row[2] is None else row[2], row[1])
        for row in transaction.rows(SLOTS, span)
    }
    for slot, asked in positions.items():
        cursor = known[slot]
        first, head = kept[slot]
        to = min(max(asked, first), head)
        transaction.run(_DROP_QUEUED, (cursor.cursor,))
        transaction.run(_DROP_BEHIND, (cursor.cursor,))
        transaction.run(_DROP_DEAD, (cursor.cursor, to))
        # The dead of before still count as published, so the base lies that much lower.
        gone = transaction.rows(COUNT_DEAD, (cursor.cursor,))[0][0]
        transaction.run(_MOVE, (to, to, to - gone, cursor.cursor))
    notify_messages(transaction, ref, positions)


def epochs(transaction: Transaction, ref: TopicRef, group: str) -> dict[int, str]:
    """The epoch of each slot that workers share."""
    known = cursors_of(transaction, ref, known_group(transaction, ref, group))
    return {slot: known[slot].epoch for slot in ref.topic.shared_slots if slot in known}


def take(
    transaction: Transaction, ref: TopicRef, group: str, wanted: Mapping[int, str]
) -> list[int]:
    """Takes slots under epochs that are not below theirs; what is in doing there comes back."""
    known = lock_group_cursors(transaction, ref, group, wanted)
    now_ms = transaction.now_ms()
    taken, anew = [], []
    for slot, epoch in wanted.items():
        cursor = known[slot]
        if epoch < cursor.epoch or cursor.is_closed:
            continue
        taken.append(slot)
        if epoch > cursor.epoch:
            anew.append((cursor, epoch))
    before = [cursor.row() for cursor, _ in anew]
    own(transaction, ref, anew, now_ms)
    after = [cursor.row() for cursor, _ in anew]
    transaction.run_many(
        SET_CURSOR, [row for row, old in zip(after, before, strict=True) if row != old]
    )
    notify_messages(transaction, ref, taken)
    return taken


def own(
    transaction: Transaction, ref: TopicRef, anew: Sequence[tuple[CursorRow, str]], now_ms: int
) -> None:
    """Begins epochs of slots of a group: what is in doing there comes back.

    The cursors are changed, not saved.
    """
    if not anew:
        return
    transaction.run_many(_EPOCH, [(epoch, cursor.cursor) for cursor, epoch in anew])
    numbers = [cursor.cursor for cursor, _ in anew]
    with_doing = {
        number for (number,) in transaction.rows(_WITH_DOING, (min(numbers), max(numbers) + 1))
    }
    for cursor, _ in anew:
        if cursor.cursor in with_doing:
            rows = transaction.rows(_DOING, (cursor.cursor,))
            lose_doing(transaction, ref, cursor, [HeadRow(*row) for row in rows], now_ms)
        window.lose(transaction, ref, cursor, now_ms)
