"""Counts made row by row: what the audit holds the counts that are told against."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, case, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.records import Stats
from qframe.stores.sql.counts import without_heads
from qframe.stores.sql.schema import HeadState, backlog, dead, subjects
from qframe.stores.sql.topic_ref import TopicRef

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


def counted_by_rows(
    transaction: Transaction, ref: TopicRef, number: int, name: str, now_ms: int,
    slot: int | None = None,
) -> list[Stats]:  # fmt: skip
    """The counts of a group, in each slot or in one, each row of subjects and the dead counted."""
    zero = ref.cursor_number(number, 0)
    span = ref.cursor_range(number) if slot is None else (zero + slot, zero + slot + 1)
    found = without_heads(transaction, ref, number, name, now_ms, slot)
    for at, count in transaction.rows(_DEAD, span):
        if at - zero in found:
            found[at - zero].dead = count
    for at, state, is_due, tried, count, given in transaction.rows(_HEADS, (now_ms, *span)):
        one = found.get(at - zero)
        if one is None:
            continue
        if state == HeadState.DOING:
            # What of a run stands in the backlog is counted there as todo.
            one.doing += int(given)  # a sum is no whole number to every driver
            one.todo -= int(given) - count
        elif state == HeadState.TODO or is_due:
            one.todo += count
        else:
            one.waiting += count
            one.retrying += count if tried else 0
    for at, state, is_due, count in transaction.rows(_BEHIND, (now_ms, *span)):
        one = found.get(at - zero)
        if one is None:
            continue
        if state == HeadState.WAITING and not is_due:
            one.waiting += count
        else:
            one.todo += count
    return [found[slot] for slot in sorted(found)]
