"""The table of the history: how attempts have ended, of topics that keep that.

Rows are added in the transaction that ends the attempts, under the lock of their cursor, all in one
statement. Only an end after which the message comes back looks at what is there already, since no
other can add more than one row to a message. `forget` locks nothing but rows that are over.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.outcomes import Verdict
from qframe.stores.history import CANCELLED, EDITED, ENTRIES, LAST
from qframe.stores.records import HistoryEntry
from qframe.stores.sql.cursors import GROUPS
from qframe.stores.sql.schema import PER_TOPIC, endings, history, is_there
from qframe.stores.sql.topic_ref import TopicRef, every_number

_RANKS: Final = {Verdict.RELEASE: 0, EDITED: 2, CANCELLED: 3}
_BITS: Final = 20  # of a number that tell apart what has ended in one millisecond

_OF: Final = (history.c.cursor == bindparam("at"), history.c.id == bindparam("of"))
_KEEP: Final = Statement(
    history.insert(),
    "cursor id number attempt verdict ended_at began_at worker error place",
)
_FOUND: Final = Statement(select(history).where(*_OF).order_by(history.c.number), "at of")
_TOO_OLD: Final = Statement(
    select(history.c.number).where(*_OF).order_by(history.c.number.desc()).limit(1).offset(ENTRIES),
    "at of",
)
_CUT: Final = Statement(
    history.delete().where(*_OF, history.c.number <= bindparam("last")), "at of last"
)
_OVER: Final = Statement(
    select(history.c.cursor, history.c.id, history.c.number)
    .where(
        history.c.cursor == bindparam("at"),
        is_there(history.c.ended_at),
        history.c.ended_at <= bindparam("then"),
    )
    .order_by(history.c.ended_at)
    .limit(bindparam("most")),
    "at then most",
)
_LEFT: Final = Statement(
    select(history.c.cursor, history.c.id, history.c.number)
    .where(history.c.cursor >= bindparam("first"), history.c.cursor < bindparam("end"))
    .order_by(history.c.cursor, history.c.id, history.c.number)
    .limit(bindparam("most")),
    "first end most",
)
_KEYS_OVER: Final = Statement(
    select(endings.c.cursor, endings.c.key)
    .where(
        endings.c.cursor == bindparam("at"),
        is_there(endings.c.ended_at),
        endings.c.ended_at <= bindparam("then"),
    )
    .order_by(endings.c.ended_at)
    .limit(bindparam("most")),
    "at then most",
)
_KEYS_LEFT: Final = Statement(
    select(endings.c.cursor, endings.c.key)
    .where(endings.c.cursor >= bindparam("first"), endings.c.cursor < bindparam("end"))
    .order_by(endings.c.cursor, endings.c.key)
    .limit(bindparam("most")),
    "first end most",
)
_FORGET: Final = Statement(
    history.delete().where(*_OF, history.c.number == bindparam("n")), "at of n"
)
_ENDED: Final = Statement(endings.insert(), "cursor key id ended_at")
_OF_KEY: Final = (endings.c.cursor == bindparam("at"), endings.c.key == bindparam("k"))
_REPLACED: Final = Statement(endings.delete().where(*_OF_KEY), "at k")
_LAST_OF_KEY: Final = Statement(select(endings.c.id).where(*_OF_KEY), "at k")


def keep(transaction: Transaction, ended: Sequence[tuple[int, str | None, HistoryEntry]]) -> None:
    """Adds how attempts have ended, each with its cursor, and the key by which that is found.

    The oldest of a message make room.
    """
    chance = random.getrandbits(_BITS)  # so that none is equal to one of the same millisecond
    rows: list[Row] = []
    for count, (at, _, one) in enumerate(ended):
        number = one.ended_ms << _BITS | (chance + count) % (1 << _BITS)
        rows.append(
            (at, one.id, number, one.attempt, one.verdict, one.ended_ms, one.began_ms, one.worker,
             one.error, one.place)
        )  # fmt: skip
    transaction.run_many(_KEEP, rows)
    last = {(at, key): one for at, key, one in ended if key is not None and one.verdict in LAST}
    transaction.run_many(_REPLACED, list(last))
    transaction.run_many(_ENDED, [(*of_key, one.id, one.ended_ms) for of_key, one in last.items()])
    for at, name in {(at, one.id) for at, _, one in ended if one.verdict not in LAST}:
        over = transaction.row(_TOO_OLD, (at, name))
        if over is not None:
            transaction.run(_CUT, (at, name, over[0]))


def of(transaction: Transaction, at: int, group: str, message_id: str) -> list[HistoryEntry]:
    """The entries of a message in a cursor, the first first."""
    return [
        HistoryEntry(
            group=group, slot=at % PER_TOPIC, id=message_id, attempt=attempt, verdict=verdict,
            ended_ms=ended_ms, began_ms=began_ms, worker=worker, error=error, place=place,
        )
        for _, _, _, attempt, verdict, ended_ms, began_ms, worker, error, place
        in sorted(transaction.rows(_FOUND, (at, message_id)), key=_in_order)
    ][-ENTRIES:]  # fmt: skip


def of_key(transaction: Transaction, at: int, group: str, key: str) -> list[HistoryEntry]:
    """The entries of the message of a key that has ended last in a cursor."""
    row = transaction.row(_LAST_OF_KEY, (at, key))
    return [] if row is None else of(transaction, at, group, row[0])


def _in_order(row: Row) -> tuple[int, int, int]:
    """The order of a message's rows: what has ended in one millisecond goes by its attempt."""
    _, _, _, attempt, verdict, ended_ms, *_ = row
    return ended_ms, attempt, _RANKS.get(verdict, 1)


def forget(transaction: Transaction, ref: TopicRef, limit: int, now_ms: int) -> int:
    """Removes up to `limit` rows that are over, all of a topic that keeps none any more."""
    removed = 0
    then_ms = now_ms - ref.topic.history_ms
    for group, _ in transaction.rows(GROUPS, (ref.id,)):
        for left, over, remove in (
            (_LEFT, _OVER, _FORGET), (_KEYS_LEFT, _KEYS_OVER, _REPLACED),
        ):  # fmt: skip
            if removed >= limit:
                return removed
            most = 1 if ref.topic.history_ms else limit - removed
            rows = transaction.rows(left, (*every_number(group), most))
            if ref.topic.history_ms and rows:
                rows = []
                for slot in (*ref.topic.past_slots, *ref.topic.all_slots):
                    most = limit - removed - len(rows)
                    rows += transaction.rows(over, (ref.cursor_number(group, slot), then_ms, most))
            transaction.run_many(remove, rows)
            removed += len(rows)
    return removed
