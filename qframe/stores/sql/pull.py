"""Handing messages out: one look at all slots, then work where there is any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.message import Delivery
from qframe.stores.base import LOST_ERROR, Ask, Pulled
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, leases, sequences, window
from qframe.stores.sql.graves import bury
from qframe.stores.sql.heads import Head
from qframe.stores.sql.places import (
    SET_CURSOR,
    Cursor,
    Place,
    cursors_of,
    groups_of,
    known_group,
)
from qframe.stores.sql.schema import State, cursors, held, later, slots, subjects
from qframe.topic import Kind

_MINE = subjects.c.cursor == cursors.c.cursor
_SLOT = cursors.c.cursor + bindparam("delta")
_LOOK: Final = Statement(
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
                (State.WAITING, subjects.c.due),
                (State.TODO, subjects.c.due),
                (State.DOING, subjects.c.rank),
            )
        ],
        select(later.c.due).where(later.c.slot == _SLOT).order_by(later.c.due).limit(1)
        .scalar_subquery(),
        select(held.c.due).where(held.c.slot == _SLOT).order_by(held.c.due).limit(1)
        .scalar_subquery(),
    )
    .where(cursors.c.cursor >= bindparam("first"), cursors.c.cursor < bindparam("end"))
    .order_by(cursors.c.cursor),
    "delta delta delta first end",
)  # fmt: skip
_DUE_LATER: Final = Statement(
    select(later).where(later.c.slot == bindparam("at"), later.c.due <= bindparam("now"))
    .order_by(later.c.due, later.c.id),
    "at now",
)  # fmt: skip
_JOINED: Final = Statement(
    delete(later).where(later.c.slot == bindparam("at"), later.c.due <= bindparam("now")), "at now"
)
_PROMOTE: Final = Statement(
    subjects.update()
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == State.WAITING,
        subjects.c.due <= bindparam("now"),
    )
    .values(state=State.TODO, rank=-subjects.c.priority),
    "at now",
)
_CLAIMABLE: Final = Statement(
    select(subjects)
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == bindparam("standing"),
        subjects.c.due <= bindparam("now"),
    )
    .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq)
    .limit(bindparam("most")),
    "at standing now most",
)
_CLAIM: Final = Statement(
    subjects.update()
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
    .values(
        state=State.DOING,
        rank=bindparam("until"),
        receipt=bindparam("token"),
        tries=bindparam("attempt"),
        given=bindparam("run"),
    ),
    "until token attempt run at of",
)
_TRIES: Final = 8


class View(msgspec.Struct):
    """What there is in a slot, seen at one glance: its cursor, and the first of each sort."""

    cursor: Cursor
    head: int
    waiting_due: int | None
    todo_due: int | None
    doing_until: int | None
    later_due: int | None
    held_due: int | None

    def has_work(self, position: int | None, now_ms: int) -> bool:
        """Whether a pull would hand out or change anything."""
        cursor = self.cursor
        return (
            self.todo_due is not None
            or any(time is not None and time <= now_ms for time in self._times())
            or (position is not None and max(position, cursor.floor) < cursor.read)
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


class Terms(msgspec.Struct, frozen=True):
    """The terms of one pull."""

    receipt: str
    lease_until_ms: int
    max_attempts: int
    run: int
    now_ms: int


def look(transaction: Transaction, place: Place, group: int) -> dict[int, View]:
    """All slots of a group, at one glance."""
    first, end = place.cursor_range(group)
    delta = place.slot_number(0) - first
    rows = transaction.rows(_LOOK, (delta, delta, delta, first, end))
    views = [View(Cursor(*row[:11]), *row[11:]) for row in rows]
    return {view.cursor.slot: view for view in views}


def glance(
    transaction: Transaction, place: Place, group: str, asks: Sequence[Ask], now_ms: int
) -> Pulled | None:
    """The answer to a pull for which there is nothing to do; None if there is."""
    views = look(transaction, place, known_group(transaction, place, group))
    fenced = []
    for ask in asks:
        view = views[ask.slot]
        if view.cursor.epoch != ask.epoch:
            fenced.append(ask.slot)
        elif _has_work(place, view, ask, now_ms):
            return None
    return Pulled(fenced=fenced, next_due_ms=_next_due(views, asks, fenced, now_ms))


def pull(
    transaction: Transaction, place: Place, group: str, asks: Sequence[Ask], terms: Terms
) -> Pulled:
    """Hands out what is due, slot by slot as asked."""
    number = known_group(transaction, place, group)
    cursors_of(transaction, place, number)
    views = look(transaction, place, number)
    pulled = Pulled([], [])
    more = False
    for ask in asks:
        view = views[ask.slot]
        if view.cursor.epoch != ask.epoch:
            pulled.fenced.append(ask.slot)
            continue
        if not _has_work(place, view, ask, terms.now_ms):
            continue
        got = _pull_slot(transaction, place, view, ask, terms, pulled)
        more = more or got >= ask.limit
    if more:
        pulled.next_due_ms = 0
    else:
        views = look(transaction, place, number)
        pulled.next_due_ms = _next_due(views, asks, pulled.fenced, terms.now_ms)
    return pulled


def _has_work(place: Place, view: View, ask: Ask, now_ms: int) -> bool:
    if not place.topic.has_subjects and view.head > view.cursor.read:
        return True
    return view.has_work(ask.position, now_ms)


def _next_due(
    views: dict[int, View], asks: Sequence[Ask], fenced: Sequence[int], now_ms: int
) -> int | None:
    times = [views[ask.slot].next_ms() for ask in asks if ask.slot not in fenced]
    earliest = min((time for time in times if time is not None), default=None)
    return None if earliest is None else max(0, earliest - now_ms)


def _pull_slot(
    transaction: Transaction, place: Place, view: View, ask: Ask, terms: Terms, pulled: Pulled
) -> int:
    """Hands out of one slot; answers how many."""
    cursor, now_ms = view.cursor, terms.now_ms
    streams = not place.topic.has_subjects
    if view.later_due is not None and view.later_due <= now_ms:
        _join(transaction, place, ask.slot, view.head, now_ms)
    if view.held_due is not None and view.held_due <= now_ms:
        pulled.gaps += _pass_gaps(transaction, place, ask.slot, view.head, now_ms)
    if view.doing_until is not None and view.doing_until <= now_ms:
        pulled.lost += leases.lose_expired(transaction, place, cursor, now_ms)
    before = cursor.row()
    if streams and cursor.has_window() and cursor.lease_until <= now_ms:
        pulled.lost += window.lose(transaction, place, cursor)
    got = _claim(transaction, place, cursor.cursor, ask, terms, pulled)
    if streams and got < ask.limit:
        line = window.hand_out(
            transaction, place, cursor, ask, ask.limit - got,
            receipt=terms.receipt, lease_until_ms=terms.lease_until_ms,
        )  # fmt: skip
        pulled.deliveries += line
        got += len(line)
    if cursor.row() != before:
        transaction.run(SET_CURSOR, cursor.row())
    return got


def _join(transaction: Transaction, place: Place, slot: int, head: int, now_ms: int) -> None:
    """What was delayed and is due joins the log."""
    at = place.slot_number(slot)
    rows = transaction.rows(_DUE_LATER, (at, now_ms))
    joining = [arrive.Arrival("", 0, 0, *row[3:]) for row in rows]
    transaction.run(_JOINED, (at, now_ms))
    writes = arrive.Writes(transaction)
    transaction.run(arrive.SET_HEAD, (writes.to_log(at, head, joining, now_ms), at))
    writes.flush()


def _pass_gaps(transaction: Transaction, place: Place, slot: int, head: int, now_ms: int) -> int:
    """What was held behind gaps whose time has passed goes to every group."""
    at = place.slot_number(slot)
    going, gaps = sequences.overdue(transaction, at, now_ms)
    for one in going:
        one.seq = head
        head += 1
    transaction.run(arrive.SET_HEAD, (head, at))
    wanted = list({one.subject for one in going})
    writes = arrive.Writes(transaction)
    for group in groups_of(transaction, place):
        cursor = place.cursor_number(group, slot)
        known = arrive.known_heads(transaction, cursor, wanted)
        writes.to_queue(Kind.ORDERED, cursor, going, known, now_ms)
    writes.flush()
    return gaps


def _claim(
    transaction: Transaction, place: Place, at: int, ask: Ask, terms: Terms, pulled: Pulled
) -> int:
    """Hands out heads that are due, and the runs behind them; answers how many messages."""
    kind, now_ms = place.topic.kind, terms.now_ms
    standing = State.WAITING
    if kind in heads.RANKED:
        transaction.run(_PROMOTE, (at, now_ms))
        standing = State.TODO
    left = ask.limit
    while left > 0:
        # A subject of an ordered topic may bring a run with it, so few of them are enough.
        most = max(1, left // 4) if kind is Kind.ORDERED else left
        rows = transaction.rows(_CLAIMABLE, (at, standing, now_ms, most))
        claims: list[tuple[object, ...]] = []
        buried = False
        for row in rows:
            if row[_TRIES] >= terms.max_attempts:
                _bury_lost(transaction, kind, Head(*row), now_ms)
                pulled.dead += 1
                buried = True  # what follows it may come before the other rows: look again
                break
            if left <= 0:
                break
            given = _hand_out(transaction, kind, row, ask.slot, left, terms, pulled.deliveries)
            left -= given
            claims.append(
                (terms.lease_until_ms, terms.receipt, row[_TRIES] + 1, given,
                 at, row[1])
            )  # fmt: skip
        transaction.run_many(_CLAIM, claims)
        if len(rows) < most and not buried:
            break
    return ask.limit - left


def _hand_out(
    transaction: Transaction,
    kind: Kind,
    row: Row,
    slot: int,
    left: int,
    terms: Terms,
    deliveries: list[Delivery],
) -> int:
    """Adds the deliveries of one head, given as a row, and of its run; answers how many."""
    at, subject, seq, tries, lost, behind = row[0], row[1], row[5], row[8], row[9], row[11]
    receipt = terms.receipt
    message_id, key, headers, body, published_at = row[13:]
    deliveries.append(
        Delivery(message_id, key, None if headers is None else heads.headers_of(headers), body,
                 published_at, slot, subject, seq, receipt, tries + 1, lost)
    )  # fmt: skip
    most = min(terms.run - 1, left - 1)
    if not behind or lost or kind is not Kind.ORDERED or most <= 0:
        return 1
    given = 1
    for _, _, seq, due, _, message_id, key, headers, body, published_at in transaction.rows(
        heads.BEHIND, (at, subject, most)
    ):
        if due > terms.now_ms:
            break
        deliveries.append(
            Delivery(message_id, key, None if headers is None else heads.headers_of(headers),
                     body, published_at, slot, subject, seq, receipt)
        )  # fmt: skip
        given += 1
    return given


def _bury_lost(transaction: Transaction, kind: Kind, head: Head, now_ms: int) -> None:
    """Gives up a message whose last attempt was lost."""
    bury(
        transaction, head.cursor, seq=head.seq,
        subject=None if kind is Kind.STREAM else head.subject,
        priority=head.priority, attempts=head.tries, error=head.error or LOST_ERROR,
        traceback=None, died_at_ms=now_ms, envelope=head.envelope(),
    )  # fmt: skip
    heads.follow(transaction, kind, head, now_ms, last=head.seq)
