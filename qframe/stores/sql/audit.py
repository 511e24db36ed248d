"""The audit behind `verify`: what must hold in the tables, and a fault for what does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import bindparam, func, literal_column, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores import faults
from qframe.stores.faults import Fault, Part
from qframe.stores.rules import BACKLOGGED, RANKED
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import ranges
from qframe.stores.sql.cursors import GROUPS, CursorRow, cursors_of
from qframe.stores.sql.heads import HeadRow, Unreadable, headers_of
from qframe.stores.sql.row_counts import counted_by_rows
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog, log, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Kind

PAGE: Final = 1000
_UNREAD: Final = ("error", "body")
_HEADS: Final = Statement(
    select(*[literal_column("NULL") if c.name in _UNREAD else c for c in subjects.c])
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject > bindparam("of"))
    .order_by(subjects.c.subject)
    .limit(bindparam("most")),
    "at of most",
)
_BEHIND: Final = Statement(
    select(backlog.c.subject, func.count())
    .where(backlog.c.cursor == bindparam("at"))
    .group_by(backlog.c.subject),
    "at",
)
_SEQS: Final = Statement(
    select(backlog.c.subject, backlog.c.seq).where(backlog.c.cursor == bindparam("at")), "at"
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


def verify(transaction: Transaction, ref: TopicRef) -> list[Fault]:
    """The faults in a topic's tables; nothing if there is none."""
    transaction.take_time()
    wrong: list[Fault] = []
    for number, name in transaction.rows(GROUPS, (ref.id,)):
        who = f"{ref.topic.name}/{name or '(no group)'}"
        cursors = list(cursors_of(transaction, ref, number).values())
        known = {each.cursor: each for each in cursors}
        lost = [
            Fault(
                f"{who} slot {slot}", "the group has subscribed, but this slot has no record of it",
                name, slot, left=faults.RECORD,
            )
            for slot in ref.topic.all_slots
            if ref.cursor_number(number, slot) not in known
        ]  # fmt: skip
        wrong += lost or _counts(transaction, ref, number, name, who)
        heads: dict[int, int] = dict(transaction.rows(arrive.HEADS, ref.slot_range()))
        for each in () if ref.topic.has_subjects else cursors:
            head = heads[ref.slot_number(each.slot)]
            wrong += _line(transaction, ref, each, head, name, who)
        for slot in ref.topic.all_slots:
            at = ref.cursor_number(number, slot)
            wrong += _queue(transaction, ref, at, known.get(at), name, who)
    return faults.with_counts_last(wrong)


def _counts(
    transaction: Transaction, ref: TopicRef, number: int, name: str, who: str
) -> list[Fault]:
    """Conservation."""
    wrong = []
    for one in counted_by_rows(transaction, ref, number, name, transaction.now_ms()):
        parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
        if one.published != parts:
            what = (
                f"{one.published} published, but {one.waiting} waiting + {one.todo} todo + "
                f"{one.doing} doing + {one.settled} settled + {one.dead} dead + "
                f"{one.cancelled} cancelled = {parts}"
            )
            wrong.append(Fault(f"{who} slot {one.slot}", what, name, one.slot, Part.COUNT))
    return wrong


def _line(
    transaction: Transaction, ref: TopicRef, cursor: CursorRow, head: int, name: str, who: str
) -> list[Fault]:
    """A stream's cursor, and the log under it."""
    slot = cursor.slot
    at = ref.slot_number(slot)
    wrong: list[tuple[str, str | None]] = []
    is_ordered = cursor.floor <= cursor.read <= head
    if not is_ordered:
        what = f"floor {cursor.floor}, read {cursor.read}, head {head} out of order"
        wrong.append((what, faults.POSITION))
    left = None if is_ordered else faults.POSITION
    edge = cursor.floor
    for start, end in ranges.load(cursor.settled):
        if not edge < start < end <= cursor.read:
            wrong.append((f"settled range {start}-{end} is not between {edge} and the read", left))
        edge = end
    if cursor.has_window() and (cursor.receipt is None or not cursor.lease_until):
        wrong.append((f"offsets from {cursor.floor} are in doing without a lease or receipt", left))
    there = transaction.rows(_LINE, (at, cursor.floor, head))[0][0]
    if there != head - cursor.floor:
        gaps = _gaps(transaction, at, cursor.floor, head)
        wrong += [(gap, faults.LOST) for gap in gaps]
    return [
        Fault(f"{who} slot {slot}", what, name, slot, Part.WINDOW, left=left)
        for what, left in wrong
    ]


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


def _queue(
    transaction: Transaction, ref: TopicRef, at: int, cursor: CursorRow | None, name: str, who: str
) -> list[Fault]:
    """Heads, and what stands behind them."""
    wrong: list[Fault] = []
    slot = at % PER_TOPIC

    def say(subject: str, what: str, left: str | None = None) -> None:
        where = f"{who} slot {slot} subject {subject}"
        wrong.append(Fault(where, what, name, slot, Part.SUBJECT, subject, left=left))

    behind: dict[str, int] = dict(transaction.rows(_BEHIND, (at,)))
    for head in _heads(transaction, at):
        subject = head.subject
        there = behind.pop(subject, 0)
        if bool(head.behind) != bool(there):
            say(subject, f"behind is {head.behind}, and {there} messages are behind it")
        for what, left in _faults(ref.topic.kind, head, there):
            say(subject, what, left)
        if not ref.topic.has_subjects and _is_in_line(cursor, head.seq):
            say(subject, "it is also in the line", faults.TWO_PLACES)
    for subject, seq in () if ref.topic.has_subjects else transaction.rows(_SEQS, (at,)):
        if _is_in_line(cursor, seq):
            say(subject, f"offset {seq} behind it is also in the line", faults.TWO_PLACES)
    for subject, count in behind.items():
        say(subject, f"{count} messages behind no head")
    return wrong


def _heads(transaction: Transaction, at: int) -> Iterator[HeadRow]:
    """The heads of a cursor without their bodies and errors, a page at a time."""
    after = ""
    while rows := transaction.rows(_HEADS, (at, after, PAGE)):
        yield from (HeadRow(*row) for row in rows)
        after = rows[-1][1]


def _is_in_line(cursor: CursorRow | None, offset: int) -> bool:
    """Whether a message that left the line of a stream is still in it."""
    if cursor is None or offset < cursor.floor:
        return False
    return not ranges.contains(ranges.load(cursor.settled), offset)


def _faults(kind: Kind, head: HeadRow, behind: int) -> Iterator[tuple[str, str | None]]:
    """The faults of one head, and why they are left."""
    if isinstance(headers_of(head.headers), Unreadable):
        yield "its headers cannot be read", faults.UNREADABLE
    if head.state == HeadState.DOING:
        if head.receipt is None or head.rank <= 0:
            yield "in doing without a lease or receipt", None
        if not 1 <= head.given <= 1 + behind:
            yield f"a run of {head.given}, with {behind} behind it", None
        if head.tries < 1:
            yield "in doing without an attempt", None
        return
    if head.receipt is not None or head.given:
        yield "not in doing, but with a receipt or a run", None
    if head.state == HeadState.TODO and (kind not in RANKED or head.rank != -head.priority):
        yield f"in todo with rank {head.rank} and priority {head.priority}", None
    if behind and kind not in BACKLOGGED:
        yield "a next round behind a head that is not in doing", faults.NEXT_ROUND
