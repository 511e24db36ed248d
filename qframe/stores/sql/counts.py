"""Counts of messages, for each slot and group."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, case, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.records import Stats, unclaimed
from qframe.stores.rules import FRONT
from qframe.stores.sql import ranges
from qframe.stores.sql.cursors import (
    CURSORS,
    GROUPS,
    UNCLAIMED,
    CursorRow,
    known_group,
)
from qframe.stores.sql.schema import (
    HeadState,
    backlog,
    dead,
    held,
    later,
    log,
    slots,
    subjects,
)
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
        func.min(case((_c.due > FRONT, _c.due), else_=_c.published_at)),
    )
    .where(_c.cursor >= bindparam("first"), _c.cursor < bindparam("end"))
    .group_by(_c.cursor, _c.state, "is_due", "tried"),
    "now first end",
)

_JOINED: Final = Statement(
    select(log.c.joined_at)
    .where(log.c.slot == bindparam("at"), log.c.seq >= bindparam("start"))
    .order_by(log.c.seq)
    .limit(1),
    "at start",
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
        select(func.min(later.c.due)).where(later.c.slot == slots.c.slot).scalar_subquery(),
    )
    .where(slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end"))
    .order_by(slots.c.slot),
    "first end",
)  # fmt: skip

_FIRST_KEPT: Final = Statement(
    select(func.min(log.c.seq)).where(log.c.slot == bindparam("at")), "at"
)


def stats(transaction: Transaction, ref: TopicRef, group: str | None) -> list[Stats]:
    """Counts for each group and slot."""
    now_ms = transaction.now_ms()
    rows = transaction.rows(GROUPS, (ref.id,))
    named = [row for row in rows if row[1] != UNCLAIMED]
    if group is not None:
        number = known_group(transaction, ref, group)
        named = [(number, group)]
    if not rows:
        return _unclaimed(transaction, ref)
    found: list[Stats] = []
    for number, name in named or rows:
        found += stats_of(transaction, ref, number, name, now_ms)
    return found


def _unclaimed(transaction: Transaction, ref: TopicRef) -> list[Stats]:
    """The counts of a stream that no group reads yet."""
    found = []
    for at, head, delayed, _, _ in transaction.rows(_SLOTS, ref.slot_range()):
        first = transaction.rows(_FIRST_KEPT, (at,))[0][0]
        kept_from = head if first is None else first
        slot = at - ref.slot_number(0)
        found.append(unclaimed(slot, head=head, first=kept_from, waiting=delayed))
    return found


def stats_of(
    transaction: Transaction, ref: TopicRef, number: int, name: str, now_ms: int,
    slot: int | None = None,
) -> list[Stats]:  # fmt: skip
    """Counts of a group, in each slot or in one."""
    span, slots_span = ref.cursor_range(number), ref.slot_range()
    if slot is not None:
        at, of = ref.cursor_number(number, slot), ref.slot_number(slot)
        span, slots_span = (at, at + 1), (of, of + 1)
    by_slot: dict[int, Stats] = {}
    first = ref.slot_number(0)
    zero = ref.cursor_number(number, 0)
    cursors = {row[0] - zero: CursorRow(*row) for row in transaction.rows(CURSORS, span)}
    since: dict[int, list[int]] = {}
    for at, head, delayed, held_back, joins_at in transaction.rows(_SLOTS, slots_span):
        cursor = cursors[at - first]
        one = by_slot[at - first] = Stats(
            slot=at - first, group=name, epoch=cursor.epoch, waiting=delayed + held_back,
            published=cursor.published + delayed + held_back, settled=cursor.acked,
            cancelled=cursor.cancelled, head=head,
        )  # fmt: skip
        since[at - first] = [joins_at] if joins_at is not None and joins_at <= now_ms else []
        if not ref.topic.has_subjects:
            one.floor = cursor.floor
            one.published += head - cursor.base
            one.todo = head - cursor.read
            settled = ranges.count(ranges.load(cursor.settled))
            one.doing = cursor.read - cursor.floor - settled
            if one.todo:
                rows = transaction.rows(_JOINED, (at, cursor.read))
                since[at - first] += [joined_ms for (joined_ms,) in rows]
    for at, count in transaction.rows(_DEAD, span):
        by_slot[at - zero].dead = count
    heads = transaction.rows(_HEADS, (now_ms, *span))
    for at, state, is_due, tried, count, given, since_ms in heads:
        one = by_slot[at - zero]
        if state == HeadState.DOING:
            # What of a run stands in the backlog is counted there as todo.
            one.doing += int(given)  # a sum is no whole number to every driver
            one.todo -= int(given) - count
        elif state == HeadState.TODO or is_due:
            one.todo += count
            since[at - zero].append(since_ms)
        else:
            one.waiting += count
            one.retrying += count if tried else 0
    for at, state, is_due, count in transaction.rows(_BEHIND, (now_ms, *span)):
        one = by_slot[at - zero]
        if state == HeadState.WAITING and not is_due:
            one.waiting += count
        else:
            one.todo += count
    for place, one in by_slot.items():
        one.next_ms = min(since[place], default=None)
    return [by_slot[place] for place in sorted(by_slot)]
