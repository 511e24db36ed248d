"""Keeping what is handed out, giving it back, losing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores import rules
from qframe.stores.history import lost_entry
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, window
from qframe.stores.sql.cursors import SET_CURSOR, CursorRow, lock_group_cursors
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.histories import keep
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.schema import HeadState, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import LeaseRef, PullRequest, RenewResult, RevokeResult

_RENEW: Final = Statement(
    subjects.update()
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.subject == bindparam("of"),
        subjects.c.receipt == bindparam("token"),
    )
    .values(rank=bindparam("until")),
    "until at of token",
)
_HANDED_OUT: Final = Statement(
    select(subjects).where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == HeadState.DOING,
        subjects.c.receipt == bindparam("token"),
    ),
    "at token",
)


_EXPIRED: Final = Statement(
    select(subjects)
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == HeadState.DOING,
        subjects.c.rank <= bindparam("now"),
    )
    .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq),
    "at now",
)


def renew(
    transaction: Transaction, ref: TopicRef, group: str, holds: Sequence[LeaseRef], lease_ms: int
) -> RenewResult:
    """Prolongs leases; returns those that are not held any more."""
    known = lock_group_cursors(transaction, ref, group, [hold.slot for hold in holds])
    until_ms = transaction.now_ms() + lease_ms
    gone = []
    for hold in holds:
        cursor = known[hold.slot]
        if cursor.epoch != hold.epoch:
            gone.append(hold)
        elif hold.subject is None:
            if cursor.receipt == hold.receipt and cursor.has_window():
                cursor.lease_until = until_ms
                transaction.run(SET_CURSOR, cursor.row())
            else:
                gone.append(hold)
        elif not transaction.run(_RENEW, (until_ms, cursor.cursor, hold.subject, hold.receipt)):
            gone.append(hold)
    return RenewResult(gone)


def revoke(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    asks: Sequence[PullRequest],
    receipt: str,
) -> RevokeResult:
    """Gives back what was handed out under a receipt, uncounted."""
    known = lock_group_cursors(transaction, ref, group, [ask.slot for ask in asks])
    now_ms = transaction.now_ms()
    count = 0
    for ask in asks:
        cursor = known[ask.slot]
        if cursor.epoch != ask.epoch:
            continue
        rows = transaction.rows(_HANDED_OUT, (cursor.cursor, receipt))
        for row in rows:
            head = HeadRow(*row)
            rules.release(head, ref.topic.kind)
            absorbed = heads.requeue(transaction, ref.topic.kind, head, now_ms)
            transaction.run(arrive.COUNT, (-absorbed, 0, 0, cursor.cursor))
            count += 1
        taken_back = 0
        if not ref.topic.has_subjects:
            taken_back = window.revoke(transaction, ref, cursor, ask.position, receipt)
        if taken_back:
            transaction.run(SET_CURSOR, cursor.row())
            count += taken_back
        if rows or taken_back:
            notify_messages(transaction, ref, [ask.slot])
    return RevokeResult(count)


def lose_expired(transaction: Transaction, ref: TopicRef, cursor: CursorRow, now_ms: int) -> int:
    """Takes heads out of doing whose lease has passed; returns how many."""
    rows = transaction.rows(_EXPIRED, (cursor.cursor, now_ms))
    return lose_doing(transaction, ref, cursor, [HeadRow(*row) for row in rows], now_ms)


def lose_doing(
    transaction: Transaction, ref: TopicRef, cursor: CursorRow, rows: Sequence[HeadRow], now_ms: int
) -> int:
    """Takes heads out of doing whose worker is gone; returns how many."""
    absorbed = 0
    if ref.topic.history_ms:
        lost = [lost_entry(head.id, head.tries, head.receipt, now_ms) for head in rows]
        keep(transaction, [(cursor.cursor, None, entry) for entry in lost])
    for head in rows:
        rules.lose(head, ref.topic.kind)
        absorbed += heads.requeue(transaction, ref.topic.kind, head, now_ms)
    if absorbed:
        transaction.run(arrive.COUNT, (-absorbed, 0, 0, cursor.cursor))
    return len(rows)
