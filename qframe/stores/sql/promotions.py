"""Giving a rank to what has fallen due, where rank decides what is handed out first."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql import named
from qframe.stores.sql.padding import padded
from qframe.stores.sql.schema import HeadState, subjects

AT_ONCE: Final = 2000

_DUE: Final = Statement(
    select(subjects.c.subject)
    .where(
        subjects.c.cursor == bindparam("at"),
        subjects.c.state == HeadState.WAITING,
        subjects.c.rank == 0,
        subjects.c.due <= bindparam("now"),
    )
    .order_by(subjects.c.due, subjects.c.seq)
    .limit(AT_ONCE),
    "at now",
)
_PROMOTED: Final = Statement(
    subjects.update()
    .where(named.is_at(subjects, named.found(subjects)))
    .values(state=HeadState.TODO, rank=-subjects.c.priority),
    named.NAMES,
)


@lru_cache(maxsize=16)
def _promoted(count: int) -> Statement:
    names = [f"s{number}" for number in range(count)]
    return Statement(
        subjects.update()
        .where(
            subjects.c.cursor == bindparam("at"),
            subjects.c.subject.in_([bindparam(name) for name in names]),
        )
        .values(state=HeadState.TODO, rank=-subjects.c.priority),
        f"at {' '.join(names)}",
    )


def promote(transaction: Transaction, at: int, now_ms: int) -> bool:
    """Ranks the first of what is due of a cursor; returns whether that was all of it."""
    due = [row[0] for row in transaction.rows(_DUE, (at, now_ms))]
    if due and transaction.takes_arrays:
        transaction.run(_PROMOTED, named.columns_of({at: due}))
    else:
        by_size: dict[int, list[Row]] = {}
        for some in padded(due):
            by_size.setdefault(len(some), []).append((at, *some))
        for size, rows in by_size.items():
            transaction.run_many(_promoted(size), rows)
    return len(due) < AT_ONCE
