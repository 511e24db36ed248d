"""Changing what is not handed out: moved, changed, cancelled, looked up by subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from sqlalchemy import bindparam, delete, or_, select
from typing_extensions import override

from qframe.codec import KEYLESS
from qframe.drivers.sql import Row, Statement, Transaction
from qframe.outcomes import Moved
from qframe.stores import rules
from qframe.stores.acts import StoredTimers
from qframe.stores.history import changes_of, key_of, timer_entry
from qframe.stores.records import ALL_TIMERS, HistoryEntry, Record, TimerPlace, TimerSpan
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads
from qframe.stores.sql.cursors import GROUPS, check_open, lock_cursors
from qframe.stores.sql.heads import HeadRow, headers_text
from qframe.stores.sql.histories import keep
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.records import record_of_delayed, record_of_head
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog, later, subjects
from qframe.stores.sql.topic_ref import TopicRef, check_slots
from qframe.topic import Topic

_DROP_BEHIND: Final = Statement(
    delete(backlog).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)
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
    def edit(
        self,
        topic: Topic,
        subject: str,
        *,
        due_ms: int | None = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        if_due_ms: int | None = None,
        by: str | None = None,
    ) -> Moved:
        return self._write(
            topic, edit, subject, due_ms=due_ms, body=body, headers=headers_text(headers),
            if_due_ms=if_due_ms, by=by,
        )  # fmt: skip

    @override
    def cancel(
        self, topic: Topic, subject: str, *, if_due_ms: int | None = None, by: str | None = None
    ) -> Moved:
        return self._write(topic, cancel, subject, if_due_ms=if_due_ms, by=by)

    @override
    def timer(self, topic: Topic, subject: str) -> list[Record]:
        return self._read(topic, timer, subject)

    @override
    def timers(self, topic: Topic, span: TimerSpan = ALL_TIMERS) -> list[Record]:
        return self._read(topic, timers, span)


def edit(
    transaction: Transaction,
    ref: TopicRef,
    subject: str,
    *,
    due_ms: int | None,
    body: bytes | None,
    headers: str | None,
    if_due_ms: int | None,
    by: str | None,
) -> Moved:
    """Makes a subject due at another time, or gives it another body, for every group."""

    def edited(head: HeadRow, now_ms: int) -> None:
        if due_ms is not None:
            head.due_ms = max(0, due_ms)
            position = heads.position_of(ref.topic.kind, head.due_ms, head.priority, now_ms)
            head.state, head.rank = position
            notify_messages(transaction, ref, [head.cursor % PER_TOPIC])
        if body is not None:
            head.body, head.headers = body, headers
        heads.save(transaction, head)

    entry = partial(timer_entry, by=by, changes=changes_of(due_ms, body))
    return _change(transaction, ref, subject, if_due_ms, edited, entry)


def cancel(
    transaction: Transaction, ref: TopicRef, subject: str, *, if_due_ms: int | None, by: str | None
) -> Moved:
    """Takes a subject out with all its messages, for every group."""

    def cancelled(head: HeadRow, _now_ms: int) -> None:
        behind = transaction.run(_DROP_BEHIND, (head.cursor, subject))
        transaction.run(heads.DELETE, (head.cursor, subject))
        transaction.run(arrive.COUNT, (0, 0, 1 + behind, head.cursor))

    return _change(transaction, ref, subject, if_due_ms, cancelled, partial(timer_entry, by=by))


def timer(transaction: Transaction, ref: TopicRef, subject: str) -> list[Record]:
    """Where a subject stands, for each group that has it."""
    now_ms = transaction.now_ms()
    return [
        record_of_head(ref, name, head, now_ms)
        for name, head in _heads_of(transaction, ref, subject, transaction.rows(GROUPS, (ref.id,)))
    ]


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
            if ref.topic.kind in rules.RANKED:
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


def _change(
    transaction: Transaction,
    ref: TopicRef,
    subject: str,
    if_due_ms: int | None,
    apply: Callable[[HeadRow, int], None],
    entry: Callable[[str, int, int], HistoryEntry],
) -> Moved:
    """Applies a change to a subject's head in every group, unless one has it in doing."""
    found = _locked_heads(transaction, ref, subject)
    if any(head.state == HeadState.DOING for _, head in found):
        return Moved.DOING
    if not any(if_due_ms in (None, head.due_ms) for _, head in found):
        check_slots(transaction, ref)
        return Moved.ABSENT
    now_ms = transaction.now_ms()
    for _, head in found:
        apply(head, now_ms)
        if ref.topic.history_ms:
            ended = entry(head.id, head.tries, now_ms)
            keep(transaction, [(head.cursor, key_of(ref.topic, subject), ended)])
    return Moved.DONE


def _locked_heads(
    transaction: Transaction, ref: TopicRef, subject: str
) -> list[tuple[str, HeadRow]]:
    """The heads of a subject once the cursors of all groups in its slot are locked.

    Groups that have subscribed before that are locked in their turn: none hands it out now.
    """
    slots = {ref.topic.slot_of(subject.encode())}
    if subject.startswith(KEYLESS):
        groups = transaction.rows(GROUPS, (ref.id,))
        slots |= {
            head.cursor % PER_TOPIC for _, head in _heads_of(transaction, ref, subject, groups)
        }
    before = None
    while (groups := transaction.rows(GROUPS, (ref.id,))) != before:
        wanted = [ref.cursor_number(number, slot) for number, _ in groups for slot in slots]
        check_open(ref, lock_cursors(transaction, wanted).values())
        before = groups
    return _heads_of(transaction, ref, subject, groups)


def _heads_of(
    transaction: Transaction, ref: TopicRef, subject: str, groups: Sequence[Row]
) -> list[tuple[str, HeadRow]]:
    """The heads of a subject, with the names of their groups.

    A subject that is a key names its slot; one that is the hash of a body does not, so all slots
    are looked through, by primary key.
    """
    by_key = ref.topic.slot_of(subject.encode())
    slots = ref.topic.all_slots if subject.startswith(KEYLESS) else (by_key,)
    found = []
    for group, name in groups:
        for slot in slots:
            head = heads.fetched(transaction, ref.cursor_number(group, slot), subject)
            if head is not None:
                found.append((name, head))
    return found
