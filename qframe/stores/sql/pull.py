"""Handing messages out: one look at all slots, then work where there is any."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from sqlalchemy import and_, bindparam, delete, or_, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.message import Delivery
from qframe.stores import rules
from qframe.stores.records import told_apart
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, leases, lookups, named, promotions, sequences, window
from qframe.stores.sql.graves import bury
from qframe.stores.sql.heads import Head
from qframe.stores.sql.padding import padded
from qframe.stores.sql.places import (
    GROUPS,
    SET_CURSOR,
    Place,
    groups_of,
    known_group,
    lock_cursors,
    lock_slots,
)
from qframe.stores.sql.schema import State, is_there, later, subjects
from qframe.stores.sql.views import View, look
from qframe.stores.types import LOST_ERROR, PullRequest, PullResult
from qframe.topic import Kind

_DUE_LATER: Final = Statement(
    select(later).where(later.c.slot == bindparam("at"), later.c.due <= bindparam("now"))
    .order_by(later.c.due, later.c.id, later.c.number).limit(bindparam("most")),
    "at now most",
)  # fmt: skip
_JOINED: Final = Statement(
    delete(later).where(
        later.c.slot == bindparam("at"),
        later.c.due <= bindparam("d"),
        or_(
            later.c.due < bindparam("d"),
            later.c.id < bindparam("i"),
            and_(later.c.id == bindparam("i"), later.c.number <= bindparam("n")),
        ),
    ),
    "at d d i i n",
)
_JOIN_AT_ONCE: Final = 500
_CLAIMABLE: Final = Statement(
    select(subjects)
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == bindparam("standing"),
        is_there(subjects.c.state),
        subjects.c.due <= bindparam("now"),
    )
    .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq)
    .limit(bindparam("most")),
    "at standing now most",
)
_LIKELY_RUN: Final = 4
_TRIES: Final = 8
_LOST: Final = 9
_BEHIND: Final = 11
_KEEPING: Final = (Kind.STREAM, Kind.ORDERED)  # what comes later, or out of sequence


@lru_cache(maxsize=16)
def _claimed(count: int) -> Statement:
    """Takes heads into doing, all with runs of one length."""
    names = [f"s{number}" for number in range(count)]
    return Statement(
        subjects.update()
        .where(
            subjects.c.cursor == bindparam("at"),
            subjects.c.subject.in_([bindparam(name) for name in names]),
        )
        .values(
            state=State.DOING, rank=bindparam("until"), receipt=bindparam("token"),
            tries=subjects.c.tries + 1, given=bindparam("run"),
        ),
        f"until token run at {' '.join(names)}",
    )  # fmt: skip


_NAMED: Final = named.found(subjects, numbers="runs")
_CLAIMED: Final = Statement(
    subjects.update().where(named.is_at(subjects, _NAMED))
    .values(
        state=State.DOING, rank=bindparam("until"), receipt=bindparam("token"),
        tries=subjects.c.tries + 1, given=_NAMED.c.runs,
    ),
    f"until token {named.NAMES} runs",
)  # fmt: skip


class Terms(msgspec.Struct, frozen=True):
    """The terms of one pull."""

    receipt: str
    lease_ms: int
    max_attempts: int
    run: int


class _Pulling(msgspec.Struct):
    """One pull while it is done: its terms, its moment, and what comes of it."""

    terms: Terms
    now_ms: int
    until_ms: int
    pulled: PullResult = msgspec.field(default_factory=lambda: PullResult([], []))
    cursors: list[Row] = []
    claims: dict[tuple[int, int], list[str]] = {}  # subjects by cursor and length of their runs


def glance(
    transaction: Transaction, place: Place, group: str, asks: Sequence[PullRequest]
) -> PullResult | None:
    """The answer to a pull for which there is nothing to do; None if there is."""
    views = look(transaction, place, known_group(transaction, place, group))
    if not views:
        return None
    now_ms = transaction.now_ms()
    fenced = []
    for ask in asks:
        view = views[ask.slot]
        if view.cursor.epoch != ask.epoch:
            fenced.append(ask.slot)
        elif _has_work(place, view, ask, now_ms):
            return None
    return PullResult(fenced=fenced, next_due_ms=_next_due(views, asks, fenced, now_ms))


def pull(
    transaction: Transaction, place: Place, group: str, asks: Sequence[PullRequest], terms: Terms
) -> PullResult:
    """Hands out what is due, slot by slot as asked."""
    number, joining = _lock(transaction, place, group, asks)
    views = look(transaction, place, number)
    if len(views) < place.topic.slots:
        raise UnknownGroup(place.topic.name, group)
    now_ms = transaction.now_ms()
    pulling = _Pulling(terms, now_ms, now_ms + terms.lease_ms)
    pulled = pulling.pulled
    more = False
    for ask in asks:
        view = views[ask.slot]
        if view.cursor.epoch != ask.epoch:
            pulled.fenced.append(ask.slot)
            continue
        if not _has_work(place, view, ask, now_ms):
            continue
        if view.has_kept(now_ms) and ask.slot not in joining:
            more = True  # it fell due since the locks were taken: the next pull has them
            view.later_due = view.held_due = None
        got = _pull_slot(transaction, place, view, ask, pulling)
        more = more or got >= ask.limit
    _write_claims(transaction, pulling)
    transaction.run_many(SET_CURSOR, pulling.cursors)
    if more:
        pulled.next_due_ms = 0
    else:
        views = look(transaction, place, number)
        pulled.next_due_ms = _next_due(views, asks, pulled.fenced, now_ms)
    return pulled


def _lock(
    transaction: Transaction, place: Place, group: str, asks: Sequence[PullRequest]
) -> tuple[int, set[int]]:
    """Locks what a pull may change; answers the group, and the slots in which something may join.

    What was delayed or held goes to every group, so of these slots the head is locked first, and
    then the cursors of all groups.
    """
    number = known_group(transaction, place, group)
    asked = {ask.slot for ask in asks}
    joining: set[int] = set()
    if place.topic.kind in _KEEPING:
        views, now_ms = look(transaction, place, number), transaction.now_ms()
        joining = {slot for slot in asked if slot in views and views[slot].has_kept(now_ms)}
    wanted = [place.cursor_number(number, slot) for slot in asked]
    if joining:
        lock_slots(transaction, place, joining)
        for each, _ in transaction.rows(GROUPS, (place.id,)):
            wanted += [place.cursor_number(each, slot) for slot in joining]
    lock_cursors(transaction, wanted)
    return number, joining


def _has_work(place: Place, view: View, ask: PullRequest, now_ms: int) -> bool:
    if not place.topic.has_subjects and view.head > view.cursor.read:
        return True
    return view.has_work(ask.position, now_ms)


def _next_due(
    views: dict[int, View], asks: Sequence[PullRequest], fenced: Sequence[int], now_ms: int
) -> int | None:
    times = [views[ask.slot].next_ms() for ask in asks if ask.slot not in fenced]
    earliest = min((time for time in times if time is not None), default=None)
    return None if earliest is None else max(0, earliest - now_ms)


def _pull_slot(
    transaction: Transaction, place: Place, view: View, ask: PullRequest, pulling: _Pulling
) -> int:
    """Hands out of one slot; answers how many."""
    cursor, now_ms, pulled = view.cursor, pulling.now_ms, pulling.pulled
    kind, streams = place.topic.kind, not place.topic.has_subjects
    may_be_due = view.has_heads(now_ms)
    if view.later_due is not None and view.later_due <= now_ms:
        _join(transaction, place, ask.slot, view.head, now_ms)
    if view.held_due is not None and view.held_due <= now_ms:
        pulled.gaps += _pass_gaps(transaction, place, ask.slot, view.head, now_ms)
        may_be_due = True
    if view.doing_until is not None and view.doing_until <= now_ms:
        pulled.lost += leases.lose_expired(transaction, place, cursor, now_ms)
        may_be_due = True
    before = cursor.row()
    if streams and cursor.has_window() and cursor.lease_until <= now_ms:
        pulled.lost += window.lose(transaction, place, cursor)
        may_be_due = True
    if kind in rules.RANKED and view.waiting_due is not None and view.waiting_due <= now_ms:
        # Whose rank counts is not known before all that is due has one: the next pull goes on.
        may_be_due = promotions.promote(transaction, cursor.cursor, now_ms)
    got = _claim(transaction, kind, cursor.cursor, ask, pulling) if may_be_due else 0
    if streams and got < ask.limit:
        line = window.hand_out(
            transaction, place, cursor, ask, ask.limit - got,
            receipt=pulling.terms.receipt, lease_until_ms=pulling.until_ms,
        )  # fmt: skip
        pulled.deliveries += line
        got += len(line)
    if cursor.row() != before:
        pulling.cursors.append(cursor.row())
    return got


def _join(transaction: Transaction, place: Place, slot: int, head: int, now_ms: int) -> None:
    """The first of what was delayed and is due join the log; the next pull has the others."""
    at = place.slot_number(slot)
    rows = transaction.rows(_DUE_LATER, (at, now_ms, _JOIN_AT_ONCE))
    joining = [arrive.Arrival("", 0, 0, *row[3:]) for row in rows]
    _, number, due, last_id, *_ = rows[-1]
    transaction.run(_JOINED, (at, due, due, last_id, last_id, number))
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
    cursors = [place.cursor_number(group, slot) for group in groups_of(transaction, place)]
    known = lookups.known_heads(transaction, dict.fromkeys(cursors, wanted))
    for cursor in cursors:
        writes.to_queue(Kind.ORDERED, cursor, going, known[cursor], now_ms)
    writes.flush()
    return gaps


def _claim(
    transaction: Transaction, kind: Kind, at: int, ask: PullRequest, pulling: _Pulling
) -> int:
    """Hands out heads that are due, and the runs behind them; answers how many messages."""
    now_ms, terms, pulled = pulling.now_ms, pulling.terms, pulling.pulled
    standing = State.TODO if kind in rules.RANKED else State.WAITING
    left, taken = ask.limit, 0
    while left > 0:
        most = left
        if kind is Kind.ORDERED:
            # A subject may bring a run with it, as long as those before, so few are enough.
            run = (ask.limit - left) // taken if taken else _LIKELY_RUN
            most = min(left, max(_LIKELY_RUN, left // run))
        rows = transaction.rows(_CLAIMABLE, (at, standing, now_ms, most))
        runs = _Runs(transaction, rows, terms.run if kind is Kind.ORDERED else 1)
        buried = False
        for number, row in enumerate(rows):
            if left <= 0:
                break
            if row[_TRIES] >= terms.max_attempts:
                _bury_lost(transaction, kind, Head(*row), now_ms)
                pulled.dead += 1
                buried = True  # what follows it may come before the other rows: look again
                break
            given = _hand_out(row, runs.behind(number, left), ask.slot, left, pulling)
            left -= given
            taken += 1
            pulling.claims.setdefault((at, given), []).append(row[1])
        if len(rows) < most and not buried:
            break
        if left > 0:
            _write_claims(transaction, pulling)
    return ask.limit - left


def _write_claims(transaction: Transaction, pulling: _Pulling) -> None:
    """Takes into doing what was handed out: of all slots at once, unless one is looked at again."""
    claims, until_ms, receipt = pulling.claims, pulling.until_ms, pulling.terms.receipt
    if claims and transaction.takes_arrays:
        each = ((at, name, run) for (at, run), names in claims.items() for name in names)
        transaction.run(_CLAIMED, (until_ms, receipt, *named.columns_of(each)))
    elif claims:
        by_size: dict[int, list[Row]] = {}
        for (at, run), names in claims.items():
            for some in padded(names):
                by_size.setdefault(len(some), []).append((until_ms, receipt, run, at, *some))
        for size, rows in by_size.items():
            transaction.run_many(_claimed(size), rows)
    claims.clear()


class _Runs:
    """What stands behind heads that are handed out, looked up for many of them at once."""

    def __init__(self, transaction: Transaction, rows: Sequence[Row], longest: int) -> None:
        self._transaction = transaction
        self._rows = rows
        self._longest = longest
        self._found: dict[tuple[int, str], list[Row]] = {}
        self._cut: tuple[int, str] | None = None  # of which there may be more than was found

    def behind(self, number: int, left: int) -> Sequence[Row]:
        """What may be handed out with one of the heads, where so much is left to hand out."""
        row = self._rows[number]
        most = min(self._longest, left) - 1
        if most <= 0 or not _has_run(row):
            return ()
        found = self._found.get(row[:2])
        if found is None or (row[:2] == self._cut and len(found) < most):
            self._look(number, most, left)
        return self._found.get(row[:2], ())

    def _look(self, first: int, most: int, left: int) -> None:
        """Looks up from one head on as many as are enough if all of them are due."""
        wanted = [(row[0], row[1], most) for row in self._rows[first:] if _has_run(row)]
        self._found = found = lookups.behind(self._transaction, wanted, left)
        is_cut = sum(map(len, found.values())) >= left
        self._cut = next(reversed(found)) if is_cut else None


def _has_run(row: Row) -> bool:
    return bool(row[_BEHIND]) and not row[_LOST]


def _hand_out(row: Row, behind: Sequence[Row], slot: int, left: int, pulling: _Pulling) -> int:
    """Adds the deliveries of one head, given as a row, and of its run; answers how many."""
    subject, seq, tries, lost = row[1], row[5], row[_TRIES], row[_LOST]
    receipt, deliveries = pulling.terms.receipt, pulling.pulled.deliveries
    message_id, key, headers, body, published_at = row[13:]
    deliveries.append(
        Delivery(message_id, key, None if headers is None else heads.headers_of(headers), body,
                 published_at, slot, subject, seq, receipt, tries + 1, lost)
    )  # fmt: skip
    given = 1
    for _, _, seq, due, _, message_id, key, headers, body, published_at in behind[: left - 1]:
        if due > pulling.now_ms:
            break
        deliveries.append(
            Delivery(message_id, key, None if headers is None else heads.headers_of(headers),
                     body, published_at, slot, subject, seq, receipt)
        )  # fmt: skip
        given += 1
    return given


def _bury_lost(transaction: Transaction, kind: Kind, head: Head, now_ms: int) -> None:
    """Gives up a message whose last attempt was lost."""
    error, traceback = told_apart(head.error)
    bury(
        transaction, head.cursor, seq=head.seq,
        subject=None if kind is Kind.STREAM else head.subject,
        priority=head.priority, attempts=head.tries, error=error or LOST_ERROR,
        traceback=traceback, died_at_ms=now_ms, envelope=head.envelope(),
    )  # fmt: skip
    heads.advance(transaction, kind, head, now_ms)
