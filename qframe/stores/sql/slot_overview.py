"""The contents of a group's slots, seen at one glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.sql.cursors import CursorRow
from qframe.stores.sql.schema import (
    HeadState,
    cursors,
    held,
    is_there,
    later,
    parking,
    slots,
    subjects,
)
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import PullRequest

_MINE = subjects.c.cursor == cursors.c.cursor
_SLOT = cursors.c.cursor + bindparam("delta")
_OVERVIEW: Final = Statement(
    select(
        cursors,
        select(slots.c.head).where(slots.c.slot == _SLOT).scalar_subquery(),
        *[
            select(column)
            .where(_MINE, subjects.c.state == state)
            .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq)
            .limit(1)
            .scalar_subquery()
            for state, column in (
                (HeadState.WAITING, subjects.c.due),
                (HeadState.TODO, subjects.c.due),
                (HeadState.DOING, subjects.c.rank),
            )
        ],
        select(later.c.due).where(later.c.slot == _SLOT).order_by(later.c.due).limit(1)
        .scalar_subquery(),
        select(held.c.due).where(held.c.slot == _SLOT, is_there(held.c.due))
        .order_by(held.c.due).limit(1).scalar_subquery(),
        select(parking.c.max_parked).where(parking.c.group_id == bindparam("group"))
        .scalar_subquery(),
    )
    .where(
        cursors.c.cursor >= bindparam("first"),
        cursors.c.cursor < bindparam("end"),
    )
    .order_by(cursors.c.cursor),
    "delta delta delta group first end",
)  # fmt: skip


class SlotOverview(msgspec.Struct):
    """The contents of a slot, seen at one glance: its cursor, and the first of each sort."""

    cursor: CursorRow
    head: int
    waiting_due: int | None
    todo_due: int | None
    doing_until: int | None
    later_due: int | None
    held_due: int | None
    max_parked: int | None

    def may_park(self) -> bool:
        """Whether a key may be parked."""
        queued = (self.waiting_due, self.todo_due, self.doing_until)
        return bool(self.max_parked) and any(time is not None for time in queued)

    def has_work(self, ask: PullRequest, now_ms: int) -> bool:
        """Whether a pull would hand out or change anything."""
        cursor, position = self.cursor, ask.position
        return (
            self.todo_due is not None
            or any(time is not None and time <= now_ms for time in self._times())
            or (position is not None and max(position, cursor.floor) != cursor.read)
            or self.has_lost_window(ask, now_ms)
        )

    def has_lost_window(self, ask: PullRequest, now_ms: int) -> bool:
        """Whether the window's lease has passed, or its owner knows more of it."""
        cursor = self.cursor
        return cursor.has_window() and (
            cursor.lease_until <= now_ms or ask.is_ahead_of(cursor.read, cursor.in_window())
        )

    def next_ms(self) -> int | None:
        """When the next message falls due or loses its lease."""
        return min((time for time in self._times() if time is not None), default=None)

    def _times(self) -> tuple[int | None, ...]:
        cursor = self.cursor
        return (
            self.waiting_due,
            self.doing_until,
            self.later_due,
            self.held_due,
            cursor.lease_until if cursor.has_window() else None,
        )

    def has_kept(self, now_ms: int) -> bool:
        """Whether what no group has seen yet is to join now."""
        times = (self.later_due, self.held_due)
        return any(time is not None and time <= now_ms for time in times)

    def has_heads(self, now_ms: int) -> bool:
        """Whether a head may be handed out."""
        times = (self.waiting_due, self.todo_due)
        return any(time is not None and time <= now_ms for time in times)


def overviews_of(
    transaction: Transaction, ref: TopicRef, group: int, asks: Sequence[PullRequest]
) -> dict[int, SlotOverview]:
    """The slots of a group that are asked for, and those between them, at one glance."""
    asked = [ask.slot for ask in asks]
    zero = ref.cursor_number(group, 0)
    first, end = zero + min(asked, default=0), zero + max(asked, default=-1) + 1
    delta = ref.slot_number(0) - zero
    rows = transaction.rows(_OVERVIEW, (delta, delta, delta, group, first, end))
    overviews = [SlotOverview(CursorRow(*row[:11]), *row[11:]) for row in rows]
    return {overview.cursor.slot: overview for overview in overviews}
