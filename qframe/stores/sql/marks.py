"""Marks of what was published before, by which it is recognised when it comes again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final

from sqlalchemy import bindparam, select

from qframe.codec import batch_mark_of, series_mark
from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql import named
from qframe.stores.sql.padding import padded
from qframe.stores.sql.schema import marks
from qframe.stores.types import Entry

_ID_OF: Final = attrgetter("id")
_MARK_OF: Final = attrgetter("mark")
_MARK: Final = Statement(marks.insert(), "slot mark expires")
_FORGET: Final = Statement(
    marks.delete().where(marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m")), "at m"
)


@lru_cache(maxsize=64)
def _marked(count: int) -> Statement:
    names = [f"m{number}" for number in range(count)]
    among = marks.c.mark.in_([bindparam(name) for name in names])
    query = select(marks.c.mark, marks.c.expires)
    return Statement(query.where(marks.c.slot == bindparam("at"), among), f"at {' '.join(names)}")


_FOUND: Final = named.found(marks, "mark expires")
_MARKED: Final = Statement(select(_FOUND.c.mark, _FOUND.c.expires), named.NAMES)


@lru_cache(maxsize=16)
def _anywhere(count: int) -> Statement:
    """Whether any of some slots remembers a mark."""
    names = [f"s{number}" for number in range(count)]
    among = marks.c.slot.in_([bindparam(name) for name in names])
    query = select(marks.c.slot).where(marks.c.mark == bindparam("m"), among).limit(1)
    return Statement(query, f"m {' '.join(names)}")


class PublishMarks:
    """The marks that the slots of a publish remember, and those that they are to remember.

    Args:
        transaction: the publish's.
        slots: the numbers of the slots, which are locked.
        entries: all that are published.
        now_ms: the store's now.
        window_ms: for how long a mark is remembered.
    """

    def __init__(
        self, transaction: Transaction, slots: Sequence[int], entries: Sequence[Entry],
        now_ms: int, window_ms: int,
    ) -> None:  # fmt: skip
        self._transaction = transaction
        self._now_ms = now_ms
        self._expires_ms = now_ms + window_ms
        self._gone: list[Row] = []
        self._new: list[Row] = []
        self._all_are_new = _nobody_knows(transaction, slots, entries)

    def are_new(self, at: int, entries: Sequence[Entry]) -> list[bool] | None:
        """Which entries of a slot are no duplicates; None if none of them is one."""
        if self._all_are_new:
            return None
        return _not_seen(self._transaction, at, entries, self._now_ms)

    def note(self, at: int, entries: Sequence[Entry]) -> None:
        """Has a slot remember the entries that it has taken."""
        self._new += [(at, mark, self._expires_ms) for mark in set(map(_MARK_OF, entries))]
        if not self._all_are_new:
            places = dict(series_mark(*one.series) for one in entries if one.series is not None)
            self._gone += [(at, mark) for mark in places]
            self._new += [(at, mark, place) for mark, place in places.items()]

    def flush(self) -> None:
        """Writes what was noted."""
        self._transaction.run_many(_FORGET, self._gone)
        self._transaction.run_many(_MARK, self._new)


def _nobody_knows(transaction: Transaction, slots: Sequence[int], entries: Sequence[Entry]) -> bool:
    """Whether all of them bear one mark, as a batch does, and none of the slots remembers it."""
    mark = entries[0].mark if entries else ""
    if set(map(_MARK_OF, entries)) != {mark} or mark in map(_ID_OF, entries):
        return False
    return not any(transaction.row(_anywhere(len(some)), (mark, *some)) for some in padded(slots))


def _not_seen(
    transaction: Transaction, at: int, entries: Sequence[Entry], now_ms: int
) -> list[bool]:
    """Which entries are no duplicates."""
    wanted: dict[str, None] = {}
    for entry in entries:
        wanted[entry.mark] = None
        if entry.mark == entry.id and (batch := batch_mark_of(entry.id)):
            wanted[batch] = None
        if entry.series is not None:
            wanted[series_mark(*entry.series)[0]] = None
    known: dict[str, int] = {}
    for mark, expires in _marks(transaction, at, list(wanted)):
        if expires > now_ms:
            known[mark] = expires
        else:
            transaction.run(_FORGET, (at, mark))
    seen: set[str] = set()
    results = []
    for entry in entries:
        named = entry.mark == entry.id
        is_new = entry.id not in seen and entry.mark not in known
        if is_new and named and (batch := batch_mark_of(entry.id)):
            is_new = batch not in known
        if is_new and entry.series is not None:
            mark, place_ms = series_mark(*entry.series)
            if is_new := known.get(mark, -1) < place_ms:
                known[mark] = place_ms
        results.append(is_new)
        if is_new:
            seen.add(entry.id)
    return results


def _marks(transaction: Transaction, at: int, wanted: Sequence[str]) -> list[Row]:
    """The given marks that a slot has, and when they expire."""
    if transaction.takes_arrays:
        return transaction.rows(_MARKED, ([at] * len(wanted), wanted)) if wanted else []
    return [
        row for some in padded(wanted) for row in transaction.rows(_marked(len(some)), (at, *some))
    ]
