"""Dead letters: list, retry, drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, delete, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.base import Record
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads
from qframe.stores.sql.arrivals import Arrival
from qframe.stores.sql.places import Place, known_group
from qframe.stores.sql.records import record_of_dead
from qframe.stores.sql.schema import PER_TOPIC, State, slots
from qframe.stores.sql.schema import dead as graves
from qframe.topic import Kind

_DEAD: Final = Statement(
    select(graves)
    .where(graves.c.cursor >= bindparam("first"), graves.c.cursor < bindparam("end"))
    .order_by(graves.c.died_at, graves.c.cursor, graves.c.seq)
    .limit(bindparam("most")),
    "first end most",
)
_REMOVE: Final = Statement(
    delete(graves).where(graves.c.cursor == bindparam("at"), graves.c.seq == bindparam("s")),
    "at s",
)
_HEAD: Final = Statement(select(slots.c.head).where(slots.c.slot == bindparam("at")), "at")


def listed(
    transaction: Transaction, place: Place, group: str, ids: Sequence[str] | None, limit: int
) -> list[Record]:
    """Dead messages, the longest dead first."""
    rows = _chosen(transaction, place, group, ids, limit)
    return [record_of_dead(place, group, row) for row in rows]


def retry(
    transaction: Transaction,
    place: Place,
    group: str,
    ids: Sequence[str] | None,
    limit: int,
    now_ms: int,
) -> int:
    """Makes dead messages due again."""
    rows = _chosen(transaction, place, group, ids, limit)
    for row in rows:
        cursor, seq, subject, priority = row[:4]
        transaction.run(_REMOVE, (cursor, seq))
        if subject is None:
            transaction.run(
                heads.INSERT,
                (cursor, str(seq), State.WAITING, 0, now_ms, seq, 0, None, 0, 0, 0, 0, None,
                 *row[8:]),
            )  # fmt: skip
        else:
            _publish_again(transaction, place, cursor, subject, priority, row[8:], now_ms)
    return len(rows)


def drop(
    transaction: Transaction, place: Place, group: str, ids: Sequence[str] | None, limit: int
) -> int:
    """Removes dead messages for good."""
    rows = _chosen(transaction, place, group, ids, limit)
    transaction.run_many(_REMOVE, [row[:2] for row in rows])
    transaction.run_many(arrive.COUNT, [(0, 0, 1, row[0]) for row in rows])
    return len(rows)


def _publish_again(
    transaction: Transaction,
    place: Place,
    cursor: int,
    subject: str,
    priority: int,
    envelope: Row,
    now_ms: int,
) -> None:
    """Queues a dead message for its group, unless an equal subject, which is newer, is there."""
    known = arrive.known_heads(transaction, cursor, [subject])
    # It was counted when it was published first; where two become one, one less was published.
    transaction.run(arrive.COUNT, (-1, 0, 0, cursor))
    if known and place.topic.kind is not Kind.ORDERED:
        return
    at = place.slot_number(cursor % PER_TOPIC)
    head = transaction.rows(_HEAD, (at,))[0][0]
    transaction.run(arrive.SET_HEAD, (head + 1, at))
    one = Arrival(subject, now_ms, priority, *envelope)
    one.seq = head
    writes = arrive.Writes(transaction)
    writes.to_queue(place.topic.kind, cursor, [one], known, now_ms)
    writes.flush()


def _chosen(
    transaction: Transaction, place: Place, group: str, ids: Sequence[str] | None, limit: int
) -> list[Row]:
    first, end = place.cursor_range(known_group(transaction, place, group))
    if ids is None:
        return transaction.rows(_DEAD, (first, end, limit))
    wanted = set(ids)
    rows = transaction.rows(_DEAD, (first, end, -1))
    return [row for row in rows if row[8] in wanted][:limit]
