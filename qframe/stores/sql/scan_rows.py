"""SqlPages of whole tables, in the order of their primary keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec
from sqlalchemy import and_, bindparam, or_, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.records import Record, Section, SectionPage, Sought
from qframe.stores.sql import window
from qframe.stores.sql.cursors import EVERYTHING
from qframe.stores.sql.heads import BEHIND, HeadRow
from qframe.stores.sql.lookups import whole_heads
from qframe.stores.sql.records import (
    record_behind,
    record_of_dead,
    record_of_delayed,
    record_of_head,
)
from qframe.stores.sql.schema import backlog, dead, held, later, subjects
from qframe.stores.sql.search_rows import (
    SqlLineReader,
    dead_of,
    record_of_held,
    records_behind,
)
from qframe.stores.sql.topic_ref import TopicRef

_c: Final = subjects.c
_HELD: Final = Statement(
    select(held)
    .where(
        held.c.slot == bindparam("at"),
        or_(held.c.key > bindparam("k"),
            and_(held.c.key == bindparam("k"), held.c.sequence > bindparam("n"))),
    )
    .order_by(held.c.key, held.c.sequence)
    .limit(bindparam("most")),
    "at k k n most",
)  # fmt: skip
_LATER: Final = Statement(
    select(later)
    .where(later.c.slot == bindparam("at"), later.c.number > bindparam("n"))
    .order_by(later.c.number)
    .limit(bindparam("most")),
    "at n most",
)
_DEAD: Final = Statement(
    select(dead)
    .where(dead.c.cursor == bindparam("at"), dead.c.seq > bindparam("s"))
    .order_by(dead.c.seq)
    .limit(bindparam("most")),
    "at s most",
)
_HEADS: Final = Statement(
    select(subjects)
    .where(_c.cursor == bindparam("at"), _c.subject > bindparam("of"))
    .order_by(_c.subject)
    .limit(bindparam("most")),
    "at of most",
)
_HEAD_NAMES: Final = Statement(
    select(_c.subject, _c.id, _c.key)
    .where(_c.cursor == bindparam("at"), _c.subject > bindparam("of"))
    .order_by(_c.subject)
    .limit(bindparam("most")),
    "at of most",
)
_BEHIND: Final = Statement(
    select(backlog)
    .where(
        backlog.c.cursor == bindparam("at"),
        or_(backlog.c.subject > bindparam("of"),
            and_(backlog.c.subject == bindparam("of"), backlog.c.seq > bindparam("s"))),
    )
    .order_by(backlog.c.subject, backlog.c.seq)
    .limit(bindparam("most")),
    "at of of s most",
)  # fmt: skip


class SqlPages:
    """Reads sections of a topic, a page at a time.

    Args:
        transaction: the transaction.
        ref: the topic.
        groups: the numbers of groups, by name.
        sought: what to read; None for all. Of other messages some are read too.
    """

    def __init__(
        self, transaction: Transaction, ref: TopicRef, groups: Mapping[str, int],
        sought: Sought | None = None,
    ) -> None:  # fmt: skip
        self._transaction = transaction
        self._ref = ref
        self._groups = groups
        self._sought = Sought() if sought is None else sought
        self._now_ms = transaction.now_ms()
        self._log = SqlLineReader(transaction, ref, groups, self._now_ms)

    def read(self, section: Section, after: str, limit: int) -> SectionPage:
        """A page of a section, behind what was read last."""
        slot, part, group = section
        in_slot = self._ref.slot_number(slot)
        if part == "line":
            rows = self._transaction.rows(window.READ, (in_slot, int(after or 0), limit))
            records = list(self._log.page(slot, rows))
            return _page(records, rows, limit, lambda row: str(row[0] + 1))
        if part == "later":
            rows = self._transaction.rows(_LATER, (in_slot, int(after or -1), limit))
            records = [record_of_delayed(self._ref, slot, row) for row in rows]
            return _page(records, rows, limit, lambda row: str(row[1]))
        if part == "held":
            key, number = _pair(after)
            rows = self._transaction.rows(_HELD, (in_slot, key, key, number, limit))
            records = [record_of_held(self._ref, slot, row) for row in rows]
            return _page(records, rows, limit, lambda row: _text(row[1], row[2]))
        return self._of_group(part, group, self._ref.cursor_number(self._groups[group], slot),
                              after, limit)  # fmt: skip

    def _of_group(self, part: str, group: str, at: int, after: str, limit: int) -> SectionPage:
        is_named = self._sought.id is not None or self._sought.key is not None
        if part == "heads" and is_named:
            names = self._transaction.rows(_HEAD_NAMES, (at, after, limit))
            return _page(self._heads(group, at, names), names, limit, lambda row: row[0])
        if part == "heads":
            rows = self._transaction.rows(_HEADS, (at, after, limit))
            records = [
                record_of_head(self._ref, group, HeadRow(*row), self._now_ms) for row in rows
            ]
            return _page(records, rows, limit, lambda row: row[1])
        if part == "behind":
            subject, seq = _pair(after)
            rows = self._transaction.rows(_BEHIND, (at, subject, subject, seq, limit))
            records = self._behind(group, at, rows, after)
            return _page(records, rows, limit, lambda row: _text(row[1], row[2]))
        if is_named:
            rows = dead_of(self._transaction, at, self._sought, EVERYTHING)
            return SectionPage([record_of_dead(self._ref, group, row) for row in rows], 0, None)
        rows = self._transaction.rows(_DEAD, (at, int(after or -1), limit))
        records = [record_of_dead(self._ref, group, row) for row in rows]
        return _page(records, rows, limit, lambda row: str(row[1]))

    def _heads(self, group: str, at: int, names: Sequence[Row]) -> list[Record]:
        """The heads that are sought, of subjects with their ids and keys."""
        sought = self._sought
        wanted = [
            subject
            for subject, message_id, key in names
            if sought.id in (None, message_id) and sought.key in (None, key)
        ]
        heads = whole_heads(self._transaction, {at: wanted}) if wanted else []
        return [record_of_head(self._ref, group, head, self._now_ms) for head in heads]

    def _behind(self, group: str, at: int, rows: Sequence[Row], after: str) -> list[Record]:
        """Messages behind heads; the rows of a subject go on where the last page has ended."""
        names = list(dict.fromkeys(row[1] for row in rows))
        by_subject = {head.subject: head for head in whole_heads(self._transaction, {at: names})}
        found: list[Record] = []
        for subject, of_subject in groupby(rows, key=itemgetter(1)):
            some = list(of_subject)
            head = by_subject.get(subject)
            if head is None:
                found += [record_behind(self._ref, group, "todo", row) for row in some]
                continue
            first = 1 + self._passed(head, *_pair(after))
            found += records_behind(self._ref, group, head, some, self._now_ms, first=first)
        return found

    def _passed(self, head: HeadRow, subject: str, seq: int) -> int:
        """How many of a head's run stand up to a place, in that subject, without the head."""
        if head.subject != subject or head.given <= 1:
            return 0
        run = self._transaction.rows(BEHIND, (head.cursor, subject, head.given - 1))
        return sum(row[2] <= seq for row in run)


def _page(
    records: list[Record], rows: Sequence[Row], limit: int, place: Callable[[Row], str]
) -> SectionPage:
    more = place(rows[-1]) if rows and len(rows) >= limit else None
    return SectionPage(records, len(rows), more)


def _text(name: str, number: int) -> str:
    return msgspec.json.encode((name, number)).decode()


def _pair(after: str) -> tuple[str, int]:
    return msgspec.json.decode(after, type=tuple[str, int]) if after else ("", -1)
