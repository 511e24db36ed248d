"""Changing what is not handed out: moved, changed, cancelled, looked up by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import bindparam, delete, select

from qframe.drivers.sql import Statement, Transaction
from qframe.outcomes import Moved
from qframe.stores.records import Record
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads
from qframe.stores.sql.heads import Head
from qframe.stores.sql.places import GROUPS, Place, lock_cursors
from qframe.stores.sql.records import record_of_head
from qframe.stores.sql.schema import PER_TOPIC, State, backlog, subjects
from qframe.stores.sql.words import tell_messages

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
        subjects.c.state == State.WAITING,
        subjects.c.rank == 0,
        subjects.c.due >= bindparam("since"),
        subjects.c.due < bindparam("until"),
    )
    .order_by(subjects.c.due, subjects.c.seq)
    .limit(bindparam("most")),
    "at since until most",
)


def move(transaction: Transaction, place: Place, subject: str, at_ms: int) -> Moved:
    """Makes a subject due at another time, for every group."""

    def moved(head: Head) -> None:
        now_ms = transaction.now_ms()
        head.due_ms = at_ms
        head.state, head.rank = heads.stand(place.topic.kind, at_ms, head.priority, now_ms)
        heads.save(transaction, head)
        tell_messages(transaction, place, [head.cursor % PER_TOPIC])

    return _change(transaction, place, subject, moved)


def change(
    transaction: Transaction, place: Place, subject: str, body: bytes, headers: str | None
) -> Moved:
    """Gives a subject another body and headers, for every group."""

    def changed(head: Head) -> None:
        head.body, head.headers = body, headers
        heads.save(transaction, head)

    return _change(transaction, place, subject, changed)


def cancel(transaction: Transaction, place: Place, subject: str) -> Moved:
    """Takes a subject out with all its messages, for every group."""

    def cancelled(head: Head) -> None:
        behind = transaction.run(_DROP_BEHIND, (head.cursor, subject))
        transaction.run(heads.DELETE, (head.cursor, subject))
        transaction.run(arrive.COUNT, (0, 0, 1 + behind, head.cursor))

    return _change(transaction, place, subject, cancelled)


def timer(transaction: Transaction, place: Place, subject: str) -> list[Record]:
    """Where a subject stands, for each group that has it."""
    now_ms = transaction.now_ms()
    return [
        record_of_head(place, name, head, now_ms)
        for name, head in _heads_of(transaction, place, subject)
    ]


def timers(
    transaction: Transaction,
    place: Place,
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
    for group, name in transaction.rows(GROUPS, (place.id,)):
        for slot in range(place.topic.slots):
            at = place.cursor_number(group, slot)
            rows = transaction.rows(_WAITING, (at, since, until, limit))
            found += [record_of_head(place, name, Head(*row), now_ms) for row in rows]
    found.sort(key=lambda record: (record.due_ms or 0, record.seq or 0))
    return found[:limit]


def _change(
    transaction: Transaction, place: Place, subject: str, apply: Callable[[Head], None]
) -> Moved:
    """Applies a change to a subject's head in every group, unless one has it in doing."""
    _lock(transaction, place, subject)
    found = [head for _, head in _heads_of(transaction, place, subject)]
    if not found:
        return Moved.ABSENT
    if any(head.state == State.DOING for head in found):
        return Moved.DOING
    for head in found:
        apply(head)
    return Moved.DONE


def _lock(transaction: Transaction, place: Place, subject: str) -> None:
    """Locks the cursors of all groups in the subject's slot, so that none hands it out now."""
    slots = {place.topic.slot_of(subject.encode())}
    if subject.startswith("#"):
        slots |= {head.cursor % PER_TOPIC for _, head in _heads_of(transaction, place, subject)}
    groups = [row[0] for row in transaction.rows(GROUPS, (place.id,))]
    lock_cursors(
        transaction, [place.cursor_number(each, slot) for each in groups for slot in slots]
    )


def _heads_of(transaction: Transaction, place: Place, subject: str) -> list[tuple[str, Head]]:
    """The heads of a subject, with the names of their groups.

    A subject that is a key names its slot; one that is the hash of a body does not, so all slots
    are looked through, by primary key.
    """
    by_key = place.topic.slot_of(subject.encode())
    slots = range(place.topic.slots) if subject.startswith("#") else (by_key,)
    found = []
    for group, name in transaction.rows(GROUPS, (place.id,)):
        for slot in slots:
            head = heads.fetched(transaction, place.cursor_number(group, slot), subject)
            if head is not None:
                found.append((name, head))
    return found
