"""Reading a topic section by section, and writing it down as it stood in another store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Table, bindparam, func, select
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.acts import Copying
from qframe.stores.positions import MemoryPage, Position
from qframe.stores.records import Record, Section
from qframe.stores.searching import PASSED_MS, RESTORED
from qframe.stores.sql import arrivals, heads, ranges
from qframe.stores.sql.cursors import CLOSED, cursors_of, known_group, lock_heads, lock_slots
from qframe.stores.sql.growing import opened, turned, use_token
from qframe.stores.sql.parking import max_parked_of
from qframe.stores.sql.publish import LAST_DELAYED
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import (
    HeadState,
    backlog,
    cursors,
    dead,
    held,
    later,
    log,
    marks,
    sequences,
    subjects,
)
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Kind, Topic


def _removed(table: Table, *key: str) -> Statement:
    """Removes the row of a key."""
    return Statement(
        table.delete().where(*(table.c[name] == bindparam(f"of_{name}") for name in key)),
        " ".join(f"of_{name}" for name in key),
    )


def _added(table: Table) -> Statement:
    """Adds a row."""
    return Statement(table.insert(), " ".join(column.name for column in table.c))


_LAST_JOINED: Final = Statement(
    select(func.max(log.c.joined_at)).where(log.c.slot == bindparam("at")), "at"
)
_APPEND: Final = _added(log)
_NO_HEAD: Final = _removed(subjects, "cursor", "subject")
_NOT_BEHIND: Final = _removed(backlog, "cursor", "subject", "seq")
_SOME_HEADS: Final = Statement(
    select(subjects.c.seq)
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.subject >= bindparam("least"), subjects.c.subject <= bindparam("most"),
    )
    .limit(1),
    "at least most",
)  # fmt: skip
_SOME_BEHIND: Final = Statement(
    select(backlog.c.seq)
    .where(
        backlog.c.cursor == bindparam("at"),
        backlog.c.subject >= bindparam("least"), backlog.c.subject <= bindparam("most"),
        backlog.c.seq >= bindparam("first"), backlog.c.seq <= bindparam("last"),
    )
    .limit(1),
    "at least most first last",
)  # fmt: skip
_NOT_DEAD: Final = _removed(dead, "cursor", "seq")
_NOT_HELD: Final = _removed(held, "slot", "key", "sequence")
_HOLD: Final = _added(held)
_DELAYED: Final = Statement(
    select(later.c.number).where(
        later.c.slot == bindparam("at"), later.c.due == bindparam("d"), later.c.id == bindparam("i")
    ),
    "at d i",
)
_DELAY: Final = _added(later)
_SET_POSITION: Final = Statement(
    cursors.update()
    .where(cursors.c.cursor == bindparam("at"))
    .values(
        floor=bindparam("f"), read=bindparam("r"), base=bindparam("b"), settled=bindparam("s"),
        receipt=bindparam("t"), lease_until=bindparam("l"), published=bindparam("p"),
        acked=bindparam("a"), cancelled=bindparam("c"),
    ),
    "f r b s t l p a c at",
)  # fmt: skip
_FORGET: Final = {
    "marks": _removed(marks, "slot", "mark"),
    "sequences": _removed(sequences, "slot", "key"),
}
_REMEMBER: Final = {"marks": _added(marks), "sequences": _added(sequences)}


def _memory_page(table: Table, name: str, value: str) -> Statement:
    """A page of what a slot remembers."""
    columns = table.c
    query = select(columns[name], columns[value]).where(
        columns.slot == bindparam("at"), columns[name] > bindparam("behind")
    )
    return Statement(query.order_by(columns[name]).limit(bindparam("most")), "at behind most")


_REMEMBERED: Final = {
    "marks": _memory_page(marks, "mark", "expires"),
    "sequences": _memory_page(sequences, "key", "next"),
}


class SqlCopying(SqlRole, Copying):
    """Rows as they are."""

    @override
    def restore(
        self, topic: Topic, section: Section, records: Sequence[Record], token: str | None = None
    ) -> None:
        return self._run(token)(topic, restore, section, records, token)

    @override
    def positions(self, topic: Topic, group: str) -> list[Position]:
        return self._read(topic, positions, group)

    @override
    def restore_positions(
        self, topic: Topic, group: str, positions: Sequence[Position], token: str | None = None
    ) -> None:
        return self._run(token)(topic, restore_positions, group, positions, token)

    @override
    def remembered(
        self, topic: Topic, slot: int, what: str, after: str = "", limit: int = 1000
    ) -> MemoryPage:
        return self._read(topic, remembered, slot, what, after, limit)

    @override
    def remember(
        self, topic: Topic, slot: int, *, marks: Mapping[str, int] | None = None,
        sequences: Mapping[str, int] | None = None, head: int = 0, token: str | None = None,
    ) -> None:  # fmt: skip
        values = {"marks": marks or {}, "sequences": sequences or {}}
        return self._run(token)(topic, remember, slot, values, head, token)

    def _run(self, token: str | None) -> Callable[..., None]:
        """How an operation is run: whoever has lost the slot to another need not wait."""
        return self._write if token is None else self._write_at_once


def restore(
    transaction: Transaction, ref: TopicRef, section: Section, records: Sequence[Record],
    token: str | None,
) -> None:  # fmt: skip
    """Writes down messages of a section."""
    next_number = _lock(transaction, ref, [section.slot], token)[section.slot]
    at = ref.slot_number(section.slot)
    if section.part == "line":
        if (end := _append(transaction, at, next_number, records)) > next_number:
            _set_head(transaction, at, end, token)
    elif section.part == "later":
        _delay(transaction, at, records)
    elif section.part == "held":
        _hold(transaction, at, records)
    else:
        cursor = ref.cursor_number(known_group(transaction, ref, section.group), section.slot)
        if section.part == "heads":
            _queue(transaction, ref.topic.kind, cursor, records)
        elif section.part == "behind":
            _queue_behind(transaction, cursor, records)
        else:
            _bury(transaction, cursor, records)


def _lock(
    transaction: Transaction, ref: TopicRef, wanted: Sequence[int], token: str | None
) -> dict[int, int]:
    """Locks slots, which use their token up where one is given; returns their next numbers."""
    if token is None:
        return lock_slots(transaction, ref, wanted)
    heads = lock_heads(transaction, ref, wanted)
    for slot in wanted:
        use_token(transaction, ref, slot, token)
    return {slot: opened(head) for slot, head in heads.items()}


def _set_head(transaction: Transaction, at: int, head: int, token: str | None) -> None:
    transaction.run(arrivals.SET_HEAD, (head if token is None else turned(head), at))


def _envelope(record: Record) -> Row:
    return (
        record.id, record.key, heads.headers_text(record.headers), record.body,
        record.published_at_ms,
    )  # fmt: skip


def _append(transaction: Transaction, at: int, head: int, records: Sequence[Record]) -> int:
    """Appends what the log has not, in which times of joining grow; returns its next offset."""
    new = [record for record in records if (record.seq or 0) >= head]
    if not new:
        return head
    joined = transaction.rows(_LAST_JOINED, (at,))[0][0] or 0
    now_ms = transaction.now_ms()
    rows = []
    for record in new:
        joined = max(joined, min(record.published_at_ms, now_ms))
        rows.append((at, record.seq, *_envelope(record), joined))
    transaction.run_many(_APPEND, rows)
    return (new[-1].seq or 0) + 1


def _delay(transaction: Transaction, at: int, records: Sequence[Record]) -> None:
    number = transaction.rows(LAST_DELAYED, (at,))[0][0]
    number = 0 if number is None else number + 1
    for record in records:
        if transaction.row(_DELAYED, (at, record.due_ms, record.id)) is None:
            transaction.run(_DELAY, (at, number, record.due_ms, *_envelope(record)))
            number += 1


def _hold(transaction: Transaction, at: int, records: Sequence[Record]) -> None:
    keys = [(at, record.subject, record.sequence) for record in records]
    transaction.run_many(_NOT_HELD, keys)
    rows = [
        (*key, record.due_ms, record.priority, record.id, heads.headers_text(record.headers),
         record.body, record.published_at_ms)
        for key, record in zip(keys, records, strict=True)
    ]  # fmt: skip
    transaction.run_many(_HOLD, rows)


def _queue(transaction: Transaction, kind: Kind, cursor: int, records: Sequence[Record]) -> None:
    now_ms = transaction.now_ms()
    rows = []
    for record in records:
        due_ms = record.due_ms or 0
        state, rank = heads.position_of(kind, due_ms, record.priority, now_ms)
        receipt, given = None, 0
        if record.state == "doing":
            state, rank = HeadState.DOING, PASSED_MS
            receipt, given = RESTORED, max(1, record.given)
        rows.append(
            (cursor, record.subject, state, rank, due_ms, record.seq, record.priority, receipt,
             record.attempts, record.lost, given, 0, record.last_words, *_envelope(record))
        )  # fmt: skip
    subjects_here = [record.subject or "" for record in records]
    # A page that nobody has written before, as nearly all are, has nothing to be written over.
    if transaction.row(_SOME_HEADS, (cursor, min(subjects_here), max(subjects_here))) is not None:
        transaction.run_many(_NO_HEAD, [row[:2] for row in rows])
    transaction.run_many(heads.INSERT, rows)


def _queue_behind(transaction: Transaction, cursor: int, records: Sequence[Record]) -> None:
    rows = [
        (cursor, record.subject, record.seq, record.due_ms, record.priority, *_envelope(record))
        for record in records
    ]
    names, numbers = [row[1] or "" for row in rows], [row[2] or 0 for row in rows]
    span = min(names), max(names), min(numbers), max(numbers)
    if transaction.row(_SOME_BEHIND, (cursor, *span)) is not None:
        transaction.run_many(_NOT_BEHIND, [row[:3] for row in rows])
    transaction.run_many(heads.ADD_BEHIND, rows)
    transaction.run_many(arrivals.HAS_BEHIND, sorted({row[:2] for row in rows}))


def _bury(transaction: Transaction, cursor: int, records: Sequence[Record]) -> None:
    rows = [
        (cursor, one.seq or 0, one.subject, one.priority, one.attempts, one.error, one.traceback,
         one.died_at_ms or 0, *_envelope(one))
        for one in records
    ]  # fmt: skip
    transaction.run_many(_NOT_DEAD, [row[:2] for row in rows])
    transaction.run_many(heads.ADD_DEAD, rows)


def positions(transaction: Transaction, ref: TopicRef, group: str) -> list[Position]:
    """How far a group is, for each slot."""
    found = cursors_of(transaction, ref, known_group(transaction, ref, group))
    return [
        Position(
            slot=slot, floor=one.floor, read=one.read, base=one.base,
            settled=ranges.load(one.settled), published=one.published, acked=one.acked,
            cancelled=one.cancelled, max_parked=max_parked_of(transaction, one.cursor),
            receipt=one.receipt, lease_until_ms=one.lease_until,
        )
        for slot, one in sorted(found.items())
    ]  # fmt: skip


def restore_positions(
    transaction: Transaction, ref: TopicRef, group: str, positions: Sequence[Position],
    token: str | None,
) -> None:  # fmt: skip
    """Writes down how far a group is."""
    _lock(transaction, ref, [one.slot for one in positions], token)
    number = known_group(transaction, ref, group)
    nothing = None, 0 if token is None else CLOSED
    rows: list[tuple[Any, ...]] = []
    for one in positions:
        is_open = token is None and one.floor < one.read
        window = (RESTORED, PASSED_MS) if is_open else nothing
        rows.append(
            (one.floor, one.read, one.base, ranges.dump(one.settled), *window, one.published,
             one.acked, one.cancelled, ref.cursor_number(number, one.slot))
        )  # fmt: skip
    transaction.run_many(_SET_POSITION, rows)


def remembered(
    transaction: Transaction, ref: TopicRef, slot: int, what: str, after: str, limit: int
) -> MemoryPage:
    """A part of what a slot remembers."""
    rows = transaction.rows(_REMEMBERED[what], (ref.slot_number(slot), after, limit))
    return MemoryPage(dict(rows), rows[-1][0] if len(rows) == limit else None)


def remember(
    transaction: Transaction, ref: TopicRef, slot: int, values: Mapping[str, Mapping[str, int]],
    head: int, token: str | None,
) -> None:  # fmt: skip
    """Writes down what a slot remembers, and its next number."""
    at = ref.slot_number(slot)
    if head > _lock(transaction, ref, [slot], token)[slot]:
        _set_head(transaction, at, head, token)
    for what, pairs in values.items():
        transaction.run_many(_FORGET[what], [(at, name) for name in pairs])
        transaction.run_many(_REMEMBER[what], [(at, *pair) for pair in pairs.items()])
