"""Dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import FromClause, Select, bindparam, select, union_all
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.acts import DeadLetters
from qframe.stores.records import ALL_DEAD, ChosenDead, DeadPlace, Record
from qframe.stores.sql.cursors import (
    EVERYTHING,
    known_group,
)
from qframe.stores.sql.padding import padded
from qframe.stores.sql.records import record_of_dead
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC
from qframe.stores.sql.schema import dead as dead_letters
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_AT_ONCE: Final = 256
"""How many cursors one statement asks: SQLite takes 500 selects in one."""

_NOTHING: Final = -1


def _in_order(places: FromClause) -> Select[Any]:
    """The rows of some places, which an index alone has found."""
    is_found = (dead_letters.c.cursor == places.c.cursor) & (dead_letters.c.seq == places.c.seq)
    rows = select(dead_letters).join(places, is_found)
    return rows.order_by(dead_letters.c.died_at, dead_letters.c.cursor, dead_letters.c.seq)


@lru_cache(maxsize=16)
def _dead_of(cursors: int) -> Statement:
    """The first rows of some cursors, each from a place of its own on.

    Each cursor is a range of the index, and of none is more read than there may be in all; taken
    together they would be read whole, and sorted.
    """
    columns = (dead_letters.c.cursor, dead_letters.c.seq, dead_letters.c.died_at)
    branches = [
        select(*columns)
        .where(
            dead_letters.c.cursor == bindparam(f"c{each}"),
            dead_letters.c.died_at <= bindparam("last"),
            dead_letters.c.died_at >= bindparam(f"d{each}"),
            (dead_letters.c.died_at > bindparam(f"d{each}"))
            | (dead_letters.c.seq > bindparam(f"s{each}")),
        )
        .order_by(dead_letters.c.died_at, dead_letters.c.seq)
        .limit(bindparam("most"))
        .subquery()
        .select()
        for each in range(cursors)
    ]
    each_first = (union_all(*branches) if cursors > 1 else branches[0]).subquery("each_first").c
    first = (
        select(each_first.cursor, each_first.seq)
        .order_by(each_first.died_at, each_first.cursor, each_first.seq)
        .limit(bindparam("most"))
    )
    names = "".join(f"c{each} last d{each} d{each} s{each} most " for each in range(cursors))
    return Statement(_in_order(first.subquery("found")), f"{names}most")


@lru_cache(maxsize=64)
def _dead_of_ids(cursors: int, ids: int) -> Statement:
    """The rows of some cursors and ids."""
    at = [f"c{number}" for number in range(cursors)]
    names = [f"i{number}" for number in range(ids)]
    places = select(dead_letters.c.cursor, dead_letters.c.seq).where(
        dead_letters.c.cursor.in_([bindparam(name) for name in at]),
        dead_letters.c.id.in_([bindparam(name) for name in names]),
    )
    # The limit keeps them apart: taken together SQLite would look through all rows of a cursor.
    most = places.limit(bindparam("most"))
    return Statement(_in_order(most.subquery("found")), " ".join((*at, *names, "most")))


class SqlDeadLetters(SqlRole, DeadLetters):
    """Dead letters as rows."""

    @override
    def dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> list[Record]:
        return self._read(topic, listed, group, chosen)


def listed(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> list[Record]:
    """Dead messages, the longest dead first."""
    rows = _chosen(transaction, ref, group, chosen)
    return [record_of_dead(ref, group, row) for row in rows]


def _chosen(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> list[Row]:
    number = known_group(transaction, ref, group)
    first, cursors = ref.cursor_number(number, 0), ref.cursor_numbers(number)
    if chosen.ids is not None:
        rows = _of_ids(transaction, cursors, chosen.ids)
    else:
        last = EVERYTHING if chosen.until is None else chosen.until.died_at_ms
        rows = _first(transaction, cursors, chosen.after, last, chosen.limit)
    fit = [row for row in rows if chosen.is_between(DeadPlace(row[7], row[0] - first, row[1]))]
    return fit[: chosen.limit]


def _first(
    transaction: Transaction, cursors: list[int], after: DeadPlace | None, last: int, limit: int
) -> list[Row]:
    """The dead letters of cursors behind a place, the longest dead first."""
    place = after or DeadPlace(_NOTHING, 0, _NOTHING)
    at = cursors[0] // PER_TOPIC * PER_TOPIC + place.slot
    rows: list[Row] = []
    for start in range(0, len(cursors), _AT_ONCE):
        some = cursors[start : start + _AT_ONCE]
        given: list[int] = []
        for each in some:
            # What died in the same millisecond follows by slot.
            seq = place.seq if each == at else EVERYTHING if each < at else _NOTHING
            given += (each, last, place.died_at_ms, place.died_at_ms, seq, limit)
        rows += transaction.rows(_dead_of(len(some)), (*given, limit))
    return sorted(rows, key=_place_of) if len(cursors) > _AT_ONCE else rows


def _of_ids(transaction: Transaction, cursors: Sequence[int], ids: Sequence[str]) -> list[Row]:
    """The dead letters of ids, the longest dead first."""
    rows = [
        row
        for at in padded(cursors)
        for names in padded(list(dict.fromkeys(ids)))
        for row in transaction.rows(_dead_of_ids(len(at), len(names)), (*at, *names, EVERYTHING))
    ]
    return sorted(rows, key=_place_of)


def _place_of(row: Row) -> tuple[int, int, int]:
    return row[7], row[0], row[1]
