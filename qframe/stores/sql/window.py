"""A stream's line for a group: what of it is handed out, settled, and what has left it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.sql import heads, ranges
from qframe.stores.sql.graves import bury
from qframe.stores.sql.places import Cursor, Place
from qframe.stores.sql.schema import State, log
from qframe.stores.types import NO_EPOCH, PullRequest, Settlement

READ: Final = Statement(
    select(log.c.seq, log.c.id, log.c.key, log.c.headers, log.c.body, log.c.published_at)
    .where(log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"))
    .order_by(log.c.seq)
    .limit(bindparam("most")),
    "at start most",
)


def hand_out(
    transaction: Transaction,
    place: Place,
    cursor: Cursor,
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
    rows = transaction.rows(READ, (place.slot_number(ask.slot), start, limit))
    if not rows:
        return []
    if not cursor.has_window():
        cursor.receipt = receipt
    token = cursor.receipt or receipt
    cursor.read = max(cursor.read, rows[-1][0] + 1)
    cursor.lease_until = lease_until_ms
    slot = ask.slot
    return [
        Delivery(id_, key, heads.headers_of(text), body, at_ms, slot, None, seq, token)
        for seq, id_, key, text, body, at_ms in rows
    ]


def lose(transaction: Transaction, place: Place, cursor: Cursor) -> int:
    """Takes the window back: what is unsettled in it leaves the line, lost once more.

    The cursor is changed, not saved.
    """
    if not cursor.has_window():
        return 0
    at, settled = place.slot_number(cursor.slot), ranges.load(cursor.settled)
    # Behind one slow message there may be millions that are settled: they are not read.
    leaving = [
        row
        for start, end in ranges.gaps(cursor.floor, cursor.read, settled)
        for row in transaction.rows(READ, (at, start, end - start))
    ]
    leave(transaction, cursor, leaving, due_ms=heads.FRONT, tries=1, lost=1, error=None)
    cursor.floor = cursor.read
    cursor.settled = ranges.EMPTY
    cursor.receipt = None
    cursor.lease_until = 0
    return len(leaving)


def leave(
    transaction: Transaction,
    cursor: Cursor,
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
            (cursor.cursor, str(row[0]), State.WAITING, 0, due_ms, row[0], 0, None,
             tries, lost, 0, 0, error, *row[1:])
            for row in rows
        ],
    )  # fmt: skip


def settle(
    transaction: Transaction,
    place: Place,
    cursor: Cursor,
    settlements: Sequence[Settlement],
    now_ms: int,
) -> list[Settled]:
    """Settles deliveries of the line; the cursor is changed, not saved."""
    answers: list[Settled] = []
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
            answers.append(Settled.STALE)
            continue
        new.add(seq)
        answers.append(Settled.SETTLED)
        if one.verdict is Verdict.ACK:
            cursor.acked += 1
        else:
            _take_out(transaction, place, cursor, one, now_ms)
    if new:
        cursor.floor, settled = ranges.added(cursor.floor, settled, new)
        cursor.settled = ranges.dump(settled)
    return answers


def _take_out(
    transaction: Transaction, place: Place, cursor: Cursor, one: Settlement, now_ms: int
) -> None:
    """Takes a message out of the line: to its retry, back to the front, or to dead."""
    row = transaction.rows(READ, (place.slot_number(cursor.slot), one.seq, 1))[0]
    if one.verdict is Verdict.DEAD:
        bury(
            transaction, cursor.cursor, seq=one.seq, subject=None, priority=0, attempts=one.attempt,
            error=one.error, traceback=one.traceback, died_at_ms=now_ms, envelope=row[1:],
        )  # fmt: skip
    elif one.verdict is Verdict.RETRY:
        due_ms = now_ms + one.delay_ms if one.at_ms is None else one.at_ms
        leave(
            transaction,
            cursor,
            [row],
            due_ms=due_ms,
            tries=1,
            lost=0,
            error=one.last_words,
        )
    else:
        leave(transaction, cursor, [row], due_ms=heads.FRONT, tries=0, lost=0, error=None)
