"""Changing what is not handed out: moved, changed, cancelled, looked up by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import bindparam, delete, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.outcomes import Moved
from qframe.stores.base import StoredTimers
from qframe.stores.records import Record
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads
from qframe.stores.sql.cursors import GROUPS, lock_cursors
from qframe.stores.sql.heads import HeadRow, headers_text
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.records import record_of_head
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_DROP_BEHIND: Final = Statement(
    delete(backlog).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)
_WAITING: Final = Statement(
    select(subjects)
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == HeadState.WAITING,
        subjects.c.rank == 0,
        subjects.c.due >= bindparam("since"),
        subjects.c.due < bindparam("until"),
    )
    .order_by(subjects.c.due, subjects.c.seq)
    .limit(bindparam("most")),
    "at since until most",
)


class SqlTimers(SqlRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        return self._write(topic, move, subject, at_ms)

    @override
    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        return self._write(topic, change, subject, body, headers_text(headers))

    @override
    def cancel(self, topic: Topic, subject: str) -> Moved:
        return self._write(topic, cancel, subject)

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        return self._read(topic, timer, subject)

    @override
    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        return self._read(topic, timers, from_ms=from_ms, until_ms=until_ms, limit=limit)


def move(transaction: Transaction, ref: TopicRef, subject: str, at_ms: int) -> Moved:
    """Makes a subject due at another time, for every group."""

    def moved(head: HeadRow) -> None:
        now_ms = transaction.now_ms()
        head.due_ms = at_ms
        head.state, head.rank = heads.position_of(ref.topic.kind, at_ms, head.priority, now_ms)
        heads.save(transaction, head)
        notify_messages(transaction, ref, [head.cursor % PER_TOPIC])

    return _change(transaction, ref, subject, moved)


def change(
    transaction: Transaction, ref: TopicRef, subject: str, body: bytes, headers: str | None
) -> Moved:
    """Gives a subject another body and headers, for every group."""

    def changed(head: HeadRow) -> None:
        head.body, head.headers = body, headers
        heads.save(transaction, head)

    return _change(transaction, ref, subject, changed)


def cancel(transaction: Transaction, ref: TopicRef, subject: str) -> Moved:
    """Takes a subject out with all its messages, for every group."""

    def cancelled(head: HeadRow) -> None:
        behind = transaction.run(_DROP_BEHIND, (head.cursor, subject))
        transaction.run(heads.DELETE, (head.cursor, subject))
        transaction.run(arrive.COUNT, (0, 0, 1 + behind, head.cursor))

    return _change(transaction, ref, subject, cancelled)


def timer(transaction: Transaction, ref: TopicRef, subject: str) -> list[Record]:
    """Where a subject stands, for each group that has it."""
    now_ms = transaction.now_ms()
    return [
        record_of_head(ref, name, head, now_ms)
        for name, head in _heads_of(transaction, ref, subject)
    ]


def timers(
    transaction: Transaction,
    ref: TopicRef,
    *,
    from_ms: int,
    until_ms: int | None,
    limit: int,
) -> list[Record]:
    """Heads that wait and are due in a span of time, the next first."""
    now_ms = transaction.now_ms()
    until = until_ms if until_ms is not None else 2**62
    since = max(from_ms, now_ms + 1)
    found = []
    for group, name in transaction.rows(GROUPS, (ref.id,)):
        for slot in range(ref.topic.slots):
            at = ref.cursor_number(group, slot)
            rows = transaction.rows(_WAITING, (at, since, until, limit))
            found += [record_of_head(ref, name, HeadRow(*row), now_ms) for row in rows]
    found.sort(key=lambda record: (record.due_ms or 0, record.seq or 0))
    return found[:limit]


def _change(
    transaction: Transaction, ref: TopicRef, subject: str, apply: Callable[[HeadRow], None]
) -> Moved:
    """Applies a change to a subject's head in every group, unless one has it in doing."""
    _lock(transaction, ref, subject)
    found = [head for _, head in _heads_of(transaction, ref, subject)]
    if not found:
        return Moved.ABSENT
    if any(head.state == HeadState.DOING for head in found):
        return Moved.DOING
    for head in found:
        apply(head)
    return Moved.DONE


def _lock(transaction: Transaction, ref: TopicRef, subject: str) -> None:
    """Locks the cursors of all groups in the subject's slot, so that none hands it out now."""
    slots = {ref.topic.slot_of(subject.encode())}
    if subject.startswith("#"):
        slots |= {head.cursor % PER_TOPIC for _, head in _heads_of(transaction, ref, subject)}
    groups = [row[0] for row in transaction.rows(GROUPS, (ref.id,))]
    lock_cursors(transaction, [ref.cursor_number(each, slot) for each in groups for slot in slots])


def _heads_of(transaction: Transaction, ref: TopicRef, subject: str) -> list[tuple[str, HeadRow]]:
    """The heads of a subject, with the names of their groups.

    A subject that is a key names its slot; one that is the hash of a body does not, so all slots
    are looked through, by primary key.
    """
    by_key = ref.topic.slot_of(subject.encode())
    slots = range(ref.topic.slots) if subject.startswith("#") else (by_key,)
    found = []
    for group, name in transaction.rows(GROUPS, (ref.id,)):
        for slot in slots:
            head = heads.fetched(transaction, ref.cursor_number(group, slot), subject)
            if head is not None:
                found.append((name, head))
    return found
