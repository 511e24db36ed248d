"""Giving a rank to what has fallen due, where rank decides what is handed out first."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.sql import named
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
    these, names = named.among(subjects, count)
    promoted = subjects.update().where(these)
    return Statement(promoted.values(state=HeadState.TODO, rank=-subjects.c.priority), names)


def promote(transaction: Transaction, at: int, now_ms: int) -> bool:
    """Ranks the first of what is due of a cursor; returns whether that was all of it."""
    due = [row[0] for row in transaction.rows(_DUE, (at, now_ms))]
    if due and transaction.takes_arrays:
        transaction.run(_PROMOTED, named.columns_of({at: due}))
    else:
        named.run_many(transaction, _promoted, [((at,), due)])
    return len(due) < AT_ONCE
