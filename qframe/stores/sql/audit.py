"""The audit behind `verify`: what must hold in the tables, and a sentence for what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import bindparam, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.rules import RANKED
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import counts, ranges
from qframe.stores.sql.cursors import CURSORS, GROUPS, CursorRow
from qframe.stores.sql.heads import HeadRow, Unreadable, headers_of
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog, log, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Kind

_HEADS: Final = Statement(
    select(subjects).where(
        subjects.c.cursor >= bindparam("first"), subjects.c.cursor < bindparam("end")
    ),
    "first end",
)
_BEHIND: Final = Statement(
    select(backlog.c.cursor, backlog.c.subject, func.count())
    .where(backlog.c.cursor >= bindparam("first"), backlog.c.cursor < bindparam("end"))
    .group_by(backlog.c.cursor, backlog.c.subject),
    "first end",
)
_LINE: Final = Statement(
    select(func.count()).select_from(log).where(
        log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"), log.c.seq < bindparam("e")
    ),
    "at start e",
)  # fmt: skip
_OFFSETS: Final = Statement(
    select(log.c.seq)
    .where(log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"))
    .order_by(log.c.seq),
    "at start",
)
_GAPS_NAMED: Final = 10


def verify(transaction: Transaction, ref: TopicRef) -> list[str]:
    """The faults in a topic's tables, in sentences; nothing if there is none."""
    wrong: list[str] = []
    for number, name in transaction.rows(GROUPS, (ref.id,)):
        span = ref.cursor_range(number)
        who = f"{ref.topic.name}/{name or '(no group)'}"
        cursors = [CursorRow(*row) for row in transaction.rows(CURSORS, span)]
        known = {each.cursor: each for each in cursors}
        lost = [
            f"{who} slot {slot}: the group has subscribed, but this slot has no record of it"
            for slot in range(ref.topic.slots)
            if ref.cursor_number(number, slot) not in known
        ]
        wrong += lost or _counts(transaction, ref, name, who)
        for each in cursors:
            if not ref.topic.has_subjects:
                wrong += _line(transaction, ref, each, who)
        wrong += _queues(transaction, ref, span, who, known)
    return wrong


def _counts(transaction: Transaction, ref: TopicRef, name: str, who: str) -> list[str]:
    """Conservation."""
    wrong = []
    for one in counts.stats(transaction, ref, name):
        parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
        if one.published != parts:
            wrong.append(
                f"{who} slot {one.slot}: {one.published} published, but {one.waiting} waiting + "
                f"{one.todo} todo + {one.doing} doing + {one.settled} settled + {one.dead} dead + "
                f"{one.cancelled} cancelled = {parts}"
            )
    return wrong


def _line(transaction: Transaction, ref: TopicRef, cursor: CursorRow, who: str) -> list[str]:
    """A stream's cursor, and the log under it."""
    slot = cursor.cursor % PER_TOPIC
    where = f"{who} slot {slot}"
    at = ref.slot_number(slot)
    heads: dict[int, int] = dict(transaction.rows(arrive.HEADS, ref.slot_range()))
    head = heads[at]
    wrong = []
    if not cursor.floor <= cursor.read <= head:
        wrong.append(f"{where}: floor {cursor.floor}, read {cursor.read}, head {head} out of order")
    edge = cursor.floor
    for start, end in ranges.load(cursor.settled):
        if not edge < start < end <= cursor.read:
            wrong.append(f"{where}: settled range {start}-{end} is not between {edge} and the read")
        edge = end
    if cursor.has_window() and (cursor.receipt is None or not cursor.lease_until):
        wrong.append(
            f"{where}: offsets from {cursor.floor} are in doing without a lease or receipt"
        )
    there = transaction.rows(_LINE, (at, cursor.floor, head))[0][0]
    if there != head - cursor.floor:
        wrong += [f"{where}: {gap}" for gap in _gaps(transaction, at, cursor.floor, head)]
    return wrong


def _gaps(transaction: Transaction, at: int, floor: int, head: int) -> list[str]:
    """The offsets that a log lacks, the first ten ranges of them; and one that lies beyond it."""
    found: list[str] = []
    expected = floor
    for (seq,) in [*transaction.rows(_OFFSETS, (at, floor)), (head,)]:
        if seq > expected:
            found.append(f"offsets {expected} to {seq - 1} are not in the log")
        if seq >= head:
            break
        expected = seq + 1
    more = len(found) - _GAPS_NAMED
    return [*found[:_GAPS_NAMED], *([f"and {more} more gaps"] if more > 0 else ())]


def _queues(
    transaction: Transaction,
    ref: TopicRef,
    span: tuple[int, int],
    who: str,
    known: Mapping[int, CursorRow],
) -> list[str]:
    """Heads, and what stands behind them."""
    wrong = []
    behind = Counter({(row[0], row[1]): row[2] for row in transaction.rows(_BEHIND, span)})
    for row in transaction.rows(_HEADS, span):
        head = HeadRow(*row)
        where = f"{who} slot {head.cursor % PER_TOPIC} subject {head.subject}"
        there = behind.pop((head.cursor, head.subject), 0)
        if bool(head.behind) != bool(there):
            wrong.append(f"{where}: behind is {head.behind}, and {there} messages are behind it")
        wrong += [f"{where}: {fault}" for fault in _faults(ref.topic.kind, head, there)]
        if not ref.topic.has_subjects and _is_in_line(known.get(head.cursor), head.seq):
            wrong.append(f"{where}: it is also in the line")
    wrong += [
        f"{who} slot {at % PER_TOPIC} subject {subject}: {count} messages behind no head"
        for (at, subject), count in behind.items()
    ]
    return wrong


def _is_in_line(cursor: CursorRow | None, offset: int) -> bool:
    """Whether a message that left the line of a stream is still in it."""
    if cursor is None or offset < cursor.floor:
        return False
    return not ranges.contains(ranges.load(cursor.settled), offset)


def _faults(kind: Kind, head: HeadRow, behind: int) -> list[str]:
    """The faults of one head."""
    faults = []
    if isinstance(headers_of(head.headers), Unreadable):
        faults.append("its headers cannot be read")
    if head.state == HeadState.DOING:
        if head.receipt is None or head.rank <= 0:
            faults.append("in doing without a lease or receipt")
        if not 1 <= head.given <= 1 + behind:
            faults.append(f"a run of {head.given}, with {behind} behind it")
        if head.tries < 1:
            faults.append("in doing without an attempt")
        return faults
    if head.receipt is not None or head.given:
        faults.append("not in doing, but with a receipt or a run")
    if head.state == HeadState.TODO and (kind not in RANKED or head.rank != -head.priority):
        faults.append(f"in todo with rank {head.rank} and priority {head.priority}")
    if behind and kind is not Kind.ORDERED:
        faults.append("a next round behind a head that is not in doing")
    return faults
