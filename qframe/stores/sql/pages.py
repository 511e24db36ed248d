"""Messages of sections: pages in the order of an index, and look-ups by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
from sqlalchemy import and_, bindparam, or_, select, union_all
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.pages import Pages
from qframe.stores.records import (
    DeadPlace,
    LogSpan,
    LookUp,
    PageAsk,
    Record,
    Remembered,
    Section,
    SectionPage,
    Sought,
    TimerPlace,
)
from qframe.stores.rules import RANKED
from qframe.stores.sql import lookups, window
from qframe.stores.sql.cursors import EVERYTHING, GROUPS
from qframe.stores.sql.groups import SLOTS
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.padding import padded
from qframe.stores.sql.records import (
    record_behind,
    record_of_dead,
    record_of_delayed,
    record_of_head,
    record_of_held,
    record_of_log,
)
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import (
    HeadState,
    backlog,
    dead,
    held,
    is_there,
    later,
    marks,
    subjects,
)
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_AT_ONCE: Final = 256
"""How many cursors one statement asks: SQLite takes 500 selects in one."""

_c: Final = subjects.c
_MARK: Final = Statement(
    select(marks.c.expires).where(
        marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m"),
        marks.c.expires > bindparam("now"),
    ),
    "at m now",
)  # fmt: skip
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
_HELD_OF: Final = Statement(
    select(held)
    .where(held.c.slot == bindparam("at"), held.c.key == bindparam("k"))
    .order_by(held.c.sequence)
    .limit(bindparam("most")),
    "at k most",
)
_LATER: Final = Statement(
    select(later)
    .where(later.c.slot == bindparam("at"), later.c.number > bindparam("n"))
    .order_by(later.c.number)
    .limit(bindparam("most")),
    "at n most",
)
_DELAYED: Final = Statement(
    select(later)
    .where(
        later.c.slot == bindparam("at"), later.c.due >= bindparam("since"),
        or_(later.c.due > bindparam("since"), later.c.id >= bindparam("i")),
    )
    .order_by(later.c.due, later.c.id)
    .limit(bindparam("most")),
    "at since since i most",
)  # fmt: skip
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
# Heads are read by their names first: those that are not wanted may have large bodies.
_NAMES: Final = select(_c.subject, _c.id, _c.key, _c.due, _c.seq).limit(bindparam("most"))
_HEAD_NAMES: Final = Statement(
    _NAMES.where(_c.cursor == bindparam("at"), _c.subject > bindparam("of")).order_by(_c.subject),
    "at of most",
)
_STANDING: Final = Statement(
    _NAMES.where(
        _c.cursor == bindparam("at"), _c.state == bindparam("standing"), is_there(_c.state)
    ).order_by(_c.rank, _c.due, _c.seq),
    "at standing most",
)  # fmt: skip
_IN_SPAN: Final = (
    _c.cursor == bindparam("at"),
    _c.due >= bindparam("since"),
    or_(_c.due > bindparam("since"), _c.seq >= bindparam("s")),
)
_NEXT: Final = _NAMES.order_by(_c.due, _c.seq)
_WAITING: Final = Statement(
    _NEXT.where(_c.state == HeadState.WAITING, _c.rank == 0, *_IN_SPAN), "at since since s most"
)
# What is due stands by rank first, so that each rank is read by itself: it is a range of the index,
# where all ranks at once would be all that is due, however long that is.
_MOST_RANKS: Final = 16
_NO_RANK: Final = -(2**62)
_NEXT_RANK: Final = Statement(
    select(_c.rank)
    .where(_c.cursor == bindparam("at"), _c.state == HeadState.TODO, _c.rank > bindparam("r"))
    .order_by(_c.rank)
    .limit(1),
    "at r",
)
_OF_RANK: Final = Statement(
    _NEXT.where(_c.state == HeadState.TODO, *_IN_SPAN, _c.rank == bindparam("r")),
    "at since since s r most",
)
_OF_LATER_RANKS: Final = Statement(
    _NEXT.where(_c.state == HeadState.TODO, *_IN_SPAN, _c.rank > bindparam("r")),
    "at since since s r most",
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
_BEHIND_OF_ID: Final = Statement(
    select(backlog)
    .where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of"),
        backlog.c.id == bindparam("i"),
    )
    .order_by(backlog.c.seq)
    .limit(bindparam("most")),
    "at of i most",
)  # fmt: skip


@lru_cache(maxsize=64)
def _dead_of(name: str, count: int) -> Statement:
    """The rows of a cursor with some values in a column."""
    values = [f"v{number}" for number in range(count)]
    query = select(dead).where(
        dead.c.cursor == bindparam("at"),
        dead.c[name].in_([bindparam(value) for value in values])
        if count > 1
        else dead.c[name] == bindparam("v0"),
    )
    if count > 1:
        return Statement(query, f"at {' '.join(values)}")
    # Sorted by the column itself, all that is dead would be read in that order for the first few.
    return Statement(query.order_by(dead.c.seq + 0).limit(bindparam("most")), "at v0 most")


@lru_cache(maxsize=16)
def _died(cursors: int) -> Statement:
    """The first rows of some cursors by their death, each from a place of its own on.

    Each cursor is a range of the index; taken together they would be read whole, and sorted.
    """
    branches = [
        select(dead)
        .where(
            dead.c.cursor == bindparam(f"c{each}"),
            dead.c.died_at >= bindparam(f"d{each}"),
            or_(dead.c.died_at > bindparam(f"d{each}"), dead.c.seq > bindparam(f"s{each}")),
        )
        .order_by(dead.c.died_at, dead.c.seq)
        .limit(bindparam(f"m{each}"))
        .subquery()
        .select()
        for each in range(cursors)
    ]
    names = " ".join(f"c{each} d{each} d{each} s{each} m{each}" for each in range(cursors))
    return Statement(union_all(*branches) if cursors > 1 else branches[0], names)


class SqlPages(SqlRole, Pages):
    """Rows, all of a call in one transaction."""

    @override
    def pages(self, topic: Topic, asks: Sequence[PageAsk]) -> list[SectionPage]:
        return self._read(topic, pages, asks)

    @override
    def look_up(self, topic: Topic, asks: Sequence[LookUp]) -> list[list[Record]]:
        return self._read(topic, look_up, asks)

    @override
    def spans(self, topic: Topic) -> dict[int, LogSpan]:
        return self._read(topic, spans)

    @override
    def marked(self, topic: Topic, ids: Sequence[str]) -> list[Remembered]:
        return self._read(topic, marked, ids)


def pages(transaction: Transaction, ref: TopicRef, asks: Sequence[PageAsk]) -> list[SectionPage]:
    """A page for each ask."""
    reader = _Reader(transaction, ref)
    died = reader.died([ask for ask in asks if ask.section.part == "died"])
    return [next(died) if ask.section.part == "died" else reader.page(ask) for ask in asks]


def look_up(transaction: Transaction, ref: TopicRef, asks: Sequence[LookUp]) -> list[list[Record]]:
    """The messages of each look-up."""
    reader = _Reader(transaction, ref)
    heads = reader.heads([ask for ask in asks if ask.section.part == "heads"])
    behind = reader.behind([ask for ask in asks if ask.section.part == "behind"])
    found = {"heads": heads, "behind": behind}
    return [
        next(found[ask.section.part]) if ask.section.part in found else reader.look_up(ask)
        for ask in asks
    ]


def spans(transaction: Transaction, ref: TopicRef) -> dict[int, LogSpan]:
    """The part of each slot of a stream that is kept."""
    found = {}
    for at, head, kept in transaction.rows(SLOTS, ref.slot_range()):
        slot = at - ref.slot_number(0)
        if ref.is_in_use(slot):
            first = head if kept is None else kept
            rows = transaction.rows(window.LINE, (at, first, 1))
            found[slot] = LogSpan(first, head, rows[0][-1] if rows else None)
    return found


def marked(transaction: Transaction, ref: TopicRef, ids: Sequence[str]) -> list[Remembered]:
    """The slots that remember an id."""
    now_ms = transaction.now_ms()
    return [
        Remembered(slot, row[0] - ref.topic.dedupe_window_ms)
        for slot in ref.topic.all_slots
        for mark in ids
        for row in transaction.rows(_MARK, (ref.slot_number(slot), mark, now_ms))
    ]


class _Reader:
    """Reads sections of a topic in one transaction."""

    def __init__(self, transaction: Transaction, ref: TopicRef) -> None:
        self._transaction = transaction
        self._ref = ref
        self._now_ms = transaction.now_ms()
        self._groups = {name: number for number, name in transaction.rows(GROUPS, (ref.id,))}

    def page(self, ask: PageAsk) -> SectionPage:
        """A page of a section; of the dead by their death `died` has it."""
        (slot, part, _), after, limit = ask.section, ask.after, ask.limit
        rows, in_slot = self._transaction.rows, self._ref.slot_number(slot)
        if part == "line":
            found = rows(window.LINE, (in_slot, int(after or 0), limit))
            records = [self._of_log(slot, row) for row in found]
            return _page(records, found, limit, lambda row: str(row[0] + 1))
        if part == "later":
            found = rows(_LATER, (in_slot, int(after or -1), limit))
            records = [record_of_delayed(self._ref, slot, row) for row in found]
            return _page(records, found, limit, lambda row: str(row[1]))
        if part == "delayed":
            return self._delayed(slot, TimerPlace.read(after), limit)
        if part == "held":
            key, number = _pair(after)
            found = rows(_HELD, (in_slot, key, key, number, limit))
            records = [record_of_held(self._ref, slot, row) for row in found]
            return _page(records, found, limit, lambda row: _text(row[1], row[2]))
        return self._of_group(ask, self._cursor(ask.section))

    def _of_group(self, ask: PageAsk, at: int) -> SectionPage:
        (_, part, group), after, limit = ask.section, ask.after, ask.limit
        rows, sought = self._transaction.rows, Sought() if ask.sought is None else ask.sought
        is_named = sought.id is not None or sought.key is not None
        if part == "timers":
            return self._timers(ask, at, sought)
        if part in ("doing", "todo", "waiting"):
            found = self._standing(at, part, limit)
            return SectionPage(self._heads(group, at, found), len(found), None)
        if part == "heads" and is_named:
            found = rows(_HEAD_NAMES, (at, after, limit))
            return _page(self._heads(group, at, found, sought), found, limit, itemgetter(0))
        if part == "heads":
            found = rows(_HEADS, (at, after, limit))
            records = [
                record_of_head(self._ref, group, HeadRow(*row), self._now_ms) for row in found
            ]
            return _page(records, found, limit, itemgetter(1))
        if part == "behind":
            subject, seq = _pair(after)
            found = rows(_BEHIND, (at, subject, subject, seq, limit))
            records = [record_behind(self._ref, group, "todo", row) for row in found]
            return _page(records, found, limit, lambda row: _text(row[1], row[2]))
        if is_named:
            by, value = ("id", sought.id) if sought.id is not None else ("key", sought.key)
            found = rows(_dead_of(by, 1), (at, value, EVERYTHING))
            return SectionPage([record_of_dead(self._ref, group, row) for row in found], 0, None)
        found = rows(_DEAD, (at, int(after or -1), limit))
        records = [record_of_dead(self._ref, group, row) for row in found]
        return _page(records, found, limit, lambda row: str(row[1]))

    def _standing(self, at: int, part: str, limit: int) -> list[Row]:
        """Heads by their turn; what is due in kinds ordered by time is the beginning of waiting."""
        rows, now_ms = self._transaction.rows, self._now_ms
        if part == "doing":
            return rows(_STANDING, (at, HeadState.DOING, limit))
        if part == "waiting":
            return rows(_WAITING, (at, now_ms + 1, now_ms + 1, 0, limit))
        ranked = rows(_STANDING, (at, HeadState.TODO, limit))
        due = [row for row in rows(_WAITING, (at, 0, 0, 0, limit)) if row[3] <= now_ms]
        return [*ranked, *due][:limit]

    def _timers(self, ask: PageAsk, at: int, sought: Sought) -> SectionPage:
        """Heads that are not handed out, by due time: of each line its first ones."""
        (slot, _, group), after, limit = ask.section, TimerPlace.read(ask.after), ask.limit
        places: list[tuple[TimerPlace, Row]] = []
        for query, rank in [(_WAITING, ()), *self._ranks(at)]:
            given = (at, after.due_ms, after.due_ms, after.seq, *rank, limit + 2)
            for row in self._transaction.rows(query, given):
                place = TimerPlace(row[3], row[4], slot, group, "")
                places += [(place, row)] if place > after else []
        places.sort(key=itemgetter(0))
        records = self._heads(group, at, [row for _, row in places[:limit]], sought)
        more = str(places[limit - 1][0]) if len(places) > limit else None
        return SectionPage(records, min(limit, len(places)), more)

    def _ranks(self, at: int) -> Iterator[tuple[Statement, tuple[int, ...]]]:
        """How to read what is due: the first ranks one by one, then all others."""
        rank = _NO_RANK
        for _ in range(_MOST_RANKS if self._ref.topic.kind in RANKED else 0):
            following = self._transaction.row(_NEXT_RANK, (at, rank))
            if following is None:
                return
            [rank] = following
            yield _OF_RANK, (rank,)
        if rank != _NO_RANK:
            yield _OF_LATER_RANKS, (rank,)

    def _delayed(self, slot: int, after: TimerPlace, limit: int) -> SectionPage:
        since, name = after.due_ms, ""
        if (0, slot) == (after.seq, after.slot):
            name = after.id
        elif (0, slot) < (after.seq, after.slot):  # those of that moment are before it
            since += 1
        given = (self._ref.slot_number(slot), since, since, name, limit + 2)
        found = self._transaction.rows(_DELAYED, given)
        records = [record_of_delayed(self._ref, slot, row) for row in found]
        return _ordered(records, after, limit, attrgetter("timer_place"))

    def died(self, asks: Sequence[PageAsk]) -> Iterator[SectionPage]:
        """Pages of the dead by their death."""
        for start in range(0, len(asks), _AT_ONCE):
            some = asks[start : start + _AT_ONCE]
            given: list[int] = []
            for ask in some:
                at, place = self._cursor(ask.section), DeadPlace.read(ask.after)
                # What died in the same millisecond follows by slot.
                is_behind = ask.section.slot > place.slot
                same = place.seq if ask.section.slot == place.slot else EVERYTHING
                died_at, seq = place.died_at_ms, -1 if is_behind else same
                given += (at, died_at, died_at, seq, ask.limit + 1)
            rows = self._transaction.rows(_died(len(some)), tuple(given))
            by_cursor = {at: list(of) for at, of in groupby(sorted(rows), key=itemgetter(0))}
            for ask in some:
                of_cursor = by_cursor.get(self._cursor(ask.section), [])
                records = [record_of_dead(self._ref, ask.section.group, row) for row in of_cursor]
                place = DeadPlace.read(ask.after)
                yield _ordered(records, place, ask.limit, attrgetter("dead_place"))

    def heads(self, asks: Sequence[LookUp]) -> Iterator[list[Record]]:
        """The heads of subjects."""
        wanted: dict[int, dict[str, None]] = {}
        for ask in asks:
            of_cursor = wanted.setdefault(self._cursor(ask.section), {})
            of_cursor.update(dict.fromkeys(ask.values))
        subjects_of = {at: [*names] for at, names in wanted.items() if names}
        found: dict[int, dict[str, HeadRow]] = {}
        for head in lookups.whole_heads(self._transaction, subjects_of) if subjects_of else ():
            found.setdefault(head.cursor, {})[head.subject] = head
        for ask in asks:
            here = found.get(self._cursor(ask.section), {})
            yield [
                record_of_head(self._ref, ask.section.group, here[name], self._now_ms)
                for name in dict.fromkeys(ask.values)
                if name in here
            ]

    def behind(self, asks: Sequence[LookUp]) -> Iterator[list[Record]]:
        """The messages behind heads."""
        wanted: dict[tuple[int, str], int] = {}
        for ask in asks:
            at = self._cursor(ask.section)
            for name in ask.values if ask.id is None else ():
                wanted[at, name] = max(ask.limit, wanted.get((at, name), 0))
        places = [(at, name, most) for (at, name), most in wanted.items()]
        rows = lookups.behind(self._transaction, places)
        for ask in asks:
            at = self._cursor(ask.section)
            found = []
            for name in ask.values:
                if ask.id is None:
                    found += rows.get((at, name), [])[: ask.limit]
                else:
                    given = (at, name, ask.id, ask.limit)
                    found += self._transaction.rows(_BEHIND_OF_ID, given)
            yield [record_behind(self._ref, ask.section.group, "todo", row) for row in found]

    def look_up(self, ask: LookUp) -> list[Record]:
        """What is held of keys, or the dead of seqs, ids or keys."""
        slot, part, group = ask.section
        if part == "held":
            return [
                record_of_held(self._ref, slot, row)
                for key in ask.values
                for row in self._transaction.rows(
                    _HELD_OF, (self._ref.slot_number(slot), key, ask.limit)
                )
            ]
        at = self._cursor(ask.section)
        values: Sequence[Any] = [*map(int, ask.values)] if ask.by == "seq" else ask.values
        rows: dict[tuple[int, int], Row] = {}
        for some in padded(values):
            most = (ask.limit,) if len(some) == 1 else ()
            found = self._transaction.rows(_dead_of(ask.by, len(some)), (at, *some, *most))
            rows |= {row[:2]: row for row in found}
        return [record_of_dead(self._ref, group, rows[place]) for place in sorted(rows)]

    def _cursor(self, section: Section) -> int:
        """The number of a section's cursor; one without any rows if there is no such group."""
        number = self._groups.get(section.group)
        return -1 if number is None else self._ref.cursor_number(number, section.slot)

    def _heads(
        self, group: str, at: int, rows: Sequence[Row], sought: Sought | None = None
    ) -> list[Record]:
        """The heads of subjects with their ids and keys, in that order; those that are sought."""
        names = [
            subject for subject, message_id, key, *_ in rows
            if sought is None
            or (sought.id in (None, message_id) and sought.key in (None, key))
        ]  # fmt: skip
        heads = lookups.whole_heads(self._transaction, {at: names}) if names else []
        found = {head.subject: head for head in heads}
        return [
            record_of_head(self._ref, group, found[name], self._now_ms)
            for name in names if name in found
        ]  # fmt: skip

    def _of_log(self, slot: int, row: Row) -> Record:
        record = record_of_log(self._ref, None, slot, "todo", row)
        record.due_ms = row[-1]
        return record


def _page(
    records: list[Record], rows: Sequence[Row], limit: int, place: Callable[[Row], str]
) -> SectionPage:
    more = place(rows[-1]) if rows and len(rows) >= limit else None
    return SectionPage(records, len(rows), more)


def _ordered(
    records: Sequence[Record], after: Any, limit: int, place_of: Callable[[Record], Any]
) -> SectionPage:
    """The first records behind a place, of those that were read: more than a page, if there are."""
    behind = sorted((one for one in records if place_of(one) > after), key=place_of)
    page = behind[:limit]
    return SectionPage(page, len(page), str(place_of(page[-1])) if len(behind) > limit else None)


def _text(name: str, number: int) -> str:
    return msgspec.json.encode((name, number)).decode()


def _pair(after: str) -> tuple[str, int]:
    return msgspec.json.decode(after, type=tuple[str, int]) if after else ("", -1)
