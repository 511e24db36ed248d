"""Edits of heads and of dead letters, all of a call in one transaction.

The cursors of all groups that an edit is for are locked first, and a slot where a dead letter is
published again. Heads are read together, changed as `qframe.stores.rules` says, and written
together; dead letters are settled in runs of one sort.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from sqlalchemy import bindparam, delete, select
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.outcomes import Moved
from qframe.stores import rules
from qframe.stores.edits import Becomes, Edit, Rewriting
from qframe.stores.history import key_of, timer_entry
from qframe.stores.records import HistoryEntry
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads
from qframe.stores.sql.arrivals import Arrival
from qframe.stores.sql.cursors import GROUPS, check_open, lock_cursors, lock_slots
from qframe.stores.sql.heads import HeadRow, headers_text
from qframe.stores.sql.histories import keep
from qframe.stores.sql.lookups import KnownHead, known_heads, published_at, whole_heads
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.padding import padded
from qframe.stores.sql.parking import Coming, leave
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, backlog
from qframe.stores.sql.schema import dead as dead_letters
from qframe.stores.sql.topic_ref import TopicRef, check_slots
from qframe.topic import Kind, Topic

_DROP_BEHIND: Final = Statement(
    delete(backlog).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)
_REMOVE: Final = Statement(
    delete(dead_letters).where(
        dead_letters.c.cursor == bindparam("at"), dead_letters.c.seq == bindparam("s")
    ),
    "at s",
)
_TIME_BEHIND: Final = Statement(
    select(backlog.c.published_at).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)


@lru_cache(maxsize=16)
def _letters(size: int) -> Statement:
    """The dead letters of a cursor that have some numbers."""
    names = [f"s{place}" for place in range(size)]
    these = dead_letters.c.seq.in_([bindparam(name) for name in names])
    return Statement(
        select(dead_letters).where(dead_letters.c.cursor == bindparam("at"), these),
        f"at {' '.join(names)}",
    )


class SqlRewriting(SqlRole, Rewriting):
    """Rows of subjects, and of the dead."""

    @override
    def rewrite(self, topic: Topic, edits: Sequence[Edit], *, by: str | None = None) -> list[Moved]:
        return self._write(topic, rewrite, edits, by)


class _Placed(NamedTuple):
    """An edit with the cursors of all groups and slots that it is for."""

    edit: Edit
    cursors: list[int]


def rewrite(
    transaction: Transaction, ref: TopicRef, edits: Sequence[Edit], by: str | None
) -> list[Moved]:
    """Makes edits, in order."""
    placed = _locked(transaction, ref, edits)
    now_ms = transaction.now_ms()
    outcomes: list[Moved] = []
    for becomes, run in groupby(placed, key=_sort_of):
        some = list(run)
        if becomes is None:
            outcomes += _HeadEdits(transaction, ref, some, now_ms, by).run()
        else:
            outcomes += _settle_dead(transaction, ref, becomes, some, now_ms)
    if Moved.ABSENT in outcomes:
        check_slots(transaction, ref)
    notify_messages(transaction, ref, [
        cursor % PER_TOPIC for (edit, cursors), moved in zip(placed, outcomes, strict=True)
        if moved is Moved.DONE and edit.becomes is not Becomes.DROPPED for cursor in cursors
    ])  # fmt: skip
    return outcomes


def _sort_of(placed: _Placed) -> Becomes | None:
    """What becomes of a dead letter; None for the edits of heads."""
    return placed.edit.becomes if placed.edit.is_of_dead else None


def _locked(transaction: Transaction, ref: TopicRef, edits: Sequence[Edit]) -> list[_Placed]:
    """The edits with their cursors, once these are locked.

    Groups that have subscribed before that are locked in their turn: none hands one out now.
    """
    slots = [_slots_with(transaction, ref, edit) for edit in edits]
    if ref.topic.has_subjects:
        retried = [edit.becomes is Becomes.RETRIED for edit in edits]
        lock_slots(transaction, ref, {
            slot for some, is_retried in zip(slots, retried, strict=True) if is_retried
            for slot in some
        })  # fmt: skip
    before, placed = None, list[_Placed]()
    while (groups := {row[1]: row[0] for row in transaction.rows(GROUPS, (ref.id,))}) != before:
        placed = [
            _Placed(edit, [
                ref.cursor_number(group, slot)
                for group in _groups_for(ref, edit, groups) for slot in some
            ])
            for edit, some in zip(edits, slots, strict=True)
        ]  # fmt: skip
        numbers = {cursor for each in placed for cursor in each.cursors}
        check_open(ref, lock_cursors(transaction, numbers).values())
        before = groups
    return placed


def _groups_for(ref: TopicRef, edit: Edit, groups: Mapping[str, int]) -> Iterable[int]:
    if edit.group is None:
        return groups.values()
    if edit.group not in groups:
        raise UnknownGroup(ref.topic.name, edit.group, [name for name in groups if name])
    return (groups[edit.group],)


def _slots_with(transaction: Transaction, ref: TopicRef, edit: Edit) -> Iterable[int]:
    """The slot of an edit's messages; those that have its subject, where it may stand in any."""
    slots = edit.slots_in(ref.topic)
    if len(slots) < 2:
        return slots
    wanted = {
        ref.cursor_number(group, slot): [edit.subject]
        for group, _ in transaction.rows(GROUPS, (ref.id,)) for slot in slots
    }  # fmt: skip
    return {head.cursor % PER_TOPIC for head in whole_heads(transaction, wanted)}


class _HeadEdits:
    """Edits of heads whose cursors are locked: made in memory, and written together."""

    def __init__(
        self, transaction: Transaction, ref: TopicRef, placed: Sequence[_Placed], now_ms: int,
        by: str | None,
    ) -> None:  # fmt: skip
        self._transaction = transaction
        self._ref = ref
        self._kind = ref.topic.kind
        self._placed = placed
        self._now_ms = now_ms
        self._by = by
        wanted: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for edit, cursors in placed:
            for cursor in cursors:
                wanted[cursor][edit.subject] = None
        heads_there = whole_heads(transaction, {at: list(of) for at, of in wanted.items()})
        self._heads = {(head.cursor, head.subject): head for head in heads_there}
        self._edited: dict[tuple[int, str], HeadRow] = {}
        self._cancelled: list[HeadRow] = []
        self._entries: list[tuple[int, str | None, HistoryEntry]] = []

    def run(self) -> list[Moved]:
        """Makes all of them; returns what came of each."""
        outcomes = [self._rewrite(*each) for each in self._placed]
        self._flush()
        if self._entries:
            keep(self._transaction, self._entries)
        return outcomes

    def _rewrite(self, edit: Edit, cursors: Sequence[int]) -> Moved:
        found = [
            head for cursor in cursors
            if (head := self._heads.get((cursor, edit.subject))) is not None
            and edit.seq in (None, head.seq)
        ]  # fmt: skip
        is_held = any(head.state == HeadState.DOING for head in found)
        outcome = edit.outcome([head.due_ms for head in found], is_held=is_held)
        if outcome is Moved.DONE:
            change = self._changes[edit.becomes]
            for head in found:
                change(self, head, edit)
        return outcome

    def _hasten(self, head: HeadRow, edit: Edit) -> None:
        if head.due_ms > self._now_ms:
            self._edit(head, edit._replace(due_ms=self._now_ms))

    def _edit(self, head: HeadRow, edit: Edit) -> None:
        if edit.due_ms is not None:
            head.due_ms = max(0, edit.due_ms)
            place = heads.position_of(self._kind, head.due_ms, head.priority, self._now_ms)
            head.state, head.rank = place
        if edit.body is not None:
            head.body, head.headers = edit.body, headers_text(edit.headers)
        self._edited[head.cursor, head.subject] = head
        self._remember(head, edit)

    def _cancel(self, head: HeadRow, edit: Edit) -> None:
        self._cancelled.append(self._heads.pop((head.cursor, head.subject)))
        self._remember(head, edit)

    def _bury(self, head: HeadRow, edit: Edit) -> None:
        self._flush()
        place, error = (head.cursor, head.subject), head.error
        heads.end_dead(self._transaction, self._kind, head, self._now_ms, edit.error, error)
        rules.end_lease(head)
        heads.advance(self._transaction, self._kind, head, self._now_ms)
        del self._heads[place]
        if (following := heads.fetched(self._transaction, *place)) is not None:
            self._heads[place] = following

    _changes: Final[Mapping[Becomes, Callable[[_HeadEdits, HeadRow, Edit], None]]] = {
        Becomes.DUE: _hasten, Becomes.EDITED: _edit, Becomes.CANCELLED: _cancel,
        Becomes.DEAD: _bury,
    }  # fmt: skip

    def _remember(self, head: HeadRow, edit: Edit) -> None:
        if self._ref.topic.history_ms and edit.becomes is not Becomes.DUE:
            entry = timer_entry(
                head.id, head.tries, self._now_ms, by=self._by, changes=edit.changes
            )
            self._entries.append((head.cursor, key_of(self._ref.topic, head.subject), entry))

    def _flush(self) -> None:
        """Writes what was changed; removes heads with all that is behind them, and counts it."""
        counts: Counter[int] = Counter()
        for head in self._cancelled:
            counts[head.cursor] += 1
            if head.behind:
                place = (head.cursor, head.subject)
                counts[head.cursor] += self._transaction.run(_DROP_BEHIND, place)
        gone = [(head.cursor, head.subject) for head in self._cancelled]
        self._transaction.run_many(heads.DELETE, gone)
        self._transaction.run_many(arrive.COUNT, [(0, 0, n, at) for at, n in counts.items()])
        changed = [heads.changed(head) for head in self._edited.values()]
        self._transaction.run_many(heads.SET, changed)
        self._cancelled.clear()
        self._edited.clear()


def _settle_dead(
    transaction: Transaction, ref: TopicRef, becomes: Becomes, placed: Sequence[_Placed],
    now_ms: int,
) -> list[Moved]:  # fmt: skip
    """Retries dead letters, or drops them."""
    wanted: dict[int, dict[int, None]] = {}
    for edit, (cursor, *_) in ((each.edit, each.cursors) for each in placed if each.cursors):
        wanted.setdefault(cursor, {})[edit.seq or 0] = None
    letters = {
        row[:2]: row
        for cursor, numbers in wanted.items()
        for some in padded(list(numbers))
        for row in transaction.rows(_letters(len(some)), (cursor, *some))
    }
    outcomes, chosen = [], dict[int, list[Row]]()
    for edit, cursors in placed:
        row = letters.pop((cursors[0], edit.seq), None) if cursors else None
        outcomes.append(Moved.ABSENT if row is None else Moved.DONE)
        if row is not None:
            chosen.setdefault(row[0], []).append(row)
    transaction.run_many(_REMOVE, [row[:2] for rows in chosen.values() for row in rows])
    if becomes is Becomes.DROPPED:
        counts = [(0, 0, len(rows), cursor) for cursor, rows in chosen.items()]
        transaction.run_many(arrive.COUNT, counts)
    elif ref.topic.has_subjects:
        _publish_again(transaction, ref, chosen, now_ms)
    else:
        for cursor, rows in chosen.items():
            leaving = [(row[1], *row[8:]) for row in rows]
            leave(transaction, cursor, leaving, Coming(now_ms), stays=True)
    return outcomes


def _publish_again(
    transaction: Transaction, ref: TopicRef, of_cursors: Mapping[int, Sequence[Row]], now_ms: int
) -> None:
    """Queues dead messages for their group, but none where a newer one of its subject is there."""
    # They were counted when they were published first; where two become one, one less was.
    counts = [(-len(rows), 0, 0, cursor) for cursor, rows in of_cursors.items()]
    transaction.run_many(arrive.COUNT, counts)
    wanted = {at: list(dict.fromkeys(row[2] for row in rows)) for at, rows in of_cursors.items()}
    known = known_heads(transaction, wanted)
    times = {} if ref.topic.kind is Kind.ORDERED else _times(transaction, known)
    slot_heads: dict[int, int] = dict(transaction.rows(arrive.HEADS, ref.slot_range()))
    writes = arrive.Writes(transaction)
    moved: list[Row] = []
    for cursor, rows in of_cursors.items():
        at = ref.slot_number(cursor % PER_TOPIC)
        arrivals = [Arrival(row[2], now_ms, row[3], *row[8:]) for row in rows]
        if ref.topic.kind is not Kind.ORDERED:
            arrivals = _newer(arrivals, times[cursor])
        for seq, one in enumerate(arrivals, start=slot_heads[at]):
            one.seq = seq
        writes.to_queue(ref.topic.kind, cursor, arrivals, known[cursor], now_ms)
        moved.append((slot_heads[at] + len(arrivals), at))
    writes.flush()
    transaction.run_many(arrive.SET_HEAD, moved)


def _times(
    transaction: Transaction, known: Mapping[int, Mapping[str, KnownHead]]
) -> dict[int, dict[str, int]]:
    """When the newest message of each subject that has a head was published, by cursor."""
    found: dict[int, dict[str, int]] = {cursor: {} for cursor in known}
    for cursor, subject, time in published_at(
        transaction, {at: list(of) for at, of in known.items()}
    ):
        found[cursor][subject] = time
    for cursor, of in known.items():
        for subject in [name for name, head in of.items() if head.behind]:
            for (time,) in transaction.rows(_TIME_BEHIND, (cursor, subject)):
                found[cursor][subject] = max(found[cursor][subject], time)
    return found


def _newer(arrivals: Sequence[Arrival], times: dict[str, int]) -> list[Arrival]:
    """The arrivals that are newer than what was there of their subjects; `times` is kept true."""
    newer = []
    for one in arrivals:
        if one.published_at > times.get(one.subject, -1):
            times[one.subject] = one.published_at
            newer.append(one)
    return newer
