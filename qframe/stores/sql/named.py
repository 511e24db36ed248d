"""Many rows named by their primary keys: in one statement, where a parameter may be an array.

With `key IN (…)` PostgreSQL may read all of a slot's or cursor's rows and filter them, as long as
it takes the table for short. So each row is found by itself, in the order of the primary key, and
what changes rows is told where they are (`ctid`): while their lock is held nobody moves them.

Other databases are given lists of few lengths (`padding`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Subquery,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    true,
)

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql.padding import padded

NAMES: Final = "ats ofs"
"""The parameters of what is found: the first and the second part of each key."""


def found(table: Table, columns: str = "", numbers: str = "") -> Subquery:
    """The named rows that there are.

    Args:
        table: its primary key is a number and a text.
        columns: what to read of each row.
        numbers: names of what else is given for each row; each is a parameter after `NAMES`.
    """
    sorts: dict[str, Any] = {"ats": BigInteger, "ofs": Text}
    sorts |= dict.fromkeys(numbers.split(), BigInteger)
    arrays: list[ColumnElement[Any]] = [
        cast(bindparam(name), ARRAY(sort)) for name, sort in sorts.items()
    ]
    w = func.unnest(*arrays).table_valued(*sorts, name="w").render_derived()
    k = table.alias("k")
    number, text = k.primary_key
    place: ColumnElement[Any] = literal_column("k.ctid").label("place")
    one = select(place, *[k.c[name] for name in columns.split()])
    # A range in the order of the primary key, and one row of it: so no join can take its place.
    one = one.where(number == w.c.ats, text.between(w.c.ofs, w.c.ofs)).order_by(text).limit(1)
    h = one.lateral("h")
    given = [w.c[name] for name in numbers.split()]
    return select(h, *given).select_from(w.join(h, true())).subquery("p")


def is_at(table: Table, rows: Subquery) -> ColumnElement[bool]:
    """Which rows of the table are those that were found."""
    here: ColumnElement[Any] = literal_column(f"{table.name}.ctid")
    return here == rows.c.place


def columns_of(texts: Mapping[int, Collection[str]]) -> tuple[list[int], list[str]]:
    """Texts by number, as the arrays of a statement."""
    ats = [at for at, those in texts.items() for _ in those]
    return ats, [text for those in texts.values() for text in those]


def among(table: Table, count: int) -> tuple[ColumnElement[bool], str]:
    """The rows of one number and `count` texts, where no parameter is an array; its parameters."""
    number, text = table.primary_key
    names = [f"s{place}" for place in range(count)]
    these = and_(number == bindparam("at"), text.in_([bindparam(name) for name in names]))
    return these, f"at {' '.join(names)}"


def run_many(
    transaction: Transaction,
    statement_of: Callable[[int], Statement],
    given: Iterable[tuple[Row, Sequence[str]]],
) -> None:
    """Runs statements of what is `among` so many texts: each with its first parameters."""
    by_size: dict[int, list[Row]] = {}
    for first, texts in given:
        for some in padded(texts):
            by_size.setdefault(len(some), []).append((*first, *some))
    for size, rows in by_size.items():
        transaction.run_many(statement_of(size), rows)
