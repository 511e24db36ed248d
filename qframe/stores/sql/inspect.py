"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, case, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.records import Record, Stats, unclaimed
from qframe.stores.sql import heads, ranges, window
from qframe.stores.sql.heads import Head
from qframe.stores.sql.places import (
    CURSORS,
    EVERYTHING,
    GROUPS,
    UNCLAIMED,
    Cursor,
    Place,
    known_group,
)
from qframe.stores.sql.records import (
    record_behind,
    record_of_dead,
    record_of_head,
    record_of_log,
    state_of_head,
)
from qframe.stores.sql.schema import (
    State,
    backlog,
    dead,
    held,
    is_there,
    later,
    log,
    slots,
    subjects,
)

_c = subjects.c
_HEADS: Final = Statement(
    select(
        _c.cursor,
        _c.state,
        case((_c.due <= bindparam("now"), 1), else_=0).label("is_due"),
        case((_c.tries > 0, 1), else_=0).label("tried"),
        func.count(),
        func.sum(_c.given),
    )
    .where(_c.cursor >= bindparam("first"), _c.cursor < bindparam("end"))
    .group_by(_c.cursor, _c.state, "is_due", "tried"),
    "now first end",
)
_NEXT: Final = Statement(
    select(_c.published_at)
    .where(_c.cursor == bindparam("at"), _c.state != State.DOING, _c.due <= bindparam("now"))
    .order_by(-_c.priority, _c.due, _c.seq)
    .limit(1),
    "at now",
)
_BEHIND: Final = Statement(
    select(
        _c.cursor,
        _c.state,
        case((_c.due <= bindparam("now"), 1), else_=0).label("is_due"),
        func.count(),
    )
    .select_from(
        subjects.join(backlog, (backlog.c.cursor == _c.cursor) & (backlog.c.subject == _c.subject))
    )
    .where(_c.cursor >= bindparam("first"), _c.cursor < bindparam("end"))
    .group_by(_c.cursor, _c.state, "is_due"),
    "now first end",
)
_DEAD: Final = Statement(
    select(dead.c.cursor, func.count())
    .where(dead.c.cursor >= bindparam("first"), dead.c.cursor < bindparam("end"))
    .group_by(dead.c.cursor),
    "first end",
)
_SLOTS: Final = Statement(
    select(
        slots.c.slot,
        slots.c.head,
        select(func.count()).select_from(later).where(later.c.slot == slots.c.slot)
        .scalar_subquery(),
        select(func.count()).select_from(held).where(held.c.slot == slots.c.slot)
        .scalar_subquery(),
    )
    .where(slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end"))
    .order_by(slots.c.slot),
    "first end",
)  # fmt: skip
_FIRST_KEPT: Final = Statement(
    select(func.min(log.c.seq)).where(log.c.slot == bindparam("at")), "at"
)
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


def stats(transaction: Transaction, place: Place, group: str | None) -> list[Stats]:
    """Counts for each group and slot."""
    now_ms = transaction.now_ms()
    rows = transaction.rows(GROUPS, (place.id,))
    named = [row for row in rows if row[1] != UNCLAIMED]
    if group is not None:
        number = known_group(transaction, place, group)
        named = [(number, group)]
    if not rows:
        return _unclaimed(transaction, place)
    found: list[Stats] = []
    for number, name in named or rows:
        found += _stats_of(transaction, place, number, name, now_ms)
    return found


def _unclaimed(transaction: Transaction, place: Place) -> list[Stats]:
    """The counts of a stream that no group reads yet."""
    found = []
    for at, head, delayed, _ in transaction.rows(_SLOTS, place.slot_range()):
        first = transaction.rows(_FIRST_KEPT, (at,))[0][0]
        kept_from = head if first is None else first
        slot = at - place.slot_number(0)
        found.append(unclaimed(slot, head=head, first=kept_from, waiting=delayed))
    return found


def _first(rows: Sequence[Any], column: int) -> Any:
    """What the first row says, if there is one: it may have gone since it was counted."""
    return rows[0][column] if rows else None


def _stats_of(
    transaction: Transaction, place: Place, number: int, name: str, now_ms: int
) -> list[Stats]:
    span = place.cursor_range(number)
    by_slot: dict[int, Stats] = {}
    first = place.slot_number(0)
    cursors = {row[0] - span[0]: Cursor(*row) for row in transaction.rows(CURSORS, span)}
    for at, head, delayed, held_back in transaction.rows(_SLOTS, place.slot_range()):
        cursor = cursors[at - first]
        one = by_slot[at - first] = Stats(
            slot=at - first, group=name, epoch=cursor.epoch, waiting=delayed + held_back,
            published=cursor.published + delayed + held_back, settled=cursor.acked,
            cancelled=cursor.cancelled, head=head,
        )  # fmt: skip
        if not place.topic.has_subjects:
            one.floor = cursor.floor
            one.published += head - cursor.base
            one.todo = head - cursor.read
            settled = ranges.count(ranges.load(cursor.settled))
            one.doing = cursor.read - cursor.floor - settled
            if one.todo:
                one.next_ms = _first(transaction.rows(window.READ, (at, cursor.read, 1)), 5)
    for at, count in transaction.rows(_DEAD, span):
        by_slot[at - span[0]].dead = count
    for at, state, is_due, tried, count, given in transaction.rows(_HEADS, (now_ms, *span)):
        one = by_slot[at - span[0]]
        if state == State.DOING:
            # What of a run stands in the backlog is counted there as todo.
            one.doing += int(given)  # a sum is no whole number to every driver
            one.todo -= int(given) - count
        elif state == State.TODO or is_due:
            one.todo += count
            one.next_ms = _first(transaction.rows(_NEXT, (at, now_ms)), 0)
        else:
            one.waiting += count
            one.retrying += count if tried else 0
    for at, state, is_due, count in transaction.rows(_BEHIND, (now_ms, *span)):
        one = by_slot[at - span[0]]
        if state == State.WAITING and not is_due:
            one.waiting += count
        else:
            one.todo += count
    return [by_slot[slot] for slot in sorted(by_slot)]


def peek(
    transaction: Transaction,
    place: Place,
    group: str,
    states: Sequence[str],
    limit: int,
) -> list[Record]:
    """Messages that stand in one of these states, slot by slot, next ones first."""
    now_ms = transaction.now_ms()
    number = known_group(transaction, place, group)
    found: list[Record] = []
    for slot in range(place.topic.slots):
        for record in _records(transaction, place, number, group, slot, limit, now_ms):
            if len(found) >= limit:
                return found
            if record.state in states:
                found.append(record)
    return found


def _records(
    transaction: Transaction,
    place: Place,
    number: int,
    group: str,
    slot: int,
    limit: int,
    now_ms: int,
) -> Iterator[Record]:
    """A slot's messages, up to `limit` of each sort: doing, todo, waiting, held, dead."""
    at = place.cursor_number(number, slot)
    if not place.topic.has_subjects:
        row = transaction.rows(CURSORS, (at, at + 1))[0]
        cursor = Cursor(*row)
        settled = ranges.load(cursor.settled)
        for line in transaction.rows(
            window.READ, (place.slot_number(slot), cursor.floor, cursor.read - cursor.floor)
        ):
            if not ranges.contains(settled, line[0]):
                yield record_of_log(place, group, slot, "doing", line)
    for state in (State.DOING, State.TODO, State.WAITING):
        for row in transaction.rows(_STANDING, (at, state, limit)):
            yield from _with_behind(transaction, place, group, Head(*row), limit, now_ms)
        if state == State.TODO and not place.topic.has_subjects:
            for line in transaction.rows(
                window.READ, (place.slot_number(slot), cursor.read, limit)
            ):
                yield record_of_log(place, group, slot, "todo", line)
    yield from _kept_back(transaction, place, slot, limit)
    for row in transaction.rows(_DEAD_OF, (at, limit)):
        yield record_of_dead(place, group, row)


def _with_behind(
    transaction: Transaction, place: Place, group: str, head: Head, limit: int, now_ms: int
) -> Iterator[Record]:
    yield record_of_head(place, group, head, now_ms)
    if not head.behind:
        return
    state = state_of_head(head, now_ms)
    rows = transaction.rows(heads.BEHIND, (head.cursor, head.subject, limit))
    for number, row in enumerate(rows, start=1):
        stands = state if state != "doing" else "doing" if number < head.given else "todo"
        yield record_behind(place, group, stands, row)


def _kept_back(transaction: Transaction, place: Place, slot: int, limit: int) -> Iterator[Record]:
    """What no group has seen yet: delayed before a stream, held behind gaps."""
    at = place.slot_number(slot)
    for row in transaction.rows(_LATER, (at, limit)):
        record = record_of_log(place, None, slot, "waiting", (None, *row[3:]))
        record.due_ms = row[2]
        yield record
    for _, key, sequence, due, priority, message_id, headers, body, at_ms in transaction.rows(
        _HELD, (at, limit)
    ):
        record = record_of_log(
            place, None, slot, "held", (None, message_id, key, headers, body, at_ms)
        )
        record.subject, record.due_ms, record.priority = key, due, priority
        record.error = f"waits for a sequence number before {sequence}"
        yield record


def explain(transaction: Transaction, place: Place, message_id: str) -> list[Record]:
    """Where a message stands now: a record for each place."""
    now_ms = transaction.now_ms()
    found: list[Record] = []
    for number, name in transaction.rows(GROUPS, (place.id,)):
        span = place.cursor_range(number)
        rows = transaction.rows(_FIND[subjects.name], (*span, message_id))
        found += [record_of_head(place, name, Head(*row), now_ms) for row in rows]
        for row in transaction.rows(_FIND[backlog.name], (*span, message_id)):
            head = heads.fetched(transaction, row[0], row[1])
            found += (
                [
                    record
                    for record in _with_behind(transaction, place, name, head, EVERYTHING, now_ms)
                    if record.seq == row[2]
                ]
                if head is not None
                else []
            )
        rows = transaction.rows(_FIND[dead.name], (*span, message_id))
        found += [record_of_dead(place, name, row) for row in rows]
        found += _in_log(transaction, place, number, name, message_id)
    span = place.slot_range()
    if not found:
        for row in transaction.rows(_FIND[log.name], (*span, message_id)):
            found.append(record_of_log(place, None, row[0] - span[0], "todo", row[1:]))
    for slot in range(place.topic.slots):
        found += [
            record
            for record in _kept_back(transaction, place, slot, EVERYTHING)
            if record.id == message_id
        ]
    return found


def _in_log(
    transaction: Transaction, place: Place, number: int, name: str, message_id: str
) -> list[Record]:
    """A stream's message in the line of a group: settled, handed out, or still to come."""
    found = []
    first = place.slot_number(0)
    for row in transaction.rows(_FIND[log.name], (*place.slot_range(), message_id)):
        slot, seq = row[0] - first, row[1]
        at = place.cursor_number(number, slot)
        cursor = Cursor(*transaction.rows(CURSORS, (at, at + 1))[0])
        if heads.fetched(transaction, at, str(seq)) is not None:
            continue
        if any(each[1] == seq for each in transaction.rows(_DEAD_OF, (at, EVERYTHING))):
            continue
        state = "todo"
        if seq < cursor.floor or ranges.contains(ranges.load(cursor.settled), seq):
            state = "settled"
        elif seq < cursor.read:
            state = "doing"
        found.append(record_of_log(place, name, slot, state, row[1:]))
    return found
