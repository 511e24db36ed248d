"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import bindparam, select
from typing_extensions import override

from qframe.codec import time_of_token
from qframe.drivers.sql import Statement, Transaction
from qframe.stores.base import Inspecting
from qframe.stores.faults import sentences
from qframe.stores.records import Record, Stats
from qframe.stores.sql import heads, ranges, window
from qframe.stores.sql.audit import verify
from qframe.stores.sql.counts import stats
from qframe.stores.sql.cursors import (
    CURSORS,
    EVERYTHING,
    GROUPS,
    CursorRow,
    known_group,
)
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.records import (
    record_of_dead,
    record_of_delayed,
    record_of_head,
    record_of_log,
)
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import (
    HeadState,
    backlog,
    dead,
    held,
    is_there,
    later,
    log,
    subjects,
)
from qframe.stores.sql.search_rows import records_behind
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_c = subjects.c
_STANDING: Final = Statement(
    select(subjects)
    .where(_c.cursor == bindparam("at"), _c.state == bindparam("standing"), is_there(_c.state))
    .order_by(_c.rank, _c.due, _c.seq)
    .limit(bindparam("most")),
    "at standing most",
)
_DEAD_OF: Final = Statement(
    select(dead).where(dead.c.cursor == bindparam("at")).order_by(dead.c.seq)
    .limit(bindparam("most")),
    "at most",
)  # fmt: skip
_LATER: Final = Statement(
    select(later).where(later.c.slot == bindparam("at")).order_by(later.c.due, later.c.id)
    .limit(bindparam("most")),
    "at most",
)  # fmt: skip
_HELD: Final = Statement(
    select(held).where(held.c.slot == bindparam("at")).order_by(held.c.key, held.c.sequence)
    .limit(bindparam("most")),
    "at most",
)  # fmt: skip
_FIND: Final = {
    table.name: Statement(
        select(table).where(
            column >= bindparam("first"), column < bindparam("end"), table.c.id == bindparam("i")
        ),
        "first end i",
    )
    for table, column in (
        (subjects, subjects.c.cursor),
        (backlog, backlog.c.cursor),
        (dead, dead.c.cursor),
        (log, log.c.slot),
        (later, later.c.slot),
        (held, held.c.slot),
    )
}


class SqlInspecting(SqlRole, Inspecting):
    """Counts, records and the audit."""

    @override
    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        return self._read(topic, stats, group)

    @override
    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        return self._read(topic, peek, group, states, limit)

    @override
    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        return self._read(topic, explain, message_id)

    @override
    def verify(self, topic: Topic) -> list[str]:
        return sentences(self._read(topic, verify))

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._database.read_autocommit(lambda it: it.now_ms())


def peek(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    states: Sequence[str],
    limit: int,
) -> list[Record]:
    """Messages that stand in one of these states, slot by slot, next ones first."""
    now_ms = transaction.now_ms()
    number = known_group(transaction, ref, group)
    found: list[Record] = []
    for slot in ref.topic.all_slots:
        for record in _records(transaction, ref, number, group, slot, limit, now_ms):
            if len(found) >= limit:
                return found
            if record.state in states:
                found.append(record)
    return found


def _records(
    transaction: Transaction,
    ref: TopicRef,
    number: int,
    group: str,
    slot: int,
    limit: int,
    now_ms: int,
) -> Iterator[Record]:
    """A slot's messages, up to `limit` of each sort: doing, todo, waiting, held, dead."""
    at = ref.cursor_number(number, slot)
    if not ref.topic.has_subjects:
        row = transaction.rows(CURSORS, (at, at + 1))[0]
        cursor = CursorRow(*row)
        settled = ranges.load(cursor.settled)
        for line in transaction.rows(
            window.READ, (ref.slot_number(slot), cursor.floor, cursor.read - cursor.floor)
        ):
            if not ranges.contains(settled, line[0]):
                record = record_of_log(ref, group, slot, "doing", line)
                record.lease_until_ms = cursor.lease_until
                record.held_since_ms = time_of_token(cursor.receipt)
                yield record
    for state in (HeadState.DOING, HeadState.TODO, HeadState.WAITING):
        for row in transaction.rows(_STANDING, (at, state, limit)):
            yield from _with_behind(transaction, ref, group, HeadRow(*row), limit, now_ms)
        if state == HeadState.TODO and not ref.topic.has_subjects:
            for line in transaction.rows(window.READ, (ref.slot_number(slot), cursor.read, limit)):
                yield record_of_log(ref, group, slot, "todo", line)
    yield from _kept_back(transaction, ref, slot, limit)
    for row in transaction.rows(_DEAD_OF, (at, limit)):
        yield record_of_dead(ref, group, row)


def _with_behind(
    transaction: Transaction, ref: TopicRef, group: str, head: HeadRow, limit: int, now_ms: int
) -> Iterator[Record]:
    yield record_of_head(ref, group, head, now_ms)
    if not head.behind:
        return
    rows = transaction.rows(heads.BEHIND, (head.cursor, head.subject, limit))
    yield from records_behind(ref, group, head, rows, now_ms)


def _kept_back(transaction: Transaction, ref: TopicRef, slot: int, limit: int) -> Iterator[Record]:
    """Messages that no group has seen yet: delayed before a stream, held behind gaps."""
    at = ref.slot_number(slot)
    for row in transaction.rows(_LATER, (at, limit)):
        yield record_of_delayed(ref, slot, row)
    for _, key, sequence, due, priority, message_id, headers, body, at_ms in transaction.rows(
        _HELD, (at, limit)
    ):
        record = record_of_log(
            ref, None, slot, "held", (None, message_id, key, headers, body, at_ms)
        )
        record.subject, record.due_ms, record.priority = key, due, priority
        record.sequence = sequence
        record.error = f"waits for a sequence number before {sequence}"
        yield record


def explain(transaction: Transaction, ref: TopicRef, message_id: str) -> list[Record]:
    """Where a message stands now: a record for each place."""
    now_ms = transaction.now_ms()
    found: list[Record] = []
    for number, name in transaction.rows(GROUPS, (ref.id,)):
        span = ref.cursor_range(number)
        rows = transaction.rows(_FIND[subjects.name], (*span, message_id))
        found += [record_of_head(ref, name, HeadRow(*row), now_ms) for row in rows]
        for row in transaction.rows(_FIND[backlog.name], (*span, message_id)):
            head = heads.fetched(transaction, row[0], row[1])
            found += (
                [
                    record
                    for record in _with_behind(transaction, ref, name, head, EVERYTHING, now_ms)
                    if record.seq == row[2]
                ]
                if head is not None
                else []
            )
        rows = transaction.rows(_FIND[dead.name], (*span, message_id))
        found += [record_of_dead(ref, name, row) for row in rows]
        found = [record for record in found if ref.is_in_use(record.slot)]
        mine = {(record.slot, record.seq) for record in found if record.group == name}
        found += [
            record for record in _in_log(transaction, ref, number, name, message_id)
            if (record.slot, record.seq) not in mine
        ]  # fmt: skip
    span = ref.slot_range()
    if not found:
        for row in transaction.rows(_FIND[log.name], (*span, message_id)):
            slot = row[0] - ref.slot_number(0)
            if ref.is_in_use(slot):
                found.append(record_of_log(ref, None, slot, "todo", row[1:]))
    for slot in ref.topic.all_slots:
        found += [
            record
            for record in _kept_back(transaction, ref, slot, EVERYTHING)
            if record.id == message_id
        ]
    return found


def _in_log(
    transaction: Transaction, ref: TopicRef, number: int, name: str, message_id: str
) -> list[Record]:
    """A stream's message in the line of a group: settled, handed out, or still to come."""
    found = []
    first = ref.slot_number(0)
    for row in transaction.rows(_FIND[log.name], (*ref.slot_range(), message_id)):
        slot, seq = row[0] - first, row[1]
        if not ref.is_in_use(slot):
            continue
        at = ref.cursor_number(number, slot)
        cursor = CursorRow(*transaction.rows(CURSORS, (at, at + 1))[0])
        if heads.fetched(transaction, at, str(seq)) is not None:
            continue
        if any(each[1] == seq for each in transaction.rows(_DEAD_OF, (at, EVERYTHING))):
            continue
        state = "todo"
        if seq < cursor.floor or ranges.contains(ranges.load(cursor.settled), seq):
            state = "settled"
        elif seq < cursor.read:
            state = "doing"
        record = record_of_log(ref, name, slot, state, row[1:])
        if state == "doing":
            record.lease_until_ms = cursor.lease_until
            record.held_since_ms = time_of_token(cursor.receipt)
        found.append(record)
    return found
