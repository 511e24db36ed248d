"""Handing messages out: one look at all slots, then work where there is any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import and_, bindparam, delete, or_, select
from typing_extensions import override

from qframe.drivers.sql import Database, Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.stores import rules
from qframe.stores.base import Pulling
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import leases, lookups, malformed, promotions, sequences, window
from qframe.stores.sql.cursors import (
    GROUPS,
    SET_CURSOR,
    groups_of,
    known_group,
    lock_cursors,
    lock_open_slots,
)
from qframe.stores.sql.hand_out import PullInProgress, claim, write_claims
from qframe.stores.sql.leases import renew, revoke
from qframe.stores.sql.parking import is_full
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import later
from qframe.stores.sql.settle import settle
from qframe.stores.sql.slot_overview import SlotOverview, overviews_of
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import (
    LeaseRef,
    PullRequest,
    PullResult,
    PullTerms,
    RenewResult,
    RevokeResult,
)
from qframe.topic import Kind, Topic

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


class SqlPulling(SqlRole, Pulling):
    """Pulling after a look that writes nothing, and leases."""

    def __init__(self, database: Database, namespace: str) -> None:
        super().__init__(database, namespace)
        self._had_work: dict[tuple[str, str], bool] = {}

    @override
    def pull(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        who = (topic.name, group)
        joining: set[int] = set()
        if not self._had_work.get(who):
            nothing = self._look(topic, without_work, group, asks, joining)
            if nothing is not None:
                return nothing
        while (pulled := self._write(topic, pull, group, asks, terms, joining)) is None:
            pass  # with more slots that are to be locked
        self._had_work[who] = bool(pulled.deliveries)
        if malformed.unreadable(pulled.deliveries):
            malformed.end(pulled, asks, lambda ends: self._write(topic, settle, group, ends))
        return pulled

    @override
    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        return self._write(topic, renew, group, holds, lease_ms)

    @override
    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        return self._write(topic, revoke, group, asks, receipt)


def without_work(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    asks: Sequence[PullRequest],
    joining: set[int],
) -> PullResult | None:
    """The answer to a pull for which there is nothing to do; None if there is.

    Slots in which something is to join are added to `joining`.
    """
    overviews = overviews_of(transaction, ref, known_group(transaction, ref, group), asks)
    if any(ask.slot not in overviews for ask in asks):
        return None
    now_ms = transaction.now_ms()
    joining.update(_keeping(overviews, asks, now_ms))
    fenced = []
    full = []
    for ask in asks:
        overview = overviews[ask.slot]
        if overview.cursor.epoch != ask.epoch:
            fenced.append(ask.slot)
        elif _has_work(ref, overview, ask, now_ms):
            return None
        elif _is_full(transaction, overview):
            full.append(ask.slot)
    next_due_ms = _next_due(overviews, asks, fenced, now_ms)
    return PullResult(fenced=fenced, next_due_ms=next_due_ms, full=full)


def pull(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    asks: Sequence[PullRequest],
    terms: PullTerms,
    joining: set[int],
) -> PullResult | None:
    """Hands out what is due, slot by slot as asked.

    Where something is to join in a slot that is not among those `joining`, it does nothing, adds
    the slot to them and returns None: what is locked with it must be locked before the rest.
    """
    number = known_group(transaction, ref, group)
    _lock(transaction, ref, number, asks, joining)
    overviews = overviews_of(transaction, ref, number, asks)
    if any(ask.slot not in overviews for ask in asks):
        raise UnknownGroup(ref.topic.name, group)
    now_ms = transaction.now_ms()
    if keeping := _keeping(overviews, asks, now_ms) - joining:
        joining |= keeping
        return None
    pulling = PullInProgress(transaction, ref, terms, now_ms)
    pulled = pulling.pulled
    more = False
    for ask in asks:
        overview = overviews[ask.slot]
        if overview.cursor.epoch != ask.epoch:
            pulled.fenced.append(ask.slot)
            continue
        if not _has_work(ref, overview, ask, now_ms):
            if _is_full(transaction, overview):
                pulled.full.append(ask.slot)
            continue
        if overview.cursor.is_closed and overview.has_kept(now_ms):
            more = True  # it joins where the slot's messages go
            overview.later_due = overview.held_due = None
        got = _pull_slot(pulling, overview, ask)
        more = more or got >= ask.limit
    write_claims(pulling)
    transaction.run_many(SET_CURSOR, pulling.cursors)
    if more:
        pulled.next_due_ms = 0
    else:
        overviews = overviews_of(transaction, ref, number, asks)
        pulled.next_due_ms = _next_due(overviews, asks, pulled.fenced, now_ms)
    return pulled


def _lock(
    transaction: Transaction,
    ref: TopicRef,
    group: int,
    asks: Sequence[PullRequest],
    joining: set[int],
) -> None:
    """Locks what a pull may change.

    Delayed and held messages go to every group, so of slots in which they join the head is locked
    first, and then the cursors of all groups.
    """
    wanted = [ref.cursor_number(group, ask.slot) for ask in asks]
    if joining:
        lock_open_slots(transaction, ref, joining)
        for each, _ in transaction.rows(GROUPS, (ref.id,)):
            wanted += [ref.cursor_number(each, slot) for slot in joining]
    lock_cursors(transaction, wanted)


def _keeping(
    overviews: dict[int, SlotOverview], asks: Sequence[PullRequest], now_ms: int
) -> set[int]:
    """The slots asked for in which what no group has seen yet is to join now."""
    return {
        ask.slot
        for ask in asks
        if overviews[ask.slot].has_kept(now_ms) and not overviews[ask.slot].cursor.is_closed
    }


def _has_work(ref: TopicRef, overview: SlotOverview, ask: PullRequest, now_ms: int) -> bool:
    if not ref.topic.has_subjects and overview.head > overview.cursor.read:
        return True
    return overview.has_work(ask, now_ms)


def _is_full(transaction: Transaction, overview: SlotOverview) -> bool:
    most = overview.max_parked or 0
    return overview.may_park() and is_full(transaction, overview.cursor.cursor, most)


def _next_due(
    overviews: dict[int, SlotOverview],
    asks: Sequence[PullRequest],
    fenced: Sequence[int],
    now_ms: int,
) -> int | None:
    times = [overviews[ask.slot].next_ms() for ask in asks if ask.slot not in fenced]
    earliest = min((time for time in times if time is not None), default=None)
    return None if earliest is None else max(0, earliest - now_ms)


def _pull_slot(pulling: PullInProgress, overview: SlotOverview, ask: PullRequest) -> int:
    """Hands out of one slot; returns how many."""
    transaction, ref = pulling.transaction, pulling.ref
    cursor, now_ms, pulled = overview.cursor, pulling.now_ms, pulling.pulled
    kind, streams = ref.topic.kind, not ref.topic.has_subjects
    may_be_due = overview.has_heads(now_ms)
    if overview.later_due is not None and overview.later_due <= now_ms:
        _join(transaction, ref, ask.slot, overview.head, now_ms)
    if overview.held_due is not None and overview.held_due <= now_ms:
        pulled.gaps += _pass_gaps(transaction, ref, ask.slot, overview.head, now_ms)
        may_be_due = True
    if overview.doing_until is not None and overview.doing_until <= now_ms:
        pulled.lost += leases.lose_expired(transaction, ref, cursor, now_ms)
        may_be_due = True
    before = cursor.row()
    if streams and overview.has_lost_window(ask, now_ms):
        pulled.lost += window.lose(transaction, ref, cursor, now_ms)
        may_be_due = True
    if kind in rules.RANKED and overview.waiting_due is not None and overview.waiting_due <= now_ms:
        # Whose rank counts is not known before all that is due has one: the next pull goes on.
        may_be_due = promotions.promote(transaction, cursor.cursor, now_ms)
    got = claim(pulling, cursor.cursor, ask) if may_be_due else 0
    parks = overview.may_park() or (bool(overview.max_parked) and may_be_due)
    full = parks and is_full(transaction, cursor.cursor, overview.max_parked or 0)
    if full:
        pulled.full.append(ask.slot)
    if streams and got < ask.limit:
        got += window.hand_out(pulling, cursor, ask, ask.limit - got, parks=parks, full=full)
    if cursor.row() != before:
        pulling.cursors.append(cursor.row())
    return got


def _join(transaction: Transaction, ref: TopicRef, slot: int, head: int, now_ms: int) -> None:
    """The first of what was delayed and is due join the log; the next pull has the others."""
    at = ref.slot_number(slot)
    rows = transaction.rows(_DUE_LATER, (at, now_ms, _JOIN_AT_ONCE))
    _, number, due, last_id, *_ = rows[-1]
    transaction.run(_JOINED, (at, due, due, last_id, last_id, number))
    transaction.run(arrive.SET_HEAD, (head + len(rows), at))
    joining = [(at, seq, *row[3:], now_ms) for seq, row in enumerate(rows, start=head)]
    transaction.run_many(arrive.APPEND, joining)


def _pass_gaps(transaction: Transaction, ref: TopicRef, slot: int, head: int, now_ms: int) -> int:
    """Messages behind gaps whose time has passed go to every group."""
    at = ref.slot_number(slot)
    going, gaps = sequences.overdue(transaction, at, now_ms)
    for one in going:
        one.seq = head
        head += 1
    transaction.run(arrive.SET_HEAD, (head, at))
    wanted = list({one.subject for one in going})
    writes = arrive.Writes(transaction)
    cursors = [ref.cursor_number(group, slot) for group in groups_of(transaction, ref)]
    known = lookups.known_heads(transaction, dict.fromkeys(cursors, wanted))
    for cursor in cursors:
        writes.to_queue(Kind.ORDERED, cursor, going, known[cursor], now_ms)
    writes.flush()
    return gaps
