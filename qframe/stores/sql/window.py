"""A stream's line for a group: reading on in it, and taking its window back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.message import Delivery
from qframe.stores import rules
from qframe.stores.history import lost_entry
from qframe.stores.sql import heads, ranges
from qframe.stores.sql.cursors import CursorRow
from qframe.stores.sql.hand_out import PullInProgress
from qframe.stores.sql.histories import keep
from qframe.stores.sql.parking import Coming, leave, of_parked_keys, park
from qframe.stores.sql.schema import log
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import PullRequest

READ: Final = Statement(
    select(log.c.seq, log.c.id, log.c.key, log.c.headers, log.c.body, log.c.published_at)
    .where(log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"))
    .order_by(log.c.seq)
    .limit(bindparam("most")),
    "at start most",
)

LINE: Final = Statement(
    select(
        log.c.seq, log.c.id, log.c.key, log.c.headers, log.c.body, log.c.published_at,
        log.c.joined_at,
    )
    .where(log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"))
    .order_by(log.c.seq)
    .limit(bindparam("most")),
    "at start most",
)  # fmt: skip


def hand_out(
    pulling: PullInProgress, cursor: CursorRow, ask: PullRequest, limit: int, *,
    parks: bool, full: bool,
) -> int:  # fmt: skip
    """Reads on in the line, and returns how many messages; the cursor is changed, not saved.

    Where something `parks`, messages of parked keys are put behind these.
    """
    pulled, slot = pulling.pulled, ask.slot
    rows = _next_rows(pulling, cursor, ask, limit, full=full)
    if not rows:
        if ask.position is not None and ask.position > cursor.read:
            pulled.stops[slot] = cursor.read
        return 0
    if not cursor.has_window():
        cursor.receipt = pulling.terms.receipt
    token = cursor.receipt or pulling.terms.receipt
    cursor.read = max(cursor.read, rows[-1][0] + 1)
    cursor.lease_until = pulling.until_ms
    parked = _divert(pulling.transaction, cursor, rows) if parks else set()
    if rows[-1][0] in parked:
        pulled.stops[slot] = rows[-1][0] + 1
    pulled.deliveries += [
        Delivery(id_, key, None if text is None else heads.headers_of(text), body, at_ms, slot,
                 None, seq, token, 1, 0, due)
        for seq, id_, key, text, body, at_ms, due in rows
        if seq not in parked
    ]  # fmt: skip
    return len(rows)


def _next_rows(
    pulling: PullInProgress, cursor: CursorRow, ask: PullRequest, limit: int, *, full: bool
) -> list[Row]:
    """The next rows of the line, from the caller's position on where that is behind.

    Sends again the part that the caller has not received. A line that is `full` is read no further.
    """
    transaction, at = pulling.transaction, pulling.ref.slot_number(ask.slot)
    rows: list[Row] = []
    if ask.position is not None and (start := max(ask.position, cursor.floor)) < cursor.read:
        # Behind one slow message there may be millions that are settled.
        for first, end in ranges.gaps(start, cursor.read, ranges.load(cursor.settled)):
            most = min(end - first, limit - len(rows))
            rows += [row for row in transaction.rows(LINE, (at, first, most)) if row[0] < end]
            if len(rows) == limit:
                return rows
    if not full:
        rows += transaction.rows(LINE, (at, cursor.read, limit - len(rows)))
    return rows


def _divert(transaction: Transaction, cursor: CursorRow, rows: Sequence[Row]) -> set[int]:
    """Takes rows of parked keys out of the line, behind these; returns their offsets."""
    parked = of_parked_keys(transaction, cursor.cursor, rows)
    if parked:
        leaving = [row for row in rows if row[0] in parked]
        park(transaction, cursor.cursor, leaving, Coming(rules.FRONT))
        cursor.settle(parked, ranges.load(cursor.settled))
    return parked


def lose(transaction: Transaction, ref: TopicRef, cursor: CursorRow, now_ms: int) -> int:
    """Takes the window back: what is unsettled in it leaves the line.

    Returns how much is lost: all but what is parked behind a head. The cursor is changed, not
    saved.
    """
    if not cursor.has_window():
        return 0
    leaving = _unsettled(transaction, ref, cursor, cursor.floor)
    leaving = leave(transaction, cursor.cursor, leaving, Coming(rules.FRONT, tries=1, lost=1))
    if ref.topic.history_ms:
        lost = [lost_entry(row[1], 1, cursor.receipt, now_ms, of_line=True) for row in leaving]
        keep(transaction, [(cursor.cursor, None, entry) for entry in lost])
    cursor.floor = cursor.read
    cursor.settled = ranges.EMPTY
    cursor.receipt = None
    cursor.lease_until = 0
    return len(leaving)


def revoke(
    transaction: Transaction, ref: TopicRef, cursor: CursorRow, position: int | None, receipt: str
) -> int:
    """Takes back what a lost reply has handed out; returns how many.

    After a seek a position says nothing, but the lost pull has begun the window. The cursor is
    changed, not saved.
    """
    settled = ranges.load(cursor.settled)
    start = cursor.read if position is None else max(position, cursor.floor)
    if cursor.receipt == receipt:
        start = cursor.floor
    count = cursor.read - start
    if count <= 0:
        return 0
    if settled and settled[-1][1] > start:
        # The lost pull has parked some of that, and so the rest leaves the line.
        back = _unsettled(transaction, ref, cursor, start)
        leave(transaction, cursor.cursor, back, Coming(rules.FRONT))
        cursor.settle([row[0] for row in back], settled)
        return len(back)
    cursor.read = start
    if not cursor.has_window():
        cursor.receipt = None
        cursor.lease_until = 0
    return count


def _unsettled(transaction: Transaction, ref: TopicRef, cursor: CursorRow, start: int) -> list[Row]:
    """The unsettled part of the window, from an offset on.

    Behind one slow message there may be millions that are settled: they are not read.
    """
    at, settled = ref.slot_number(cursor.slot), ranges.load(cursor.settled)
    return [
        row
        for first, end in ranges.gaps(start, cursor.read, settled)
        for row in transaction.rows(READ, (at, first, end - first))
    ]
