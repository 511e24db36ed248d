"""Dead letters: list, retry, drop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import FromClause, Select, bindparam, delete, select, union_all
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.acts import DeadLetters
from qframe.stores.records import ChosenDead, DeadPlace, Record
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql.arrivals import Arrival
from qframe.stores.sql.cursors import (
    EVERYTHING,
    HEAD,
    check_open,
    known_group,
    lock_group_cursors,
    lock_slots,
)
from qframe.stores.sql.lookups import known_heads
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.padding import padded
from qframe.stores.sql.parking import Coming, max_parked_of, park
from qframe.stores.sql.records import record_of_dead
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, backlog, subjects
from qframe.stores.sql.schema import dead as dead_letters
from qframe.stores.sql.topic_ref import TopicRef, check_slots
from qframe.topic import Kind, Topic

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


_REMOVE: Final = Statement(
    delete(dead_letters).where(
        dead_letters.c.cursor == bindparam("at"), dead_letters.c.seq == bindparam("s")
    ),
    "at s",
)
_OF_SUBJECT: Final = Statement(
    select(subjects.c.published_at)
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
    .union_all(
        select(backlog.c.published_at).where(
            backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
        )
    ),
    "at of at of",
)


class SqlDeadLetters(SqlRole, DeadLetters):
    """Dead letters as rows."""

    @override
    def dead(
        self,
        topic: Topic,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        after: DeadPlace | None = None,
    ) -> list[Record]:
        return self._read(topic, listed, group, ChosenDead(ids, limit, after))

    @override
    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500,
        *, after: DeadPlace | None = None, until: DeadPlace | None = None,
    ) -> int:  # fmt: skip
        return self._write(topic, retry, group, ChosenDead(ids, limit, after, until))

    @override
    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500,
        *, after: DeadPlace | None = None, until: DeadPlace | None = None,
    ) -> int:  # fmt: skip
        return self._write(topic, drop, group, ChosenDead(ids, limit, after, until))


def listed(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> list[Record]:
    """Dead messages, the longest dead first."""
    rows = _chosen(transaction, ref, group, chosen)
    return [record_of_dead(ref, group, row) for row in rows]


def retry(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> int:
    """Makes dead messages due again."""
    rows = _locked(transaction, ref, group, chosen)
    now_ms = transaction.now_ms()
    for row in rows:
        cursor, seq, subject, priority = row[:4]
        transaction.run(_REMOVE, (cursor, seq))
        if subject is None:
            keeps_order = max_parked_of(transaction, cursor) > 0
            park(transaction, cursor, [(seq, *row[8:])], Coming(now_ms),
                 keeps_order=keeps_order, stays=True)  # fmt: skip
        else:
            _publish_again(transaction, ref, cursor, subject, priority, row[8:], now_ms)
    notify_messages(transaction, ref, [row[0] % PER_TOPIC for row in rows])
    return len(rows)


def drop(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> int:
    """Removes dead messages for good."""
    rows = _locked(transaction, ref, group, chosen)
    transaction.run_many(_REMOVE, [row[:2] for row in rows])
    transaction.run_many(arrive.COUNT, [(0, 0, 1, row[0]) for row in rows])
    return len(rows)


def _publish_again(
    transaction: Transaction,
    ref: TopicRef,
    cursor: int,
    subject: str,
    priority: int,
    envelope: Row,
    now_ms: int,
) -> None:
    """Queues a dead message for its group, unless a newer one of an equal subject is there."""
    known = known_heads(transaction, {cursor: [subject]})[cursor]
    # It was counted when it was published first; where two become one, one less was published.
    transaction.run(arrive.COUNT, (-1, 0, 0, cursor))
    one = Arrival(subject, now_ms, priority, *envelope)
    if known and ref.topic.kind is not Kind.ORDERED:
        others = transaction.rows(_OF_SUBJECT, (cursor, subject) * 2)
        if one.published_at <= max(row[0] for row in others):
            return
    at = ref.slot_number(cursor % PER_TOPIC)
    head = transaction.rows(HEAD, (at,))[0][0]
    transaction.run(arrive.SET_HEAD, (head + 1, at))
    one.seq = head
    writes = arrive.Writes(transaction)
    writes.to_queue(ref.topic.kind, cursor, [one], known, now_ms)
    writes.flush()


def _locked(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> list[Row]:
    """The chosen rows once their slots and cursors are locked: another may have been faster."""
    slots = {row[0] % PER_TOPIC for row in _chosen(transaction, ref, group, chosen)}
    if ref.topic.has_subjects:
        lock_slots(transaction, ref, slots)
    found = lock_group_cursors(transaction, ref, group, slots).values()
    check_open(ref, found)
    locked = {at.cursor for at in found}
    rows = [row for row in _chosen(transaction, ref, group, chosen) if row[0] in locked]
    check_slots(transaction, ref)
    return rows


def _chosen(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> list[Row]:
    number = known_group(transaction, ref, group)
    first, cursors = ref.cursor_number(number, 0), ref.cursor_numbers(number)
    ids, limit, after, until = chosen
    last = EVERYTHING if until is None else until.died_at_ms
    if ids is not None:
        rows = _of_ids(transaction, cursors, ids)
    else:
        rows = _first(transaction, cursors, after, last, limit)
    if ids is not None and after is not None:
        begin = (after.died_at_ms, first + after.slot, after.seq)
        rows = [row for row in rows if _place_of(row) > begin]
    if until is not None:
        final = (until.died_at_ms, first + until.slot, until.seq)
        rows = [row for row in rows if _place_of(row) <= final]
    return rows[:limit]


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
