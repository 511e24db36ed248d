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
from qframe.stores.sql.parking import Coming, max_parked_of, of_parked_keys, park
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

_LINE: Final = Statement(
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
    transaction: Transaction,
    ref: TopicRef,
    cursor: CursorRow,
    ask: PullRequest,
    limit: int,
    pulling: PullInProgress,
    *,
    parks: bool,
    full: bool,
) -> int:
    """Reads on in the line, and returns how many messages; the cursor is changed, not saved.

    From the caller's position, where that is behind: what it has not received is sent again. Where
    something `parks`, messages of parked keys are put behind these; what is `full` is read no more.
    """
    receipt, pulled = pulling.terms.receipt, pulling.pulled
    start = cursor.read
    if ask.position is not None:
        start = min(start, max(ask.position, cursor.floor))
    at = ref.slot_number(ask.slot)
    rows: list[Row] = []
    if start < cursor.read:  # behind one slow message there may be millions that are settled
        for first, end in ranges.gaps(start, cursor.read, ranges.load(cursor.settled)):
            most = min(end - first, limit - len(rows))
            rows += [row for row in transaction.rows(_LINE, (at, first, most)) if row[0] < end]
            if len(rows) == limit:
                break
    if len(rows) < limit and not full:
        rows += transaction.rows(_LINE, (at, cursor.read, limit - len(rows)))
    if not rows:
        if ask.position is not None and ask.position > cursor.read:
            pulled.stops[ask.slot] = cursor.read
        return 0
    if not cursor.has_window():
        cursor.receipt = receipt
    token = cursor.receipt or receipt
    cursor.read = max(cursor.read, rows[-1][0] + 1)
    cursor.lease_until = pulling.until_ms
    slot = ask.slot
    parked = of_parked_keys(transaction, cursor.cursor, rows) if parks else set()
    if parked:
        leaving = [row for row in rows if row[0] in parked]
        park(transaction, cursor.cursor, leaving, Coming(rules.FRONT), keeps_order=True)
        settled = ranges.load(cursor.settled)
        cursor.floor, settled = ranges.added(cursor.floor, settled, parked)
        cursor.settled = ranges.dump(settled)
        if rows[-1][0] in parked:
            pulled.stops[slot] = rows[-1][0] + 1
    pulled.deliveries += [
        Delivery(id_, key, None if text is None else heads.headers_of(text), body, at_ms, slot,
                 None, seq, token, 1, 0, due)
        for seq, id_, key, text, body, at_ms, due in rows
        if seq not in parked
    ]  # fmt: skip
    return len(rows)


def lose(transaction: Transaction, ref: TopicRef, cursor: CursorRow, now_ms: int) -> int:
    """Takes the window back: what is unsettled in it leaves the line.

    Returns how much is lost: all but what is parked behind a head. The cursor is changed, not
    saved.
    """
    if not cursor.has_window():
        return 0
    at, settled = ref.slot_number(cursor.slot), ranges.load(cursor.settled)
    # Behind one slow message there may be millions that are settled: they are not read.
    leaving = [
        row
        for start, end in ranges.gaps(cursor.floor, cursor.read, settled)
        for row in transaction.rows(READ, (at, start, end - start))
    ]
    lost_once = Coming(rules.FRONT, tries=1, lost=1)
    leaving = leave(transaction, cursor, leaving, lost_once)
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
        at = ref.slot_number(cursor.slot)
        back = [
            row
            for first, end in ranges.gaps(start, cursor.read, settled)
            for row in transaction.rows(READ, (at, first, end - first))
        ]
        leave(transaction, cursor, back, Coming(rules.FRONT))
        offsets = [row[0] for row in back]
        cursor.floor, settled = ranges.added(cursor.floor, settled, offsets)
        cursor.settled = ranges.dump(settled)
        return len(back)
    cursor.read = start
    if not cursor.has_window():
        cursor.receipt = None
        cursor.lease_until = 0
    return count


def leave(
    transaction: Transaction, cursor: CursorRow, rows: Sequence[Row], coming: Coming
) -> list[Row]:
    """Queues messages of the log that leave the line; returns those that are heads."""
    keeps_order = bool(rows) and max_parked_of(transaction, cursor.cursor) > 0
    return park(transaction, cursor.cursor, rows, coming, keeps_order=keeps_order)
