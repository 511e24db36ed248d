"""Finding what is not handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from sqlalchemy import bindparam, or_, select
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.acts import StoredTimers
from qframe.stores.edits import slots_of
from qframe.stores.records import ALL_TIMERS, Record, TimerPlace, TimerSpan
from qframe.stores.rules import RANKED
from qframe.stores.sql.cursors import GROUPS
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.lookups import Wanted, whole_heads
from qframe.stores.sql.records import record_of_delayed, record_of_head
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, later, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_c: Final = subjects.c
_SPAN: Final = (
    _c.due >= bindparam("since"),
    _c.due < bindparam("until"),
    or_(_c.due > bindparam("since"), _c.seq >= bindparam("s")),
)
_WAITING: Final = Statement(
    select(subjects)
    .where(_c.cursor == bindparam("at"), _c.state == HeadState.WAITING, _c.rank == 0, *_SPAN)
    .order_by(_c.due, _c.seq)
    .limit(bindparam("most")),
    "at since until since s most",
)
# What is due stands by rank first, so that each rank is read by itself: it is a range of the index,
# where all ranks at once would be all that is due, however long that is.
_MOST_RANKS: Final = 16
_LEAST: Final = 16
_NO_RANK: Final = -(2**62)
_IN_TODO: Final = (_c.cursor == bindparam("at"), _c.state == HeadState.TODO)
_NEXT_RANK: Final = Statement(
    select(_c.rank).where(*_IN_TODO, _c.rank > bindparam("r")).order_by(_c.rank).limit(1), "at r"
)
_OF_RANK: Final = Statement(
    select(subjects)
    .where(*_IN_TODO, _c.rank == bindparam("r"), *_SPAN)
    .order_by(_c.due, _c.seq)
    .limit(bindparam("most")),
    "at r since until since s most",
)
_OF_LATER_RANKS: Final = Statement(
    select(subjects)
    .where(*_IN_TODO, _c.rank > bindparam("r"), *_SPAN)
    .order_by(_c.due, _c.seq)
    .limit(bindparam("most")),
    "at r since until since s most",
)
_LATER: Final = Statement(
    select(later)
    .where(
        later.c.slot == bindparam("at"), later.c.due >= bindparam("since"),
        later.c.due < bindparam("until"),
        or_(later.c.due > bindparam("since"), later.c.id >= bindparam("i")),
    )
    .order_by(later.c.due, later.c.id)
    .limit(bindparam("most")),
    "at since until since i most",
)  # fmt: skip


class SqlTimers(SqlRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        return self._read(topic, timer, subject)

    @override
    def timers(self, topic: Topic, span: TimerSpan = ALL_TIMERS) -> list[Record]:
        return self._read(topic, timers, span)


def timer(transaction: Transaction, ref: TopicRef, subject: str) -> list[Record]:
    """Where a subject stands, for each group that has it."""
    now_ms = transaction.now_ms()
    groups = transaction.rows(GROUPS, (ref.id,))
    names: dict[int, str] = dict(groups)
    anywhere = {slot: [subject] for slot in slots_of(ref.topic, subject)}
    found = [
        (names[head.cursor // PER_TOPIC], head)
        for head in _heads_of(transaction, ref, groups, anywhere)
    ]
    found.sort(key=lambda each: (each[0], each[1].cursor))
    return [record_of_head(ref, name, head, now_ms) for name, head in found]


def timers(transaction: Transaction, ref: TopicRef, span: TimerSpan) -> list[Record]:
    """The timers due in a span of time, in the order of their places."""
    now_ms = transaction.now_ms()
    limit = span.limit
    lines = list(_lines(transaction, ref, now_ms))
    found: list[Record] = []
    share = min(limit, max(_LEAST, 2 * limit // max(1, len({each.at[0] for each in lines}))))
    places: list[tuple[_TimerLine, TimerPlace | None]] = [(each, span.after) for each in lines]
    while places:
        ends: list[tuple[_TimerLine, TimerPlace | None]] = []
        for line, place in places:
            some, end = line.page(transaction, span._replace(limit=share, after=place))
            found += [each for each in some if span.is_behind(each.timer_place)]
            if end is not None:
                ends.append((line, end))
        found.sort(key=attrgetter("timer_place"))
        del found[limit:]
        last = found[-1].timer_place if len(found) == limit else None
        # What else a line has stands behind the last one that was read of it.
        places = [(line, end) for line, end in ends if last is None or end is None or end < last]
        share *= 2
    return found


class _TimerLine(NamedTuple):
    """Timers that a statement reads in the order of their places.

    Attributes:
        query: the statement.
        at: its first parameters.
        record_of: makes a record of a row.
        later: the slot of what waits for a stream; None where the rows are heads.
    """

    query: Statement
    at: tuple[int, ...]
    record_of: Callable[[Row], Record]
    later: int | None = None

    def page(
        self, transaction: Transaction, span: TimerSpan
    ) -> tuple[list[Record], TimerPlace | None]:
        """The next ones of a span, and where to go on if there may be more."""
        since, until, most, after = span
        bound: int | str = 0 if self.later is None else ""
        if after is not None and after.due_ms >= since:
            since = after.due_ms
            if self.later is None:
                bound = after.seq
            elif self.later == after.slot:
                bound = after.id
        # The first may be the last of the page before.
        rows = transaction.rows(self.query, (*self.at, since, until, since, bound, most + 1))
        found = [self.record_of(row) for row in rows]
        end = found[-1].timer_place if len(rows) > most else None
        return [each for each in found if span.is_behind(each.timer_place)], end


def _lines(transaction: Transaction, ref: TopicRef, now_ms: int) -> Iterator[_TimerLine]:
    """The lines of a topic's timers."""
    for group, name in transaction.rows(GROUPS, (ref.id,)):

        def record_of(row: Row, name: str = name) -> Record:
            return record_of_head(ref, name, HeadRow(*row), now_ms)

        for slot in ref.topic.all_slots:
            at = ref.cursor_number(group, slot)
            yield _TimerLine(_WAITING, (at,), record_of)
            if ref.topic.kind in RANKED:
                for query, rank in _ranks(transaction, at):
                    yield _TimerLine(query, (at, rank), record_of)
    for slot in () if ref.topic.has_subjects else ref.topic.all_slots:
        delayed = partial(record_of_delayed, ref, slot)
        yield _TimerLine(_LATER, (ref.slot_number(slot),), delayed, later=slot)


def _ranks(transaction: Transaction, at: int) -> Iterator[tuple[Statement, int]]:
    """How to read what is due of a cursor: the first ranks one by one, then all others."""
    rank = _NO_RANK
    for _ in range(_MOST_RANKS):
        following = transaction.row(_NEXT_RANK, (at, rank))
        if following is None:
            return
        [rank] = following
        yield _OF_RANK, rank
    yield _OF_LATER_RANKS, rank


def _heads_of(
    transaction: Transaction, ref: TopicRef, groups: Sequence[Row], by_slot: Wanted
) -> list[HeadRow]:
    """The heads of subjects, given by slot, in some groups."""
    wanted = {
        ref.cursor_number(group, slot): list(dict.fromkeys(names))
        for group, _ in groups
        for slot, names in by_slot.items()
    }
    return whole_heads(transaction, wanted)
