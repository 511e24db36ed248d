"""The rows that a search reads: those that an index leads to, and pages of whole tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import bindparam, select

from qframe.codec import batch_mark_of, time_of_token
from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores import rules
from qframe.stores.records import LogSpan, Record, Remembered, Sought
from qframe.stores.sql import heads, ranges, window
from qframe.stores.sql.cursors import CURSORS, EVERYTHING, CursorRow
from qframe.stores.sql.groups import SLOTS
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.lookups import whole_heads
from qframe.stores.sql.records import (
    record_behind,
    record_of_dead,
    record_of_head,
    record_of_log,
    state_of_head,
)
from qframe.stores.sql.schema import (
    HeadState,
    backlog,
    dead,
    held,
    is_there,
    log,
    marks,
    subjects,
)
from qframe.stores.sql.topic_ref import TopicRef

_c: Final = subjects.c
_MARK: Final = Statement(
    select(marks.c.expires).where(
        marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m"),
        marks.c.expires > bindparam("now"),
    ),
    "at m now",
)  # fmt: skip
IDS: Final = Statement(
    select(log.c.seq, log.c.id, log.c.joined_at)
    .where(log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"))
    .order_by(log.c.seq)
    .limit(bindparam("most")),
    "at start most",
)
DUE: Final = [
    Statement(
        select(_c.subject, _c.id)
        .where(
            _c.cursor == bindparam("at"), _c.state == state, _c.rank == 0,
            _c.due >= bindparam("from"), _c.due <= bindparam("to"), is_there(_c.state),
        )
        .order_by(_c.due, _c.seq)
        .limit(bindparam("most")),
        "at from to most",
    )
    for state in (HeadState.TODO, HeadState.WAITING)
]  # fmt: skip
_DEAD_AT: Final = Statement(
    select(dead).where(dead.c.cursor == bindparam("at"), dead.c.seq == bindparam("s")), "at s"
)
_DEAD_OF_ID: Final = Statement(
    select(dead)
    .where(dead.c.cursor == bindparam("at"), dead.c.id == bindparam("i"))
    .order_by(dead.c.seq)
    .limit(bindparam("most")),
    "at i most",
)
_DEAD_OF_KEY: Final = Statement(
    select(dead)
    .where(dead.c.cursor == bindparam("at"), dead.c.key == bindparam("k"))
    .order_by(dead.c.seq)
    .limit(bindparam("most")),
    "at k most",
)
_BEHIND_OF_ID: Final = Statement(
    select(backlog)
    .where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of"),
        backlog.c.id == bindparam("i"),
    )
    .order_by(backlog.c.seq)
    .limit(bindparam("most")),
    "at of i most",
)  # fmt: skip
_HELD_OF: Final = Statement(
    select(held)
    .where(held.c.slot == bindparam("at"), held.c.key == bindparam("k"))
    .order_by(held.c.sequence)
    .limit(bindparam("most")),
    "at k most",
)
_DEAD_FROM: Final = Statement(
    select(dead.c.seq)
    .where(
        dead.c.cursor == bindparam("at"), dead.c.seq >= bindparam("first"),
        dead.c.seq <= bindparam("last"),
    ),
    "at first last",
)  # fmt: skip


def remembered(
    transaction: Transaction, ref: TopicRef, message_id: str | None, now_ms: int
) -> list[Remembered]:
    """The slots that remember an id, or that of its batch."""
    if message_id is None:
        return []
    wanted = [mark for mark in (message_id, batch_mark_of(message_id)) if mark is not None]
    return [
        Remembered(slot, row[0] - ref.topic.dedupe_window_ms)
        for slot in ref.topic.all_slots
        for mark in wanted
        for row in transaction.rows(_MARK, (ref.slot_number(slot), mark, now_ms))
    ]


def spans(transaction: Transaction, ref: TopicRef) -> dict[int, LogSpan]:
    """The part of each slot of a stream that is kept."""
    found = {}
    for at, head, kept in transaction.rows(SLOTS, ref.slot_range()):
        if not ref.is_in_use(at - ref.slot_number(0)):
            continue
        first = head if kept is None else kept
        rows = transaction.rows(IDS, (at, first, 1))
        found[at - ref.slot_number(0)] = LogSpan(first, head, rows[0][2] if rows else None)
    return found


def first_joined(transaction: Transaction, at: int, span: LogSpan, at_ms: int) -> int:
    """The first kept offset that joined a slot's log at a time or later, found by halving."""
    low, high = span.first, span.head
    while low < high:
        middle = (low + high) // 2
        rows = transaction.rows(IDS, (at, middle, 1))
        if not rows or rows[0][2] >= at_ms:
            high = middle
        else:
            low = rows[0][0] + 1
    return low


def dead_of(transaction: Transaction, at: int, sought: Sought, limit: int) -> list[Row]:
    """The dead letters of a cursor that are sought."""
    if sought.offset is not None:
        return transaction.rows(_DEAD_AT, (at, sought.offset))
    if sought.id is not None:
        rows = transaction.rows(_DEAD_OF_ID, (at, sought.id, limit))
    else:
        rows = transaction.rows(_DEAD_OF_KEY, (at, sought.key, limit))
    return [row for row in rows if sought.key is None or row[9] == sought.key]


def behind(
    transaction: Transaction, head: HeadRow, message_id: str | None, limit: int
) -> list[Row]:
    """The rows behind a head: the first ones, or those of an id."""
    rows = transaction.rows(heads.BEHIND, (head.cursor, head.subject, limit))
    if message_id is not None and len(rows) == limit:
        known = {row[2] for row in rows}
        of_id = (head.cursor, head.subject, message_id, limit)
        rows += [row for row in transaction.rows(_BEHIND_OF_ID, of_id) if row[2] not in known]
    return rows


def records_behind(
    ref: TopicRef, group: str, head: HeadRow, rows: Sequence[Row], now_ms: int, *, first: int = 1
) -> Iterator[Record]:
    """The records behind a head, from the `first` one on: the rest of its run is in doing too."""
    state = state_of_head(head, now_ms)
    for number, row in enumerate(rows, start=first):
        stands = state if state != "doing" else "doing" if number < head.given else "todo"
        record = record_behind(ref, group, stands, row)
        if stands == "doing":
            record.held_since_ms, record.lease_until_ms = time_of_token(head.receipt), head.rank
        yield record


def held_of(
    transaction: Transaction, ref: TopicRef, slot: int, key: str, limit: int
) -> Iterator[Record]:
    """The messages of a key that are held behind a gap."""
    for row in transaction.rows(_HELD_OF, (ref.slot_number(slot), key, limit)):
        yield record_of_held(ref, slot, row)


def record_of_held(ref: TopicRef, slot: int, row: Row) -> Record:
    """A message behind a gap, from a row of its table."""
    _, key, sequence, due, priority, message_id, headers, body, at_ms = row
    record = record_of_log(ref, None, slot, "held", (None, message_id, key, headers, body, at_ms))
    record.subject, record.due_ms, record.priority = key, due, priority
    record.error = f"waits for a sequence number before {sequence}"
    record.sequence = sequence
    return record


class SqlLineReader:
    """Where messages of a stream's log stand for groups.

    Args:
        transaction: the transaction.
        ref: the stream.
        groups: the numbers of groups, by name.
        now_ms: the store's now.
    """

    def __init__(
        self, transaction: Transaction, ref: TopicRef, groups: Mapping[str, int], now_ms: int
    ) -> None:
        self._transaction = transaction
        self._ref = ref
        self._groups = groups
        self._now_ms = now_ms
        self._known: dict[int, CursorRow] = {}

    def everywhere(self, slot: int, offset: int) -> Iterator[Record]:
        """The record of a message for each group, wherever it stands."""
        rows = self._transaction.rows(window.READ, (self._ref.slot_number(slot), offset, 1))
        row = rows[0] if rows and rows[0][0] == offset else None
        for name, number in self._groups.items():
            at = self._ref.cursor_number(number, slot)
            head = heads.fetched(self._transaction, at, str(offset))
            if head is not None:
                yield record_of_head(self._ref, name, head, self._now_ms)
                continue
            parked = self._parked(name, at, [row] if row is not None else [])
            if offset in parked:
                yield parked[offset]
                continue
            dead_rows = self._transaction.rows(_DEAD_AT, (at, offset))
            if dead_rows:
                yield record_of_dead(self._ref, name, dead_rows[0])
            elif row is not None:
                yield self.in_line(name, slot, row)
        if row is not None and not self._groups:
            yield record_of_log(self._ref, None, slot, "todo", row)

    def in_line(self, name: str, slot: int, row: Row) -> Record:
        """The record of a message for a group that has it in its line, or has settled it."""
        at = self._ref.cursor_number(self._groups[name], slot)
        cursor = self._known.get(at)
        if cursor is None:
            cursor = CursorRow(*self._transaction.rows(CURSORS, (at, at + 1))[0])
            self._known[at] = cursor
        seq = row[0]
        if seq < cursor.floor or ranges.contains(ranges.load(cursor.settled), seq):
            return record_of_log(self._ref, name, slot, "settled", row)
        if seq >= cursor.read:
            return record_of_log(self._ref, name, slot, "todo", row)
        record = record_of_log(self._ref, name, slot, "doing", row)
        record.lease_until_ms = cursor.lease_until
        record.held_since_ms = time_of_token(cursor.receipt)
        return record

    def page(self, slot: int, rows: Sequence[Row]) -> Iterator[Record]:
        """The records of messages, for each group that has nothing else of them."""
        elsewhere: dict[str, set[int]] = {}
        for name, number in self._groups.items():
            at = self._ref.cursor_number(number, slot)
            texts = [str(row[0]) for row in rows]
            elsewhere[name] = {each.seq for each in whole_heads(self._transaction, {at: texts})}
            elsewhere[name] |= set(self._parked(name, at, rows))
            if rows:
                dead_rows = self._transaction.rows(_DEAD_FROM, (at, rows[0][0], rows[-1][0]))
                elsewhere[name] |= {row[0] for row in dead_rows}
        for row in rows:
            for name in self._groups:
                if row[0] not in elsewhere[name]:
                    yield self.in_line(name, slot, row)
            if not self._groups:
                yield record_of_log(self._ref, None, slot, "todo", row)

    def _parked(self, name: str, at: int, rows: Sequence[Row]) -> dict[int, Record]:
        """The records of what is parked of the keys of some messages, by offset."""
        keys = {row[2] for row in rows if row[2] is not None}
        names = [rules.subject_of_parked(key, 0) for key in sorted(keys)]
        found: dict[int, Record] = {}
        for head in whole_heads(self._transaction, {at: names}) if names else ():
            found[head.seq] = record_of_head(self._ref, name, head, self._now_ms)
            behind = self._transaction.rows(heads.BEHIND, (at, head.subject, EVERYTHING))
            for record in records_behind(self._ref, name, head, behind, self._now_ms):
                found[record.seq or 0] = record
        return found
