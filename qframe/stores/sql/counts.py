"""Counts of messages, for each slot and group, whose cost does not grow with what waits.

The cursor of a group knows how many messages its queue has got and how many have left it, so the
number that stands there follows by subtraction. Few are in doing, and those are counted. The rest
is divided: of what is not due yet (`waiting`) and what is due (`todo`), the smaller part is counted
through the index, and the other part is what remains. Each part is counted up to a limit that
grows until one of them ends before it. So the cost grows with the smaller part, with the dead, and
with the backlogs behind the heads that are counted.

`row_counts` counts all of it row by row, and the audit holds the cursors against that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, case, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.records import Stats, unclaimed
from qframe.stores.rules import FRONT, RANKED
from qframe.stores.sql.cursors import (
    CURSORS,
    EVERYTHING,
    GROUPS,
    UNCLAIMED,
    CursorRow,
    known_group,
)
from qframe.stores.sql.schema import (
    HeadState,
    backlog,
    cursors,
    dead,
    held,
    is_there,
    later,
    log,
    slot_head,
    slots,
    subjects,
)
from qframe.stores.sql.topic_ref import TopicRef

_AT_FIRST: Final = 1000
_GROWS: Final = 8
_MOST_RANKS: Final = 16

_c = subjects.c
_BEHIND_IT: Final = (
    select(func.count())
    .select_from(backlog)
    .where(backlog.c.cursor == _c.cursor, backlog.c.subject == _c.subject)
    .scalar_subquery()
)


def _of_cursor(column: ColumnElement[Any], state: HeadState) -> Select[Any]:
    """A column of the heads of a cursor that stand in a state."""
    return select(column).where(
        _c.cursor == cursors.c.cursor, _c.state == state, is_there(_c.state)
    )


def _first_waiting(state: HeadState, rank: Any) -> list[Any]:
    """Since when heads of a rank wait: the first by its time; those in front since published."""
    return [
        _of_cursor(_c.due, state)
        .where(_c.rank == rank, _c.due > FRONT, _c.due <= bindparam("now"))
        .order_by(_c.due, _c.seq)
        .limit(1)
        .scalar_subquery(),
        _of_cursor(func.min(_c.published_at), state)
        .where(_c.rank == rank, _c.due <= FRONT)
        .scalar_subquery(),
    ]


_STANDING: Final = Statement(
    select(
        cursors.c.cursor,
        select(func.count()).select_from(dead).where(dead.c.cursor == cursors.c.cursor)
        .scalar_subquery(),
        _of_cursor(func.count(), HeadState.DOING).scalar_subquery(),
        _of_cursor(func.sum(_c.given), HeadState.DOING).scalar_subquery(),
        _of_cursor(func.count(), HeadState.WAITING)
        .where(_c.rank == 0, _c.due > bindparam("now"), _c.tries > 0)
        .scalar_subquery(),
        *_first_waiting(HeadState.WAITING, 0),
    )
    .where(cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end")),
    "now now first end",
)  # fmt: skip

_LAST_RANK: Final = Statement(
    select(
        func.max(
            _of_cursor(_c.rank, HeadState.TODO)
            .where(_c.rank < bindparam("rank"))
            .order_by(_c.rank.desc())
            .limit(1)
            .scalar_subquery()
        )
    ).where(cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end")),
    "rank first end",
)

_FIRST_OF_RANK: Final = Statement(
    select(cursors.c.cursor, *_first_waiting(HeadState.TODO, bindparam("rank"))).where(
        cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end")
    ),
    "rank now rank first end",
)

_JOINED: Final = Statement(
    select(
        cursors.c.cursor,
        select(log.c.joined_at)
        .where(log.c.slot == cursors.c.cursor - bindparam("ahead"), log.c.seq >= cursors.c.read)
        .order_by(log.c.seq)
        .limit(1)
        .scalar_subquery(),
    ).where(cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end")),
    "ahead first end",
)  # fmt: skip

_SLOTS: Final = Statement(
    select(
        slots.c.slot,
        slot_head,
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


class _HeadCount(NamedTuple):
    """How many heads a part has, up to a limit, and how many messages are behind them."""

    heads: int
    behind: int

    @property
    def messages(self) -> int:
        """Heads, and what is behind them."""
        return self.heads + self.behind


def _counted(part: Select[Any]) -> Statement:
    """Counts a part of a cursor's heads up to a limit, in the order of the index."""
    found = part.limit(bindparam("most")).subquery("part")
    counts = select(func.count(), func.sum(found.c.behind_it)).select_from(found)
    return Statement(counts, "at most" if "now" not in part.compile().params else "at now most")


_PART: Final = select(case((_c.behind > 0, _BEHIND_IT), else_=0).label("behind_it")).where(
    _c.cursor == bindparam("at"), is_there(_c.state)
)
_OF_TIME: Final = _PART.where(_c.state == HeadState.WAITING, _c.rank == 0).order_by(_c.due, _c.seq)
_NOT_DUE: Final = _counted(_OF_TIME.where(_c.due > bindparam("now")))
_DUE: Final = _counted(_OF_TIME.where(_c.due <= bindparam("now")))
_RANKED: Final = _counted(_PART.where(_c.state == HeadState.TODO).order_by(_c.rank, _c.due, _c.seq))
_DOING: Final = _counted(_PART.where(_c.state == HeadState.DOING).order_by(_c.rank, _c.due, _c.seq))


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
        found += _stats_of(transaction, ref, number, name, now_ms)
    return found


def _unclaimed(transaction: Transaction, ref: TopicRef) -> list[Stats]:
    """The counts of a stream that no group reads yet."""
    found = []
    for at, head, delayed, _, _ in transaction.rows(_SLOTS, ref.slot_range()):
        first = transaction.rows(_FIRST_KEPT, (at,))[0][0]
        kept_from = head if first is None else first
        slot = at - ref.slot_number(0)
        if not ref.is_in_use(slot):
            continue
        found.append(unclaimed(slot, head=head, first=kept_from, waiting=delayed))
    return found


def _stats_of(
    transaction: Transaction, ref: TopicRef, number: int, name: str, now_ms: int
) -> list[Stats]:
    found = without_heads(transaction, ref, number, name, now_ms)
    span, zero = ref.cursor_range(number), ref.cursor_number(number, 0)
    for at, died, runs, given, retrying, *times in transaction.rows(
        _STANDING, (now_ms, now_ms, *span)
    ):
        one = found.get(at - zero)
        if one is None:
            continue
        one.dead, one.retrying = died, retrying
        in_doing = int(given or 0)  # a sum is no whole number to every driver
        # No head stands in the unsettled part of a stream's line.
        queued = one.published - one.waiting - one.todo - one.doing - in_doing
        queued -= one.settled + one.cancelled + died
        waiting = _waiting(transaction, at, queued, in_doing - runs, now_ms) if queued > 0 else 0
        one.waiting += waiting
        one.todo += queued - waiting
        one.doing += in_doing
        _wait_since(one, times)
    if ref.topic.kind in RANKED:
        _since_by_rank(transaction, {zero + slot: one for slot, one in found.items()}, span, now_ms)
    return [found[slot] for slot in sorted(found)]


def _waiting(transaction: Transaction, at: int, queued: int, behind_runs: int, now_ms: int) -> int:
    """How many messages of a cursor's queue are not due.

    Args:
        transaction: the transaction.
        at: the cursor.
        queued: how many are in the queue and not in doing.
        behind_runs: how many of those in doing stand behind the head of their run.
        now_ms: the store's now.
    """
    most = _AT_FIRST
    while True:
        not_due = _part(transaction, _NOT_DUE, (at, now_ms, most))
        if not_due.heads < most:
            return not_due.messages
        due = _part(transaction, _DUE, (at, now_ms, most))
        ranked = _part(transaction, _RANKED, (at, most))
        if due.heads < most and ranked.heads < most:
            behind_doing = _part(transaction, _DOING, (at, EVERYTHING)).behind - behind_runs
            return queued - due.messages - ranked.messages - behind_doing
        most *= _GROWS


def _part(transaction: Transaction, part: Statement, parameters: tuple[int, ...]) -> _HeadCount:
    [(heads, behind)] = transaction.rows(part, parameters)
    return _HeadCount(heads, int(behind or 0))


def without_heads(
    transaction: Transaction, ref: TopicRef, number: int, name: str, now_ms: int,
    only: int | None = None,
) -> dict[int, Stats]:  # fmt: skip
    """The counts of a group by slot, without subjects and the dead: cursors, lines, kept back.

    A slot whose record is missing, which `verify` tells, has none.
    """
    span, slots_span = ref.cursor_range(number), ref.slot_range()
    if only is not None:
        at, of = ref.cursor_number(number, only), ref.slot_number(only)
        span, slots_span = (at, at + 1), (of, of + 1)
    cursors_of = {row[0]: CursorRow(*row) for row in transaction.rows(CURSORS, span)}
    first = ref.slot_number(0)
    found = {}
    for at, head, delayed, held_back, joins_at in transaction.rows(_SLOTS, slots_span):
        slot = at - first
        cursor = cursors_of.get(ref.cursor_number(number, slot))
        if cursor is None or not (only is not None or ref.is_in_use(slot)):
            continue
        found[slot] = one = Stats(
            slot=slot, group=name, epoch=cursor.epoch, waiting=delayed + held_back,
            published=cursor.published + delayed + held_back, settled=cursor.acked,
            cancelled=cursor.cancelled, head=head,
        )  # fmt: skip
        if joins_at is not None and joins_at <= now_ms:
            _wait_since(one, [joins_at])
        if not ref.topic.has_subjects:
            one.floor = cursor.floor
            one.published += head - cursor.base
            one.todo = head - cursor.read
            one.doing = cursor.in_window()
    if any(one.todo for one in found.values()) and not ref.topic.has_subjects:
        zero = ref.cursor_number(number, 0)
        for at, joined_ms in transaction.rows(_JOINED, (zero - first, *span)):
            slot = at - zero
            if slot in found:
                _wait_since(found[slot], [joined_ms])
    return found


def _since_by_rank(
    transaction: Transaction, told: dict[int, Stats], span: tuple[int, int], now_ms: int
) -> None:
    """Notes since when the first of each rank waits, of the sixteen that come last, by cursor."""
    rank = EVERYTHING
    for _ in range(_MOST_RANKS):
        rank = transaction.rows(_LAST_RANK, (rank, *span))[0][0]
        if rank is None:
            return
        for at, *times in transaction.rows(_FIRST_OF_RANK, (rank, now_ms, rank, *span)):
            if at in told:
                _wait_since(told[at], times)


def _wait_since(one: Stats, times: Iterable[int | None]) -> None:
    """Notes since when messages are due; the earliest counts."""
    one.next_ms = min((ms for ms in (one.next_ms, *times) if ms is not None), default=None)
