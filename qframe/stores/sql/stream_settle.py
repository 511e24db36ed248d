"""Ending deliveries of a stream's line: the cursor's window moves, and what does not end leaves."""

from __future__ import annotations

from collections.abc import Sequence

from qframe.drivers.sql import Transaction
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores import rules
from qframe.stores.sql import heads, ranges, window
from qframe.stores.sql.cursors import CursorRow
from qframe.stores.sql.parking import Coming, leave
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import NO_EPOCH, Settlement


def acknowledge(cursor: CursorRow, deliveries: Sequence[Delivery]) -> bool:
    """Acknowledges deliveries of the line if all of them are held; returns whether they are.

    The cursor is changed then, not saved.
    """
    offsets = sorted([one.seq for one in deliveries])
    settled = ranges.load(cursor.settled)
    if (
        {one.receipt for one in deliveries} != {cursor.receipt}
        or not cursor.floor <= offsets[0] <= offsets[-1] < cursor.read
        or len(set(offsets)) < len(offsets)
        or ranges.has_any(settled, offsets)
    ):
        return False
    cursor.acked += len(offsets)
    cursor.settle(offsets, settled)
    return True


def settle(
    transaction: Transaction,
    ref: TopicRef,
    cursor: CursorRow,
    settlements: Sequence[Settlement],
    now_ms: int,
) -> list[Settled]:
    """Settles deliveries of the line; the cursor is changed, not saved."""
    results: list[Settled] = []
    settled = ranges.load(cursor.settled)
    new: set[int] = set()
    for one in settlements:
        seq = one.seq
        is_held = (
            one.epoch == cursor.epoch != NO_EPOCH
            and one.receipt == cursor.receipt
            and cursor.floor <= seq < cursor.read
            and seq not in new
            and not (settled and ranges.contains(settled, seq))
        )
        if not is_held:
            results.append(Settled.STALE)
            continue
        new.add(seq)
        results.append(Settled.SETTLED)
        if one.verdict is Verdict.ACK:
            cursor.acked += 1
        else:
            _take_out(transaction, ref, cursor, one, now_ms)
    if new:
        cursor.settle(new, settled)
    return results


def _take_out(
    transaction: Transaction, ref: TopicRef, cursor: CursorRow, one: Settlement, now_ms: int
) -> None:
    """Takes a message out of the line: to its retry, back to the front, or to dead."""
    row = transaction.rows(window.READ, (ref.slot_number(cursor.slot), one.seq, 1))[0]
    if one.verdict is Verdict.DEAD:
        about = (None, 0, one.attempt, one.error, one.traceback, now_ms)
        transaction.run(heads.ADD_DEAD, (cursor.cursor, one.seq, *about, *row[1:]))
        return
    coming = Coming(rules.FRONT)
    if one.verdict is Verdict.RETRY:
        coming = Coming(rules.retry_due(one, now_ms), tries=1, error=one.last_words)
    leave(transaction, cursor.cursor, [row], coming)
