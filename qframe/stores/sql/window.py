"""A stream's line for a group: reading on in it, and taking its window back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.message import Delivery
from qframe.stores import rules
from qframe.stores.history import lost_entry
from qframe.stores.sql import heads, ranges
from qframe.stores.sql.cursors import CursorRow
from qframe.stores.sql.histories import keep
from qframe.stores.sql.schema import HeadState, log
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
    *,
    receipt: str,
    lease_until_ms: int,
) -> list[Delivery]:
    """Reads on in the line; the cursor is changed, not saved.

    From the caller's position, where that is behind: what it has not received is sent again.
    """
    start = cursor.read
    if ask.position is not None:
        start = min(start, max(ask.position, cursor.floor))
    rows = transaction.rows(_LINE, (ref.slot_number(ask.slot), start, limit))
    if not rows:
        return []
    if not cursor.has_window():
        cursor.receipt = receipt
    token = cursor.receipt or receipt
    cursor.read = max(cursor.read, rows[-1][0] + 1)
    cursor.lease_until = lease_until_ms
    slot = ask.slot
    return [
        Delivery(id_, key, heads.headers_of(text), body, at_ms, slot, None, seq, token, 1, 0, due)
        for seq, id_, key, text, body, at_ms, due in rows
    ]


def lose(transaction: Transaction, ref: TopicRef, cursor: CursorRow, now_ms: int) -> int:
    """Takes the window back: what is unsettled in it leaves the line, lost once more.

    The cursor is changed, not saved.
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
    leave(transaction, cursor, leaving, due_ms=rules.FRONT, tries=1, lost=1, error=None)
    if ref.topic.history_ms:
        lost = [lost_entry(row[1], 1, cursor.receipt, now_ms, of_line=True) for row in leaving]
        keep(transaction, [(cursor.cursor, entry) for entry in lost])
    cursor.floor = cursor.read
    cursor.settled = ranges.EMPTY
    cursor.receipt = None
    cursor.lease_until = 0
    return len(leaving)


def shorten(cursor: CursorRow, position: int | None, receipt: str) -> int:
    """Moves the read position back over what a lost reply has handed out; returns how far.

    After a seek a position says nothing, but the lost pull has begun the window. The cursor is
    changed, not saved.
    """
    settled = ranges.load(cursor.settled)
    start = cursor.read if position is None else max(position, cursor.floor)
    if cursor.receipt == receipt and not settled:
        start = cursor.floor
    count = cursor.read - start
    if count <= 0 or (settled and settled[-1][1] > start):
        return 0
    cursor.read = start
    if not cursor.has_window():
        cursor.receipt = None
        cursor.lease_until = 0
    return count


def leave(
    transaction: Transaction,
    cursor: CursorRow,
    rows: Iterable[Row],
    *,
    due_ms: int,
    tries: int,
    lost: int,
    error: str | None,
) -> None:
    """Queues messages of the log for themselves, under the text of their offset."""
    transaction.run_many(
        heads.INSERT,
        [
            (cursor.cursor, str(row[0]), HeadState.WAITING, 0, due_ms, row[0], 0, None,
             tries, lost, 0, 0, error, *row[1:])
            for row in rows
        ],
    )  # fmt: skip
