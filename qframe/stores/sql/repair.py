"""Mending what `audit` finds and `qframe.stores.faults` calls safe: a transaction for each slot.

Slot and cursor are locked as by a publish and a settlement together, so that others wait while the
slot is mended, and for as long as its rows are counted. Each place is looked at again under the
locks, and only what is wrong there still is changed. A message in hand without a
lease gets one that has ended, of nobody: the next pull takes it back as where a worker has died.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.stores import rules
from qframe.stores.acts import Repairing
from qframe.stores.faults import Mendable, Part, mendable, recounted
from qframe.stores.rules import RANKED
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, ranges
from qframe.stores.sql.audit import verify
from qframe.stores.sql.cursors import (
    SET_CURSOR,
    CursorRow,
    known_group,
    lock_group_cursors,
    lock_slots,
)
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.row_counts import counted_by_rows
from qframe.stores.sql.schema import HeadState, cursors
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Kind, Topic

NOBODY: Final = "repaired"
"""The receipt of what has none."""

ENDED: Final = 1
"""When a lease ends that is to have ended."""

_BASE: Final = Statement(
    cursors.update()
    .where(cursors.c.cursor == bindparam("at"))
    .values(base=cursors.c.base - bindparam("less")),
    "less at",
)


class SqlRepairing(SqlRole, Repairing):
    """Rows that are put right."""

    @override
    def repair(self, topic: Topic) -> list[str]:
        done: list[str] = []
        for each in mendable(self._read(topic, verify)):
            try:
                done += self._write(topic, _mend, each)
            except UnknownGroup:  # dropped meanwhile
                continue
        return done


def _mend(transaction: Transaction, ref: TopicRef, wrong: Mendable) -> list[str]:
    """Mends a slot for a group; returns what was done."""
    group, slot, found, is_countable = wrong
    head = lock_slots(transaction, ref, [slot])[slot]
    cursor = lock_group_cursors(transaction, ref, group, [slot])[slot]
    now_ms, kind = transaction.now_ms(), ref.topic.kind
    where = f"{ref.topic.name}/{group or '(no group)'} slot {slot}"
    done = []
    if any(each.part is Part.WINDOW for each in found) and _mend_window(cursor, head):
        transaction.run(SET_CURSOR, cursor.row())
        done.append(f"{where}: what is in hand is taken back, settled ranges are put right")
    for subject in dict.fromkeys(str(each.name) for each in found if each.part is Part.SUBJECT):
        what = _mend_subject(transaction, kind, cursor.cursor, subject, now_ms)
        done += [f"{where} subject {subject}: {what}"] if what else []
    number = known_group(transaction, ref, group)
    missing = _recount(transaction, ref, number, group, slot, now_ms) if is_countable else 0
    done += [f"{where}: {recounted(missing)}"] if missing else []
    if done:
        notify_messages(transaction, ref, [slot])
    return done


def _mend_window(cursor: CursorRow, head: int) -> bool:
    """Puts a stream's window right; the cursor is changed, not saved. False if it was right."""
    if not cursor.floor <= cursor.read <= head:
        return False
    before = cursor.row()
    floor, kept = cursor.floor, ranges.Ranges()
    for start, end in sorted(ranges.load(cursor.settled)):
        start, end = max(start, floor), min(end, cursor.read)
        if start >= end:
            continue
        if start == floor:
            floor = end
        elif kept and start <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        else:
            kept.append((start, end))
    cursor.floor, cursor.settled = floor, ranges.dump(kept)
    if cursor.has_window() and (cursor.receipt is None or not cursor.lease_until):
        cursor.receipt, cursor.lease_until = NOBODY, ENDED
    return cursor.row() != before


def _mend_subject(
    transaction: Transaction, kind: Kind, at: int, subject: str, now_ms: int
) -> str | None:
    """Puts a subject's head right; returns what was done, if anything was wrong."""
    behind = transaction.rows(heads.BEHIND, (at, subject, 2**31))
    head = heads.fetched(transaction, at, subject)
    if head is None:
        if not behind:
            return None
        _promote(transaction, kind, at, subject, behind[:2], now_ms)
        return "the next message stands in the place of the one that is gone"
    before = head.row()
    head.behind = int(bool(behind))
    if head.state == HeadState.DOING:
        if head.receipt is None or head.rank <= 0:
            head.receipt, head.rank = NOBODY, ENDED
        head.given = max(1, min(head.given, 1 + len(behind)))
        head.tries = max(1, head.tries)
    else:
        rules.end_lease(head)
        if head.state == HeadState.TODO and (kind not in RANKED or head.rank != -head.priority):
            head.state, head.rank = heads.position_of(kind, head.due_ms, head.priority, now_ms)
    if head.row() == before:
        return None
    heads.save(transaction, head)
    return "its state is put right"


def _promote(
    transaction: Transaction,
    kind: Kind,
    at: int,
    subject: str,
    behind: Sequence[tuple[object, ...]],
    now_ms: int,
) -> None:
    """Makes the first of what stands behind no head the head."""
    head = HeadRow(
        at, subject, state=HeadState.WAITING, rank=0, due_ms=0, seq=0, priority=0, receipt=None,
        tries=0, lost=0, given=0, behind=0, error=None, id="", key=None, headers=None, body=b"",
        published_at=0,
    )  # fmt: skip
    heads.promote_next(kind, head, behind, now_ms)
    transaction.run(heads.INSERT, head.row())
    transaction.run(heads.DELETE_BEHIND, (at, subject, head.seq))


def _recount(
    transaction: Transaction, ref: TopicRef, number: int, group: str, slot: int, now_ms: int
) -> int:
    """Makes the counts follow the rows; returns how many messages were missing."""
    [one] = counted_by_rows(transaction, ref, number, group, now_ms, slot)
    parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
    missing = one.published - parts
    at = ref.cursor_number(number, slot)
    unsettled = min(max(0, -missing), one.settled)
    rest = max(0, -missing) - unsettled
    if missing:
        more = rest if ref.topic.has_subjects else 0
        transaction.run(arrive.COUNT, (more, -unsettled, max(0, missing), at))
    if rest and not ref.topic.has_subjects:
        transaction.run(_BASE, (rest, at))
    return missing
