"""Dead letters: list, retry, drop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import FromClause, Select, bindparam, delete, select, union_all
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.acts import DeadLetters
from qframe.stores.records import ALL_DEAD, ChosenDead, DeadPlace
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql.arrivals import Arrival
from qframe.stores.sql.cursors import (
    EVERYTHING,
    check_open,
    known_group,
    lock_group_cursors,
    lock_slots,
)
from qframe.stores.sql.lookups import KnownHead, known_heads, published_at
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.padding import padded
from qframe.stores.sql.parking import Coming, leave
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, backlog
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
_TIME_BEHIND: Final = Statement(
    select(backlog.c.published_at).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)


class SqlDeadLetters(SqlRole, DeadLetters):
    """Dead letters as rows."""

    @override
    def retry_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        return self._write(topic, retry, group, chosen)

    @override
    def drop_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        return self._write(topic, drop, group, chosen)


def retry(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> int:
    """Makes dead messages due again."""
    rows = _locked(transaction, ref, group, chosen)
    now_ms = transaction.now_ms()
    transaction.run_many(_REMOVE, [row[:2] for row in rows])
    of_cursors: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        of_cursors[row[0]].append(row)
    if ref.topic.has_subjects:
        _publish_again(transaction, ref, of_cursors, now_ms)
    else:
        for cursor, some in of_cursors.items():
            leaving = [(row[1], *row[8:]) for row in some]
            leave(transaction, cursor, leaving, Coming(now_ms), stays=True)
    notify_messages(transaction, ref, [cursor % PER_TOPIC for cursor in of_cursors])
    return len(rows)


def drop(transaction: Transaction, ref: TopicRef, group: str, chosen: ChosenDead) -> int:
    """Removes dead messages for good."""
    rows = _locked(transaction, ref, group, chosen)
    transaction.run_many(_REMOVE, [row[:2] for row in rows])
    transaction.run_many(arrive.COUNT, [(0, 0, 1, row[0]) for row in rows])
    return len(rows)


def _publish_again(
    transaction: Transaction, ref: TopicRef, of_cursors: Mapping[int, Sequence[Row]], now_ms: int
) -> None:
    """Queues dead messages for their group, but none where a newer one of its subject is there."""
    # They were counted when they were published first; where two become one, one less was.
    counts = [(-len(rows), 0, 0, cursor) for cursor, rows in of_cursors.items()]
    transaction.run_many(arrive.COUNT, counts)
    wanted = {at: list(dict.fromkeys(row[2] for row in rows)) for at, rows in of_cursors.items()}
    known = known_heads(transaction, wanted)
    times = {} if ref.topic.kind is Kind.ORDERED else _times(transaction, known)
    slot_heads: dict[int, int] = dict(transaction.rows(arrive.HEADS, ref.slot_range()))
    writes = arrive.Writes(transaction)
    moved: list[Row] = []
    for cursor, rows in of_cursors.items():
        at = ref.slot_number(cursor % PER_TOPIC)
        arrivals = [Arrival(row[2], now_ms, row[3], *row[8:]) for row in rows]
        if ref.topic.kind is not Kind.ORDERED:
            arrivals = _newer(arrivals, times[cursor])
        for seq, one in enumerate(arrivals, start=slot_heads[at]):
            one.seq = seq
        writes.to_queue(ref.topic.kind, cursor, arrivals, known[cursor], now_ms)
        moved.append((slot_heads[at] + len(arrivals), at))
    writes.flush()
    transaction.run_many(arrive.SET_HEAD, moved)


def _times(
    transaction: Transaction, known: Mapping[int, Mapping[str, KnownHead]]
) -> dict[int, dict[str, int]]:
    """When the newest message of each subject that has a head was published, by cursor."""
    found: dict[int, dict[str, int]] = {cursor: {} for cursor in known}
    for cursor, subject, time in published_at(
        transaction, {at: list(of) for at, of in known.items()}
    ):
        found[cursor][subject] = time
    for cursor, of in known.items():
        for subject in [name for name, head in of.items() if head.behind]:
            for (time,) in transaction.rows(_TIME_BEHIND, (cursor, subject)):
                found[cursor][subject] = max(found[cursor][subject], time)
    return found


def _newer(arrivals: Sequence[Arrival], times: dict[str, int]) -> list[Arrival]:
    """The arrivals that are newer than what was there of their subjects; `times` is kept true."""
    newer = []
    for one in arrivals:
        if one.published_at > times.get(one.subject, -1):
            times[one.subject] = one.published_at
            newer.append(one)
    return newer


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
