"""Changing what is not handed out: moved, changed, cancelled, looked up by subject."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from sqlalchemy import bindparam, delete
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.outcomes import Moved
from qframe.stores.acts import StoredTimers
from qframe.stores.history import changes_of, key_of, timer_entry
from qframe.stores.records import HistoryEntry
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads
from qframe.stores.sql.cursors import GROUPS, check_open, lock_cursors
from qframe.stores.sql.heads import HeadRow, headers_text
from qframe.stores.sql.histories import keep
from qframe.stores.sql.lookups import Wanted, whole_heads
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog
from qframe.stores.sql.topic_ref import TopicRef, check_slots
from qframe.stores.timer_change import TimerChange, outcome_of, slots_of
from qframe.topic import Kind, Topic

_DROP_BEHIND: Final = Statement(
    delete(backlog).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)


class SqlTimers(SqlRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def change_timers(
        self, topic: Topic, changes: Sequence[TimerChange], *, by: str | None = None
    ) -> list[Moved]:
        return self._write(topic, change_timers, changes, by=by)


def change_timers(
    transaction: Transaction, ref: TopicRef, changes: Sequence[TimerChange], *, by: str | None
) -> list[Moved]:
    """Edits subjects, or takes them out, for every group, but for those that one has in doing."""
    found = _locked_heads(transaction, ref, changes)
    now_ms = transaction.now_ms()
    edited: dict[tuple[int, str], HeadRow] = {}
    cancelled: list[HeadRow] = []
    ended: list[tuple[int, str | None, HistoryEntry]] = []
    outcomes = []
    for change in changes:
        subject = change.subject
        some = [head for slot in slots_of(ref.topic, subject, change.slot)
                for head in found.get((slot, subject), ())]  # fmt: skip
        is_held = any(head.state == HeadState.DOING for head in some)
        outcomes.append(outcome_of(change, [head.due_ms for head in some], is_held=is_held))
        if outcomes[-1] is not Moved.DONE:
            continue
        if ref.topic.history_ms:
            words = None if change.cancels else changes_of(change.due_ms, change.body)
            entry = partial(timer_entry, now_ms=now_ms, by=by, changes=words)
            key = key_of(ref.topic, subject)
            ended += [(head.cursor, key, entry(head.id, head.tries)) for head in some]
        for head in some:
            if change.cancels:
                cancelled.append(head)
                found.pop((head.cursor % PER_TOPIC, subject), None)
            else:
                _edit(head, change, ref.topic.kind, now_ms)
                edited[head.cursor, subject] = head
    if Moved.ABSENT in outcomes:
        check_slots(transaction, ref)
    _remove(transaction, cancelled)
    transaction.run_many(heads.SET, [heads.changed(head) for head in edited.values()])
    if ended:
        keep(transaction, ended)
    notify_messages(transaction, ref, [cursor % PER_TOPIC for cursor, _ in edited])
    return outcomes


def _edit(head: HeadRow, change: TimerChange, kind: Kind, now_ms: int) -> None:
    if change.due_ms is not None:
        head.due_ms = max(0, change.due_ms)
        head.state, head.rank = heads.position_of(kind, head.due_ms, head.priority, now_ms)
    if change.body is not None:
        head.body, head.headers = change.body, headers_text(change.headers)


def _remove(transaction: Transaction, cancelled: Sequence[HeadRow]) -> None:
    """Removes heads with all that is behind them, and counts it all as cancelled."""
    counts: Counter[int] = Counter()
    for head in cancelled:
        counts[head.cursor] += 1
        if head.behind:
            counts[head.cursor] += transaction.run(_DROP_BEHIND, (head.cursor, head.subject))
    transaction.run_many(heads.DELETE, [(head.cursor, head.subject) for head in cancelled])
    transaction.run_many(arrive.COUNT, [(0, 0, count, at) for at, count in counts.items()])


def _locked_heads(
    transaction: Transaction, ref: TopicRef, changes: Sequence[TimerChange]
) -> dict[tuple[int, str], list[HeadRow]]:
    """The heads of subjects in all groups, by slot and subject, once their cursors are locked.

    Groups that have subscribed before that are locked in their turn: none hands one out now.
    """
    wanted: dict[int, list[str]] = {}
    for change in changes:
        for slot in _slots_with(transaction, ref, change):
            wanted.setdefault(slot, []).append(change.subject)
    before = None
    while (groups := transaction.rows(GROUPS, (ref.id,))) != before:
        numbers = [ref.cursor_number(group, slot) for group, _ in groups for slot in wanted]
        check_open(ref, lock_cursors(transaction, numbers).values())
        before = groups
    found: defaultdict[tuple[int, str], list[HeadRow]] = defaultdict(list)
    for head in _heads_of(transaction, ref, groups, wanted):
        found[head.cursor % PER_TOPIC, head.subject].append(head)
    return found


def _slots_with(transaction: Transaction, ref: TopicRef, change: TimerChange) -> Collection[int]:
    """The slot of a subject; those that have it, where it may stand in any."""
    slots = slots_of(ref.topic, change.subject, change.slot)
    if len(slots) == 1:
        return slots
    anywhere = {slot: [change.subject] for slot in slots}
    found = _heads_of(transaction, ref, transaction.rows(GROUPS, (ref.id,)), anywhere)
    return {head.cursor % PER_TOPIC for head in found}


def _heads_of(
    transaction: Transaction, ref: TopicRef, groups: Sequence[Row], by_slot: Wanted
) -> list[HeadRow]:
    """The heads of subjects, given by slot, in some groups."""
    wanted = {
        ref.cursor_number(group, slot): list(dict.fromkeys(names))
        for group, _ in groups
        for slot, names in by_slot.items()
    }
    return whole_heads(transaction, wanted)
