"""Parked keys: what left the line of a stream whose group keeps order, queued by key.

The backlog sorts by offset, so a message is in its place wherever it comes from. Only against the
head, and the run that is handed out with it, a place must be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, func, literal_column, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores import rules
from qframe.stores.sql import heads
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.lookups import known_heads, whole_heads
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog, parking

_MOST: Final = Statement(
    select(parking.c.max_parked).where(parking.c.group_id == bindparam("of")), "of"
)
_FORGET: Final = Statement(delete(parking).where(parking.c.group_id == bindparam("of")), "of")
_SET: Final = Statement(parking.insert(), "group_id max_parked")
_PARKED: Final = Statement(
    select(func.count()).select_from(
        select(literal_column("1").label("one"))
        .where(backlog.c.cursor == bindparam("at"))
        .limit(bindparam("most"))
        .subquery("parked")
    ),
    "at most",
)
_BEFORE: Final = Statement(
    select(func.count()).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of"),
        backlog.c.seq < bindparam("s"),
    ),
    "at of s",
)  # fmt: skip


class Coming(msgspec.Struct, frozen=True):
    """How a message leaves the line: when it is due as a head, and what it has behind it."""

    due_ms: int
    tries: int = 0
    lost: int = 0
    error: str | None = None


def max_parked_of(transaction: Transaction, cursor: int) -> int:
    """How much the group of a cursor may park in a slot; 0 where it keeps no order."""
    row = transaction.row(_MOST, (cursor // PER_TOPIC,))
    return 0 if row is None else int(row[0])


def set_max_parked(transaction: Transaction, group: int, most: int) -> None:
    """Notes how much a group may park; 0 where it keeps no order, or is dropped."""
    transaction.run(_FORGET, (group,))
    if most:
        transaction.run(_SET, (group, most))


def is_full(transaction: Transaction, cursor: int, most: int) -> bool:
    """Whether so much is parked in a slot that its line is not read."""
    return most > 0 and int(transaction.rows(_PARKED, (cursor, most))[0][0]) >= most


def of_parked_keys(transaction: Transaction, cursor: int, rows: Sequence[Row]) -> set[int]:
    """The offsets of those rows of the log whose keys are parked."""
    names = {row[0]: _subject_of(row) for row in rows if row[2] is not None}
    wanted = {cursor: list(dict.fromkeys(names.values()))}
    parked = known_heads(transaction, wanted)[cursor] if names else {}
    return {offset for offset, subject in names.items() if subject in parked}


def leave(
    transaction: Transaction, cursor: int, rows: Sequence[Row], coming: Coming, *,
    stays: bool = False,
) -> list[Row]:  # fmt: skip
    """Queues rows of the log that leave the line; returns those that are heads.

    Each stands under its key where the group keeps order, else under its offset.
    """
    if rows and max_parked_of(transaction, cursor):
        return park(transaction, cursor, rows, coming, stays=stays)
    fresh = [_head(cursor, str(row[0]), row, coming) for row in rows]
    transaction.run_many(heads.INSERT, [head.row() for head in fresh])
    return list(rows)


def park(
    transaction: Transaction, cursor: int, rows: Sequence[Row], coming: Coming, *,
    stays: bool = False,
) -> list[Row]:  # fmt: skip
    """Queues rows of the log under their keys, by offset; returns those that are heads.

    Where `stays`, a head that is handed out stays the head.
    """
    names = {row[0]: _subject_of(row) for row in rows}
    wanted = {cursor: list(dict.fromkeys(names.values()))}
    known = {head.subject: head for head in whole_heads(transaction, wanted)}
    there = {subject: head.row() for subject, head in known.items()}
    first: dict[str, Row] = {}
    behind: list[Row] = []
    for row in rows:
        subject = names[row[0]]
        head = known.get(subject)
        if head is None or (row[0] < head.seq and not (stays and head.state == HeadState.DOING)):
            known[subject], first[subject] = _head(cursor, subject, row, coming), row
            if head is not None:
                known[subject].behind = 1
                behind.append(_behind(cursor, subject, head.seq, head.envelope()))
        else:
            _cut_run(transaction, head, row[0])
            head.behind = 1
            behind.append(_behind(cursor, subject, row[0], row[1:6]))
    transaction.run_many(heads.ADD_BEHIND, behind)
    fresh = [head.row() for subject, head in known.items() if subject not in there]
    transaction.run_many(heads.INSERT, fresh)
    changed = [
        heads.changed(known[subject])
        for subject, row in there.items()
        if known[subject].row() != row
    ]
    transaction.run_many(heads.SET, changed)
    return list(first.values())


def _subject_of(row: Row) -> str:
    return rules.subject_of_parked(row[2], row[0])


def _head(cursor: int, subject: str, row: Row, coming: Coming) -> HeadRow:
    return HeadRow(
        cursor, subject, HeadState.WAITING, 0, coming.due_ms, row[0], 0, None,
        coming.tries, coming.lost, 0, 0, coming.error, *row[1:6],
    )  # fmt: skip


def _behind(cursor: int, subject: str, seq: int, envelope: Row) -> Row:
    return (cursor, subject, seq, rules.FRONT, 0, *envelope)


def _cut_run(transaction: Transaction, head: HeadRow, seq: int) -> None:
    """Cuts a run off before a message that comes into the midst of it."""
    if head.given > 1:
        before = transaction.rows(_BEFORE, (head.cursor, head.subject, seq))[0][0]
        head.given = min(head.given, 1 + int(before))
