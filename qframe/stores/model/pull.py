"""Handing messages out, and keeping them hidden."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from qframe.message import Delivery
from qframe.stores import rules
from qframe.stores.base import Pulling
from qframe.stores.history import lost_entry
from qframe.stores.model import window
from qframe.stores.model.publish import arrive
from qframe.stores.model.queues import add_dead_letter, advance, requeue
from qframe.stores.model.role import ModelRole
from qframe.stores.model.sequences import overdue
from qframe.stores.model.standing import stand
from qframe.stores.model.state import GroupCursor, QueuedHead, TopicState
from qframe.stores.records import told_apart
from qframe.stores.types import (
    LOST_ERROR,
    QUIET,
    LeaseRef,
    PullRequest,
    PullResult,
    PullTerms,
    RenewResult,
    RevokeResult,
)
from qframe.topic import Topic


class ModelPulling(ModelRole, Pulling):
    """Pulling, and leases."""

    @override
    def pull(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        with self._lock:
            self._group(topic, group, (ask.slot for ask in asks))  # there must be one
            return pull(self._state(topic), group, asks, terms, self._now_ms())

    @override
    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        with self._lock:
            cursors = self._group(topic, group, (hold.slot for hold in holds))
            return renew(cursors, holds, self._now_ms() + lease_ms)

    @override
    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        with self._lock:
            cursors = self._group(topic, group, (ask.slot for ask in asks))
            revoked = revoke(self._state(topic), cursors, asks, receipt, self._now_ms())
        self._ring(topic)
        return revoked


def pull(
    state: TopicState,
    group: str,
    asks: Sequence[PullRequest],
    terms: PullTerms,
    now_ms: int,
) -> PullResult:
    """Hands out what is due, slot by slot as asked."""
    pulled = PullResult([], [])
    more, times = False, []
    for ask in asks:
        cursor = state.groups[group][ask.slot]
        if cursor.epoch != ask.epoch:
            pulled.fenced.append(ask.slot)
            continue
        _bring_in(state, ask, cursor, now_ms, pulled)
        got = _heads(state, cursor, ask, terms, now_ms, pulled)
        pulled.deliveries += got
        left = ask.limit - len(got)
        if cursor.is_full:
            pulled.full.append(ask.slot)
        if not state.topic.has_subjects and left > 0:
            left -= window.hand_out(state, cursor, ask, left, terms, now_ms, pulled)
        if left <= 0:
            more = True
            continue
        due, leases = _times(state, ask.slot, cursor)
        times += due + leases
        if ask.limit - left <= QUIET and min(due + leases, default=now_ms + 1) > now_ms:
            until_ms = min(due, default=None)
            state.slots[ask.slot].asleep[group] = stand(cursor, ask, terms, until_ms)
    if more:
        pulled.next_due_ms = 0
    elif times:
        pulled.next_due_ms = max(0, min(times) - now_ms)
    return pulled


def renew(group: dict[int, GroupCursor], holds: Sequence[LeaseRef], until_ms: int) -> RenewResult:
    """Prolongs leases; returns those that are not held any more."""
    gone = []
    for hold in holds:
        cursor = group[hold.slot]
        held: GroupCursor | QueuedHead | None = cursor
        if hold.subject is not None:
            held = cursor.heads.get(hold.subject)
        elif cursor.floor >= cursor.read:
            held = None
        if held is None or cursor.epoch != hold.epoch or held.receipt != hold.receipt:
            gone.append(hold)
        else:
            held.lease_until_ms = until_ms
    return RenewResult(gone)


def revoke(
    state: TopicState,
    group: dict[int, GroupCursor],
    asks: Sequence[PullRequest],
    receipt: str,
    now_ms: int,
) -> RevokeResult:
    """Gives back what was handed out under a receipt, uncounted."""
    count = 0
    for ask in asks:
        cursor = group[ask.slot]
        for head in list(cursor.heads.values()):
            if cursor.epoch == ask.epoch and head.receipt == receipt:
                rules.release(head, state.topic.kind)
                requeue(cursor, state.topic.kind, head, now_ms)
                count += 1
        if cursor.epoch == ask.epoch and not state.topic.has_subjects:
            count += window.revoke(state.slots[ask.slot], cursor, ask.position, receipt)
    return RevokeResult(count)


def lose(state: TopicState, cursor: GroupCursor, heads: Sequence[QueuedHead], now_ms: int) -> int:
    """Takes heads out of doing whose worker is gone."""
    for head in heads:
        if state.topic.history_ms:
            cursor.keep(lost_entry(head.message.id, head.tries, head.receipt, now_ms))
        rules.lose(head, state.topic.kind)
        requeue(cursor, state.topic.kind, head, now_ms)
    return len(heads)


def _bring_in(
    state: TopicState, ask: PullRequest, cursor: GroupCursor, now_ms: int, pulled: PullResult
) -> None:
    """Delayed messages join the log, gaps are passed, lost leases are taken back."""
    slot = state.slots[ask.slot]
    if slot.later:
        joining = [message for message in slot.later if message.due_ms <= now_ms]
        for message in sorted(joining, key=lambda each: (each.due_ms, each.id)):
            slot.later.remove(message)
            slot.log[slot.head] = message
            message.seq, message.joined_at_ms = slot.take_number(), now_ms
    if slot.held:
        going, gaps = overdue(slot, now_ms)
        pulled.gaps += gaps
        arrive(state, ask.slot, going, now_ms)
    if cursor.heads:
        late = [
            head
            for head in cursor.heads.values()
            if head.receipt is not None and head.lease_until_ms <= now_ms
        ]
        pulled.lost += lose(state, cursor, late, now_ms)
    is_lost = cursor.lease_until_ms <= now_ms or ask.is_ahead_of(cursor.read, cursor.in_window)
    if cursor.floor < cursor.read and is_lost:
        pulled.lost += window.lose(state, ask.slot, cursor, now_ms)


def _heads(
    state: TopicState,
    cursor: GroupCursor,
    ask: PullRequest,
    terms: PullTerms,
    now_ms: int,
    pulled: PullResult,
) -> list[Delivery]:
    """Hands out heads that are due, and the runs behind them."""
    kind, until_ms = state.topic.kind, now_ms + terms.lease_ms
    got: list[Delivery] = []
    while cursor.heads and len(got) < ask.limit:
        due = [
            (head.order(kind), subject)
            for subject, head in cursor.heads.items()
            if head.receipt is None and head.due_ms <= now_ms
        ]
        if not due:
            break
        subject = min(due)[1]
        head = cursor.heads[subject]
        if head.tries >= terms.max_attempts:
            error, traceback = told_apart(head.error)
            add_dead_letter(cursor, head, now_ms, error or LOST_ERROR, traceback)
            advance(cursor, kind, head, now_ms)
            pulled.dead += 1
            continue
        head.tries += 1
        head.receipt, head.lease_until_ms, head.given = terms.receipt, until_ms, 1
        got.append(head.message.delivery(ask.slot, subject, head.seq, terms.receipt,
                                         head.tries, head.lost, head.due_ms))  # fmt: skip
        if kind not in rules.BACKLOGGED or head.lost:
            continue
        for message in head.behind[: terms.run - 1]:
            if message.due_ms > now_ms or len(got) >= ask.limit:
                break
            head.given += 1
            got.append(message.delivery(ask.slot, subject, message.seq, terms.receipt,
                                        due_ms=message.due_ms))  # fmt: skip
    return got


def _times(state: TopicState, number: int, cursor: GroupCursor) -> tuple[list[int], list[int]]:
    """When something of a slot falls due, and when it loses its lease."""
    slot = state.slots[number]
    due = [head.due_ms for head in cursor.heads.values() if not head.in_doing]
    leases = [head.lease_until_ms for head in cursor.heads.values() if head.in_doing]
    due += [message.due_ms for message in slot.later]
    due += [each.passed_at_ms for held in slot.held.values() for each in held.values()]
    if cursor.floor < cursor.read:
        leases.append(cursor.lease_until_ms)
    return due, leases
