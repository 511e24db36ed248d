"""Messages that stand first for a key: looked up, made due, given up."""

from __future__ import annotations

from typing_extensions import override

from qframe.drivers.sql import Transaction
from qframe.outcomes import Moved
from qframe.stores import rules
from qframe.stores.acts import Unblocking
from qframe.stores.records import HeadPlace
from qframe.stores.sql import heads
from qframe.stores.sql.cursors import check_open, lock_group_cursors
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import HeadState
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic


class SqlUnblocking(SqlRole, Unblocking):
    """Rows of subjects."""

    @override
    def hasten(self, topic: Topic, group: str, place: HeadPlace) -> Moved:
        return self._write(topic, hasten, group, place)

    @override
    def skip(
        self, topic: Topic, group: str, place: HeadPlace, error: str, *, force: bool = False
    ) -> Moved:
        return self._write(topic, skip, group, place, error, force=force)


def hasten(transaction: Transaction, ref: TopicRef, group: str, place: HeadPlace) -> Moved:
    """Makes a message due now."""
    head = _locked(transaction, ref, group, place)
    if head is None:
        return Moved.ABSENT
    if head.state == HeadState.DOING:
        return Moved.DOING
    now_ms = transaction.now_ms()
    if head.due_ms > now_ms:
        head.due_ms = now_ms
        head.state, head.rank = heads.position_of(ref.topic.kind, now_ms, head.priority, now_ms)
        heads.save(transaction, head)
        notify_messages(transaction, ref, [place.slot])
    return Moved.DONE


def skip(
    transaction: Transaction, ref: TopicRef, group: str, place: HeadPlace, error: str, *,
    force: bool,
) -> Moved:  # fmt: skip
    """Writes a message among the dead, and lets its subject go on."""
    head = _locked(transaction, ref, group, place)
    if head is None:
        return Moved.ABSENT
    if head.state == HeadState.DOING and not force:
        return Moved.DOING
    now_ms, kind = transaction.now_ms(), ref.topic.kind
    heads.end_dead(transaction, kind, head, now_ms, error, head.error)
    rules.end_lease(head)
    heads.advance(transaction, kind, head, now_ms)
    notify_messages(transaction, ref, [place.slot])
    return Moved.DONE


def _locked(
    transaction: Transaction, ref: TopicRef, group: str, place: HeadPlace
) -> HeadRow | None:
    """The head of that number, once its cursor is locked."""
    slot, subject, seq = place
    cursor = lock_group_cursors(transaction, ref, group, [slot])[slot]
    if slot in ref.topic.past_slots:
        return None
    check_open(ref, [cursor])
    head = heads.fetched(transaction, cursor.cursor, subject)
    return head if head is not None and head.seq == seq else None
