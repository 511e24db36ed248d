"""Looking many subjects up: of all slots at once, where a parameter may be an array.

Elsewhere it takes a statement for each slot, or for each subject. With arrays each subject is
looked for by itself (`LATERAL`), in the order of the primary key: so the planner goes by it on long
tables, also where it does not know them yet or takes them for empty. Left to choose a join, it may
read a whole table for some hundred subjects.
`tests/integration/stores/sql/test_plans.py` holds the plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ARRAY, BigInteger, Column, Text, bindparam, cast, func, select, true

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql import heads, named
from qframe.stores.sql.cursors import EVERYTHING
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.padding import SIZES, padded
from qframe.stores.sql.schema import backlog, subjects

Wanted = Mapping[int, Sequence[str]]
"""Subjects by the number of a cursor."""

_CURSORS: Final = cast(bindparam("cursors"), ARRAY(BigInteger))
_SUBJECTS: Final = cast(bindparam("subjects"), ARRAY(Text))


class _Heads:
    """Columns of the heads of some subjects, after the cursor and the subject."""

    def __init__(self, *columns: Column[Any]) -> None:
        c = subjects.c
        self._among = {}
        for size in SIZES:
            these, names = named.among(subjects, size)
            query = select(c.cursor, c.subject, *columns).where(these)
            self._among[size] = Statement(query, names)
        w = func.unnest(_CURSORS, _SUBJECTS).table_valued("at", "of", name="w").render_derived()
        one = select(c.cursor, c.subject, *columns)
        # A range in the order of the primary key: where the statistics are those of an empty queue,
        # an equation costs as much in the other index, which would read all of a cursor's subjects.
        one = one.where(c.cursor == w.c["at"], c.subject.between(w.c["of"], w.c["of"]))
        h = one.order_by(c.subject).limit(1).lateral("h")
        self._together = Statement(select(h).select_from(w.join(h, true())), "cursors subjects")

    def rows(self, transaction: Transaction, wanted: Wanted) -> Iterator[Row]:
        """The ones that there are."""
        if transaction.takes_arrays:
            at, of = named.columns_of(wanted)
            if of:
                yield from transaction.rows_of_arrays(self._together, (at, of))
            return
        for cursor, names in wanted.items():
            for some in padded(names):
                yield from transaction.rows(self._among[len(some)], (cursor, *some))


def _behind_together() -> Statement:
    most = cast(bindparam("most"), ARRAY(BigInteger))
    w = (
        func.unnest(_CURSORS, _SUBJECTS, most)
        .table_valued("at", "of", "most", with_ordinality="nth", name="w")
        .render_derived()
    )
    line = select(backlog).where(backlog.c.cursor == w.c["at"], backlog.c.subject == w.c["of"])
    b = line.order_by(backlog.c.seq).limit(w.c["most"]).lateral("b")
    query = select(b).select_from(w.join(b, true())).order_by(w.c["nth"], b.c.seq)
    return Statement(query.limit(bindparam("all")), "cursors subjects most all")


_c: Final = subjects.c
_KNOWN: Final = _Heads(_c.state, _c.due, _c.behind)
_TO_SETTLE: Final = _Heads(_c.state, _c.receipt, _c.seq, _c.given, _c.behind)
_PUBLISHED: Final = _Heads(_c.published_at)
_WHOLE: Final = _Heads(*list(_c)[2:])
_BEHIND: Final = _behind_together()


class KnownHead(msgspec.Struct, gc=False):
    """The facts of a head that publishing needs."""

    state: int
    due: int
    behind: int


def known_heads(transaction: Transaction, wanted: Wanted) -> dict[int, dict[str, KnownHead]]:
    """The wanted subjects that have a head, by cursor; each cursor is there."""
    found: dict[int, dict[str, KnownHead]] = {cursor: {} for cursor in wanted}
    for row in _KNOWN.rows(transaction, wanted):
        found[row[0]][row[1]] = KnownHead(*row[2:])
    return found


def published_at(transaction: Transaction, wanted: Wanted) -> Iterator[Row]:
    """Cursor, subject, and when it was published, of the heads of the wanted subjects."""
    return _PUBLISHED.rows(transaction, wanted)


def heads_to_settle(transaction: Transaction, wanted: Wanted) -> Iterator[Row]:
    """Of those of the wanted subjects that have a head, what settling must know.

    These are cursor, subject, state, receipt, seq, given, and behind: plain rows, since nothing is
    asked for as often. A state in the query would lead to the index that begins with it.
    """
    return _TO_SETTLE.rows(transaction, wanted)


def whole_heads(transaction: Transaction, wanted: Wanted) -> list[HeadRow]:
    """The heads of the wanted subjects."""
    return [HeadRow(*row) for row in _WHOLE.rows(transaction, wanted)]


def behind(
    transaction: Transaction, wanted: Sequence[tuple[int, str, int]], limit: int = EVERYTHING
) -> dict[tuple[int, str], list[Row]]:
    """The messages behind heads, in order.

    Args:
        transaction: the transaction.
        wanted: cursor, subject, and how many at most.
        limit: how many are enough of all together; what comes last in `wanted` may lack some.
    """
    found: dict[tuple[int, str], list[Row]] = {}
    if not wanted:
        return found
    if transaction.takes_arrays:
        at, of, most = zip(*wanted, strict=True)
        values = (list(at), list(of), list(most), limit)
        for row in transaction.rows_of_arrays(_BEHIND, values):
            found.setdefault(row[:2], []).append(row)
        return found
    for cursor, subject, count in wanted:
        if limit <= 0:
            break
        rows = transaction.rows(heads.BEHIND, (cursor, subject, min(count, limit)))
        found[cursor, subject] = rows
        limit -= len(rows)
    return found
