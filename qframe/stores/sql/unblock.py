"""Messages that stand first for a key: looked up, made due, given up."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.outcomes import Moved
from qframe.stores import rules
from qframe.stores.acts import Unblocking
from qframe.stores.records import HeadPlace, Record
from qframe.stores.sql import heads
from qframe.stores.sql.cursors import check_open, known_group, lock_group_cursors
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.records import record_of_head
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_OF_KEY: Final = Statement(
    select(subjects)
    .where(
        subjects.c.cursor >= bindparam("first"),
        subjects.c.cursor < bindparam("end"),
        subjects.c.key == bindparam("k"),
    )
    .order_by(subjects.c.cursor, subjects.c.seq)
    .limit(bindparam("most")),
    "first end k most",
)


class SqlUnblocking(SqlRole, Unblocking):
    """Rows of subjects."""

    @override
    def first_of_key(self, topic: Topic, group: str, key: str, limit: int = 100) -> list[Record]:
        return self._read(topic, first_of_key, group, key, limit)

    @override
    def hasten(self, topic: Topic, group: str, place: HeadPlace) -> Moved:
        return self._write(topic, hasten, group, place)

    @override
    def skip(
        self, topic: Topic, group: str, place: HeadPlace, error: str, *, force: bool = False
    ) -> Moved:
        return self._write(topic, skip, group, place, error, force=force)


def first_of_key(
    transaction: Transaction, ref: TopicRef, group: str, key: str, limit: int
) -> list[Record]:
    """A subject's head by primary key; in a stream those that left the line, which are few."""
    number, now_ms = known_group(transaction, ref, group), transaction.now_ms()
    found: list[HeadRow] = []
    if ref.topic.has_subjects:
        for at in ref.cursor_numbers(number):
            head = heads.fetched(transaction, at, key)
            found += [] if head is None else [head]
    else:
        first, end = ref.cursor_range(number)  # a slot that is being filled has the same once more
        rows = transaction.rows(_OF_KEY, (first, end, key, 2 * limit))
        found = [HeadRow(*row) for row in rows if ref.is_in_use(row[0] % PER_TOPIC)]
    return [record_of_head(ref, group, head, now_ms) for head in found[:limit]]


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
