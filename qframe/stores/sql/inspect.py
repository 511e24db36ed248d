"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import bindparam, select
from typing_extensions import override

from qframe.codec import time_of_token
from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.base import Inspecting
from qframe.stores.faults import sentences
from qframe.stores.records import Record, Stats
from qframe.stores.sql import heads, ranges, window
from qframe.stores.sql.audit import verify
from qframe.stores.sql.counts import stats
from qframe.stores.sql.cursors import (
    CURSORS,
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
    dead,
    held,
    is_there,
    later,
    subjects,
)
from qframe.stores.sql.search_rows import (
    record_of_held,
    records_behind,
)
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
        cursor = CursorRow(*transaction.rows(CURSORS, (at, at + 1))[0])
        for line in _unsettled(transaction, ref, cursor, limit):
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


def _unsettled(transaction: Transaction, ref: TopicRef, cursor: CursorRow, limit: int) -> list[Row]:
    """The first messages of a stream's line that are in doing.

    Behind one slow message there may be millions that are settled: they are not read.
    """
    at, found = ref.slot_number(cursor.slot), list[Row]()
    for first, end in ranges.gaps(cursor.floor, cursor.read, ranges.load(cursor.settled)):
        if (most := min(end - first, limit - len(found))) <= 0:
            break
        found += [row for row in transaction.rows(window.READ, (at, first, most)) if row[0] < end]
    return found


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
    for row in transaction.rows(_HELD, (at, limit)):
        yield record_of_held(ref, slot, row)
