"""Releasing in sequence what several producers send out of order."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql.arrivals import Arrival
from qframe.stores.sql.schema import held, is_there, sequences

AT_ONCE: Final = 500

_KEY: Final = (held.c.slot == bindparam("at"), held.c.key == bindparam("of"))
_FOLLOWING: Final = Statement(
    select(sequences.c.next).where(
        sequences.c.slot == bindparam("at"), sequences.c.key == bindparam("of")
    ),
    "at of",
)
_BEGIN: Final = Statement(sequences.insert(), "slot key next")
_MOVE: Final = Statement(
    sequences.update()
    .where(sequences.c.slot == bindparam("at"), sequences.c.key == bindparam("of"))
    .values(next=bindparam("to")),
    "to at of",
)
_HOLD: Final = Statement(
    held.insert(), "slot key sequence due priority id headers body published_at"
)
_LOWEST: Final = Statement(
    select(held).where(*_KEY).order_by(held.c.sequence).limit(bindparam("most")), "at of most"
)
_RELEASE: Final = Statement(
    held.delete().where(*_KEY, held.c.sequence == bindparam("n")), "at of n"
)
_TWICE: Final = Statement(
    select(held.c.sequence).where(*_KEY, held.c.sequence == bindparam("n")), "at of n"
)
_HURRY: Final = Statement(
    held.update().where(*_KEY, held.c.sequence == bindparam("n")).values(due=bindparam("d")),
    "d at of n",
)
_LATE: Final = Statement(
    select(held.c.sequence).where(*_KEY, held.c.due <= bindparam("now")).limit(1), "at of now"
)
_OVERDUE: Final = Statement(
    select(held.c.key)
    .where(held.c.slot == bindparam("at"), is_there(held.c.due), held.c.due <= bindparam("now"))
    .order_by(held.c.due, held.c.key, held.c.sequence)
    .limit(1),
    "at now",
)


def released(
    transaction: Transaction, at: int, one: Arrival, sequence: int, now_ms: int, gap_ms: int
) -> list[Arrival]:
    """Messages that go on when a numbered one arrives at a slot: it and others, or nothing yet."""
    key = one.key or ""
    going: list[Arrival] = []
    while True:
        following = _following(transaction, at, key)
        if sequence < following or transaction.row(_TWICE, (at, key, sequence)):
            return [*going, one]
        if sequence == following:
            _go_to(transaction, at, key, sequence + 1)
            return [*going, one, *_in_line(transaction, at, key, now_ms, len(going) + 1)]
        if len(going) >= AT_ONCE or not transaction.row(_LATE, (at, key, now_ms)):
            break
        passed, _ = _pass_gap(transaction, at, key, now_ms, len(going))
        going += passed
    transaction.run(
        _HOLD,
        (at, key, sequence, now_ms + gap_ms, one.priority, one.id, one.headers, one.body, now_ms),
    )
    return going


def overdue(transaction: Transaction, at: int, now_ms: int) -> tuple[list[Arrival], int]:
    """Messages of a slot whose gaps have been waited for long enough, and how many gaps.

    Where that is very much the next pull has the rest.
    """
    going: list[Arrival] = []
    gaps = 0
    while len(going) < AT_ONCE and (row := transaction.row(_OVERDUE, (at, now_ms))):
        passed, was_gap = _pass_gap(transaction, at, row[0], now_ms, len(going))
        going += passed
        gaps += was_gap
    return going, gaps


def _pass_gap(
    transaction: Transaction, at: int, key: str, now_ms: int, before: int
) -> tuple[list[Arrival], bool]:
    """Goes on at the lowest held message of a key; whether there was a gap before it."""
    lowest = transaction.rows(_LOWEST, (at, key, 1))[0]
    was_gap = lowest[2] != _following(transaction, at, key)
    transaction.run(_RELEASE, (at, key, lowest[2]))
    _go_to(transaction, at, key, lowest[2] + 1)
    going = _in_line(transaction, at, key, now_ms, before + 1)
    return [_arrival(lowest), *going], was_gap


def _in_line(
    transaction: Transaction, at: int, key: str, now_ms: int, before: int
) -> list[Arrival]:
    """Takes out those that follow without a gap.

    Of very many, those `before` included, the rest is taken for overdue at once, and the next pull
    goes on with it.
    """
    going: list[Arrival] = []
    following = first = _following(transaction, at, key)
    while (rows := transaction.rows(_LOWEST, (at, key, 1))) and rows[0][2] == following:
        if before + len(going) >= AT_ONCE:
            transaction.run(_HURRY, (now_ms, at, key, following))
            break
        transaction.run(_RELEASE, (at, key, following))
        going.append(_arrival(rows[0]))
        following += 1
    if following != first:
        _go_to(transaction, at, key, following)
    return going


def _following(transaction: Transaction, at: int, key: str) -> int:
    row = transaction.row(_FOLLOWING, (at, key))
    return row[0] if row else 1


def _go_to(transaction: Transaction, at: int, key: str, following: int) -> None:
    if not transaction.run(_MOVE, (following, at, key)):
        transaction.run(_BEGIN, (at, key, following))


def _arrival(row: Row) -> Arrival:
    """A held row as it goes on; its time is when it was published."""
    _, key, _, _, priority, message_id, headers, body, published_at = row
    return Arrival(key, published_at, priority, message_id, key, headers, body, published_at)
