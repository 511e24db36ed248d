"""Removing what is no longer needed, in small steps."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.sql.groups import drop_expired
from qframe.stores.sql.places import GROUPS, Place
from qframe.stores.sql.schema import cursors, log, marks

_OLD: Final = Statement(
    select(log.c.seq)
    .where(
        log.c.slot == bindparam("at"),
        log.c.seq < bindparam("floor"),
        log.c.joined_at <= bindparam("then"),
    )
    .order_by(log.c.seq)
    .limit(bindparam("most")),
    "at floor then most",
)
_TRIM: Final = Statement(
    delete(log).where(log.c.slot == bindparam("at"), log.c.seq == bindparam("s")), "at s"
)
_FLOOR: Final = Statement(
    select(func.min(cursors.c.floor)).where(cursors.c.cursor == bindparam("at")), "at"
)
_EXPIRED: Final = Statement(
    select(marks.c.mark)
    .where(marks.c.slot == bindparam("at"), marks.c.expires <= bindparam("now"))
    .order_by(marks.c.expires)
    .limit(bindparam("most")),
    "at now most",
)
_FORGET: Final = Statement(
    delete(marks).where(marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m")), "at m"
)


def sweep(transaction: Transaction, place: Place, limit: int, now_ms: int) -> int:
    """Removes up to `limit` rows; answers how many."""
    removed = drop_expired(transaction, place, limit, now_ms)
    groups = [row[0] for row in transaction.rows(GROUPS, (place.id,))]
    for slot in range(place.topic.slots):
        if removed >= limit:
            break
        at = place.slot_number(slot)
        marks_gone = transaction.rows(_EXPIRED, (at, now_ms, limit - removed))
        transaction.run_many(_FORGET, [(at, row[0]) for row in marks_gone])
        removed += len(marks_gone)
        if place.topic.has_subjects or removed >= limit:
            continue
        floors = [
            transaction.rows(_FLOOR, (place.cursor_number(group, slot),))[0][0] for group in groups
        ]
        # Offsets only grow, and so do the times of joining: the old ones are the first ones.
        then_ms = now_ms - place.topic.retain_ms
        rows = transaction.rows(_OLD, (at, min(floors, default=2**62), then_ms, limit - removed))
        transaction.run_many(_TRIM, [(at, row[0]) for row in rows])
        removed += len(rows)
    return removed
