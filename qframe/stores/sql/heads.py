"""Heads of subjects, one by one: their rows, and what `qframe.stores.rules` makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores import rules
from qframe.stores.sql.schema import HeadState, backlog, dead, subjects
from qframe.topic import Kind

_ENVELOPE: Final = "id key headers body published_at"
_OF: Final = (subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
_BEHIND: Final = (backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of"))
_FIELDS: Final = [column.name for column in subjects.c][2:]

GET: Final = Statement(select(subjects).where(*_OF), "at of")
INSERT: Final = Statement(subjects.insert(), f"cursor subject {' '.join(_FIELDS)}")
_NEW: Final = ["cursor", "subject", "state", "rank", "due", "seq", *_ENVELOPE.split()]
_NEVER_GIVEN: Final = {"priority": 0, "receipt": None, "tries": 0, "lost": 0, "given": 0,
                       "behind": 0, "error": None}  # fmt: skip
_INSERT_NEW: Final = Statement(
    subjects.insert().values({name: bindparam(f"new_{name}") for name in _NEW} | _NEVER_GIVEN),
    " ".join(f"new_{name}" for name in _NEW),
)
SET: Final = Statement(
    subjects.update().where(*_OF).values({name: bindparam(f"new_{name}") for name in _FIELDS}),
    " ".join(f"new_{name}" for name in _FIELDS) + " at of",
)
DELETE: Final = Statement(subjects.delete().where(*_OF), "at of")
ADD_BEHIND: Final = Statement(backlog.insert(), f"cursor subject seq due priority {_ENVELOPE}")
BEHIND: Final = Statement(
    select(backlog).where(*_BEHIND).order_by(backlog.c.seq).limit(bindparam("most")),
    "at of most",
)
ADD_DEAD: Final = Statement(
    dead.insert(), f"cursor seq subject priority attempts error traceback died_at {_ENVELOPE}"
)
DELETE_BEHIND: Final = Statement(
    backlog.delete().where(*_BEHIND, backlog.c.seq <= bindparam("last")), "at of last"
)


def insert_new(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Adds heads without priority that were never handed out; the other columns are constants.

    To bind a constant costs SQLite a tenth of the row. Where rows are copied each has all columns.
    """
    if transaction.takes_arrays:
        constants = tuple(_NEVER_GIVEN.values())
        transaction.run_many(INSERT, [(*row[:6], *constants, *row[6:]) for row in rows])
    else:
        transaction.run_many(_INSERT_NEW, rows)


class HeadRow(msgspec.Struct):
    """A row of the table of subjects, its fields in the order of the columns."""

    cursor: int
    subject: str
    state: int
    rank: int
    due_ms: int
    seq: int
    priority: int
    receipt: str | None
    tries: int
    lost: int
    given: int
    behind: int
    error: str | None
    id: str
    key: str | None
    headers: str | None
    body: bytes
    published_at: int

    def row(self) -> Row:
        """All columns."""
        return msgspec.structs.astuple(self)

    def envelope(self) -> Row:
        """The message's five fields."""
        return self.id, self.key, self.headers, self.body, self.published_at


def fetched(transaction: Transaction, cursor: int, subject: str) -> HeadRow | None:
    """The head of a subject, or None."""
    row = transaction.row(GET, (cursor, subject))
    return HeadRow(*row) if row else None


def save(transaction: Transaction, head: HeadRow) -> None:
    """Writes a head that is there already."""
    transaction.run(SET, changed(head))


def changed(head: HeadRow) -> Row:
    """The arguments of `SET`."""
    row = head.row()
    return (*row[2:], *row[:2])


def position_of(kind: Kind, due_ms: int, priority: int, now_ms: int) -> tuple[int, int]:
    """Returns the state and rank of a head that is not in doing."""
    if kind in rules.RANKED and due_ms <= now_ms:
        return HeadState.TODO, rules.rank_of(kind, priority)
    return HeadState.WAITING, 0


def requeue(transaction: Transaction, kind: Kind, head: HeadRow, now_ms: int) -> int:
    """Takes a head out of doing, due when it says; returns how many messages it has absorbed.

    A next round that stands behind it replaces it, as if it were published now.
    """
    absorbed = 0
    if head.behind and kind not in rules.BACKLOGGED:
        row = transaction.rows(BEHIND, (head.cursor, head.subject, 1))[0]
        transaction.run(DELETE_BEHIND, (head.cursor, head.subject, row[2]))
        rules.replace(head, kind, row[3], now_ms)
        head.priority, head.behind = row[4], 0
        head.id, head.key, head.headers, head.body, head.published_at = row[5:]
        absorbed = 1
    rules.end_lease(head)
    head.state, head.rank = position_of(kind, head.due_ms, head.priority, now_ms)
    save(transaction, head)
    return absorbed


def end_dead(
    transaction: Transaction, kind: Kind, head: HeadRow, now_ms: int, error: str | None,
    traceback: str | None,
) -> None:  # fmt: skip
    """Puts a head among the dead of its group; the caller lets the subject advance."""
    subject = None if kind is Kind.STREAM else head.subject
    transaction.run(
        ADD_DEAD,
        (head.cursor, head.seq, subject, head.priority, head.tries, error, traceback, now_ms,
         *head.envelope()),
    )  # fmt: skip


def advance(transaction: Transaction, kind: Kind, head: HeadRow, now_ms: int) -> None:
    """Puts the next message in place of a head that is settled, or removes the subject."""
    rows = transaction.rows(BEHIND, (head.cursor, head.subject, 2)) if head.behind else []
    if not rows:
        transaction.run(DELETE, (head.cursor, head.subject))
        return
    promote_next(kind, head, rows, now_ms)
    transaction.run(DELETE_BEHIND, (head.cursor, head.subject, head.seq))
    save(transaction, head)


def promote_next(
    kind: Kind, head: HeadRow, behind: Sequence[Row], now_ms: int, *, keeps: int = 0
) -> None:
    """Makes a head the next message of its subject; nothing is written.

    Args:
        kind: the topic's kind.
        head: the head of the settled message; it is changed.
        behind: the next message's row of the backlog, and that of one more if there is one.
        now_ms: the store's now.
        keeps: how many messages of the run are still in doing; the new head is one of them.
    """
    _, _, seq, due_ms, head.priority, *_ = behind[0]
    head.id, head.key, head.headers, head.body, head.published_at = behind[0][5:]
    head.behind = int(len(behind) > 1)
    rules.promote_next(head, kind, seq=seq, due_ms=due_ms, now_ms=now_ms, keeps=keeps)
    if not keeps:
        head.state, head.rank = position_of(kind, head.due_ms, head.priority, now_ms)


class Unreadable(dict[str, str]):
    """Stands for headers that somebody else has written over."""


def headers_text(headers: dict[str, str] | None) -> str | None:
    """Headers as they lie in a column."""
    return msgspec.json.encode(headers).decode() if headers else None


def headers_of(text: str | None) -> dict[str, str] | None:
    """Headers from a column."""
    if text is None:
        return None
    try:
        found: dict[str, str] = msgspec.json.decode(text, type=dict[str, str])
    except (ValueError, TypeError, RecursionError):
        return Unreadable()
    return found
