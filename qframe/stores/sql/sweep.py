"""Removing what is no longer needed, in small steps."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.sql import histories
from qframe.stores.sql.cursors import EVERYTHING, GROUPS
from qframe.stores.sql.groups import drop_expired
from qframe.stores.sql.schema import cursors, is_there, log, marks, slots
from qframe.stores.sql.topic_ref import TopicRef, check_slots

# Offsets only grow, and so do the times of joining: the old ones are the first ones. So the time is
# not asked of all: where none is old that would read the whole line.
_FIRST: Final = (
    select(log.c.seq, log.c.joined_at)
    .where(log.c.slot == bindparam("at"), log.c.seq < bindparam("floor"))
    .order_by(log.c.seq)
    .limit(bindparam("most"))
    .subquery("first")
)
_OLD: Final = Statement(
    select(_FIRST.c.seq).where(_FIRST.c.joined_at <= bindparam("then")), "at floor most then"
)
_LOCK: Final = Statement(
    select(slots.c.slot)
    .where(slots.c.slot == bindparam("at"), slots.c.head >= 0)
    .with_for_update(skip_locked=True),
    "at",
)
_TRIM: Final = Statement(
    delete(log).where(log.c.slot == bindparam("at"), log.c.seq == bindparam("s")), "at s"
)
_FLOOR: Final = Statement(
    select(func.min(cursors.c.floor)).where(cursors.c.cursor == bindparam("at")), "at"
)
_EXPIRED: Final = Statement(
    select(marks.c.mark)
    .where(
        marks.c.slot == bindparam("at"),
        is_there(marks.c.expires),
        marks.c.expires <= bindparam("now"),
    )
    .order_by(marks.c.expires)
    .limit(bindparam("most")),
    "at now most",
)
_FORGET: Final = Statement(
    delete(marks).where(marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m")), "at m"
)


def sweep(transaction: Transaction, ref: TopicRef, limit: int) -> int:
    """Removes up to `limit` rows; returns how many.

    Slots that are locked now are left for the next time: sweeping makes nobody wait for it, nor
    waits for anybody. Closed slots are left too.
    """
    check_slots(transaction, ref)
    removed = drop_expired(transaction, ref, limit)
    now_ms = transaction.now_ms()
    removed += histories.forget(transaction, ref, limit - removed, now_ms)
    for slot in ref.topic.all_slots:
        if removed >= limit:
            break
        at = ref.slot_number(slot)
        if not _has_old(transaction, ref, at, now_ms):
            continue
        if transaction.row(_LOCK, (at,)) is None:
            continue
        removed += _sweep_slot(transaction, ref, slot, limit - removed, now_ms)
    return removed


def _has_old(transaction: Transaction, ref: TopicRef, at: int, now_ms: int) -> bool:
    """Whether it is worth a lock."""
    if transaction.row(_EXPIRED, (at, now_ms, 1)) is not None:
        return True
    then_ms = now_ms - ref.topic.retain_ms
    return not ref.topic.has_subjects and bool(transaction.rows(_OLD, (at, EVERYTHING, 1, then_ms)))


def _sweep_slot(transaction: Transaction, ref: TopicRef, slot: int, limit: int, now_ms: int) -> int:
    at = ref.slot_number(slot)
    expired = transaction.rows(_EXPIRED, (at, now_ms, limit))
    transaction.run_many(_FORGET, [(at, row[0]) for row in expired])
    removed = len(expired)
    if ref.topic.has_subjects:
        return removed
    # The groups as they are under the lock: one that is added waits for it.
    groups = [row[0] for row in transaction.rows(GROUPS, (ref.id,))]
    floors = [transaction.rows(_FLOOR, (ref.cursor_number(group, slot),))[0][0] for group in groups]
    floor = min((each for each in floors if each is not None), default=EVERYTHING)
    then_ms = now_ms - ref.topic.retain_ms
    rows = transaction.rows(_OLD, (at, floor, limit - removed, then_ms))
    transaction.run_many(_TRIM, [(at, row[0]) for row in rows])
    return removed + len(rows)
