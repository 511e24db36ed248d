"""Where messages are put when they arrive: the log of a stream, or the queues of every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.outcomes import Outcome
from qframe.stores import rules
from qframe.stores.sql import heads
from qframe.stores.sql.lookups import KnownHead
from qframe.stores.sql.schema import HeadState, backlog, cursors, log, slot_head, slots, subjects
from qframe.stores.types import Entry
from qframe.topic import Kind

HEADS: Final = Statement(
    select(slots.c.slot, slot_head).where(
        slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end")
    ),
    "first end",
)
SET_HEAD: Final = Statement(
    slots.update().where(slots.c.slot == bindparam("at")).values(head=bindparam("to")), "to at"
)
APPEND: Final = Statement(log.insert(), "slot seq id key headers body published_at joined_at")
COUNT: Final = Statement(
    cursors.update()
    .where(cursors.c.cursor == bindparam("at"))
    .values(
        published=cursors.c.published + bindparam("more"),
        acked=cursors.c.acked + bindparam("ack"),
        cancelled=cursors.c.cancelled + bindparam("cancel"),
    ),
    "more ack cancel at",
)
_REPLACE: Final = Statement(
    subjects.update()
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
    .values(
        state=bindparam("s"), rank=bindparam("r"), due=bindparam("d"), priority=bindparam("p"),
        tries=0, lost=0, error=None, id=bindparam("i"), key=bindparam("k"),
        headers=bindparam("h"), body=bindparam("b"), published_at=bindparam("a"),
    ),
    "s r d p i k h b a at of",
)  # fmt: skip
HAS_BEHIND: Final = Statement(
    subjects.update()
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
    .values(behind=1),
    "at of",
)
_NEXT_ROUND: Final = Statement(
    select(backlog.c.seq, backlog.c.due).where(
        backlog.c.cursor == bindparam("at"), backlog.c.subject == bindparam("of")
    ),
    "at of",
)

_NEVER_GIVEN: Final = (None, 0, 0, 0, 0, None)


class Arrival(msgspec.Struct, gc=False):
    """A message that a slot takes, with its place among the slot's messages."""

    subject: str
    due: int
    priority: int
    id: str
    key: str | None
    headers: str | None
    body: bytes
    published_at: int
    seq: int = 0


class Writes:
    """The rows that arriving messages write, gathered over all slots and groups of an operation.

    A few large `executemany` cost half of what many small ones do. Nothing that an operation reads
    is among what it has gathered, since a subject is in one slot and its head in `known`.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._log: list[Row] = []
        self._heads: list[Row] = []
        self._new_heads: list[Row] = []
        self._replaced: list[Row] = []
        self._behind: list[Row] = []
        self._first_behind: list[Row] = []
        self._counts: list[Row] = []

    def to_log(self, slot: int, head: int, entries: Sequence[Entry], now_ms: int) -> None:
        """Appends to a stream's slot, from offset `head` on."""
        text_of = heads.headers_text
        self._log += [
            (slot, seq, one.id, one.key, text_of(one.headers) if one.headers else None, one.body,
             now_ms, now_ms)
            for seq, one in enumerate(entries, start=head)
        ]  # fmt: skip

    def to_queues(
        self, kind: Kind, queues: Mapping[int, dict[str, KnownHead]], head: int,
        entries: Sequence[Entry], now_ms: int,
    ) -> bool:  # fmt: skip
        """Queues entries without options for every group, from number `head` on; the hot path.

        Returns:
            False, with nothing queued, where some of them meet others that they may replace.
        """
        names = [one.subject or "" for one in entries]
        meet = len(set(names)) < len(names) or not all(
            known.keys().isdisjoint(names) for known in queues.values()
        )
        if meet and kind is not Kind.ORDERED:
            return False
        text_of = heads.headers_text
        state, rank = heads.position_of(kind, now_ms, 0, now_ms)
        texts = [text_of(one.headers) if one.headers else None for one in entries]
        for cursor, known in queues.items():
            self._counts.append((len(entries), 0, 0, cursor))
            numbered = enumerate(zip(names, entries, texts, strict=True), start=head)
            if not meet:
                self._new_heads += [
                    (cursor, name, state, rank, now_ms, seq, one.id, one.key, text, one.body,
                     now_ms)
                    for seq, (name, one, text) in numbered
                ]  # fmt: skip
                continue
            for seq, (name, one, text) in numbered:
                envelope = (one.id, one.key, text, one.body, now_ms)
                if (before := known.get(name)) is None:
                    known[name] = KnownHead(state, now_ms, 0)
                    self._new_heads.append((cursor, name, state, rank, now_ms, seq, *envelope))
                    continue
                self._behind.append((cursor, name, seq, now_ms, 0, *envelope))
                if not before.behind:
                    before.behind = 1
                    self._first_behind.append((cursor, name))
        return True

    def to_queue(
        self,
        kind: Kind,
        cursor: int,
        arrivals: Sequence[Arrival],
        known: dict[str, KnownHead],
        now_ms: int,
    ) -> list[Outcome]:
        """Queues arrivals for one group, in order; returns what became of each.

        Args:
            kind: the topic's.
            cursor: the group's cursor of the slot.
            arrivals: their `seq` given.
            known: the heads of the arrivals' subjects, from `known_heads`; it is kept true.
            now_ms: the store's now.
        """
        fresh: dict[str, list[Any]] = {}
        outcomes: list[Outcome] = []
        for one in arrivals:
            envelope = (one.id, one.key, one.headers, one.body, one.published_at)
            subject = one.subject
            head = known.get(subject)
            outcome = Outcome.STORED
            if head is None:
                state, rank = heads.position_of(kind, one.due, one.priority, now_ms)
                known[subject] = KnownHead(state, one.due, 0)
                fresh[subject] = [
                    cursor, subject, state, rank, one.due, one.seq, one.priority,
                    *_NEVER_GIVEN, *envelope,
                ]  # fmt: skip
            elif kind is Kind.ORDERED:
                self._behind.append((cursor, subject, one.seq, one.due, one.priority, *envelope))
                if not head.behind:
                    head.behind = 1
                    self._first_behind.append((cursor, subject))
            elif head.state != HeadState.DOING:
                outcome = Outcome.MERGED if kind is Kind.MERGE else Outcome.REPLACED
                head.due = rules.replaced_due(kind, head.due, one.due, now_ms)
                state, rank = heads.position_of(kind, head.due, one.priority, now_ms)
                row = fresh.get(subject)
                if row is not None:
                    row[2:5] = [state, rank, head.due]
                    row[6] = one.priority
                    row[13:] = envelope
                else:
                    self._replaced.append(
                        (state, rank, head.due, one.priority, *envelope, cursor, subject)
                    )
            else:
                outcome = _next_round(self._transaction, kind, cursor, one, head, now_ms)
            outcomes.append(outcome)
        self._heads += [tuple(row) for row in fresh.values()]
        self._counts.append((outcomes.count(Outcome.STORED), 0, 0, cursor))
        return outcomes

    def flush(self) -> None:
        """Writes all of it."""
        run_many = self._transaction.run_many
        run_many(APPEND, self._log)
        run_many(heads.INSERT, self._heads)
        heads.insert_new(self._transaction, self._new_heads)
        run_many(_REPLACE, self._replaced)
        run_many(heads.ADD_BEHIND, self._behind)
        run_many(HAS_BEHIND, self._first_behind)
        run_many(COUNT, self._counts)


def _next_round(
    transaction: Transaction, kind: Kind, cursor: int, one: Arrival, head: KnownHead, now_ms: int
) -> Outcome:
    """Puts an arrival behind a head in doing: there is one next round, and it is replaced too."""
    due, seq = one.due, one.seq
    outcome = Outcome.STORED
    if head.behind:
        row = transaction.row(_NEXT_ROUND, (cursor, one.subject))
        if row is not None:
            seq, due = row[0], rules.replaced_due(kind, row[1], one.due, now_ms)
            transaction.run(heads.DELETE_BEHIND, (cursor, one.subject, seq))
            outcome = Outcome.MERGED if kind is Kind.MERGE else Outcome.REPLACED
    else:
        head.behind = 1
        transaction.run(HAS_BEHIND, (cursor, one.subject))
    transaction.run(
        heads.ADD_BEHIND,
        (cursor, one.subject, seq, due, one.priority,
         one.id, one.key, one.headers, one.body, one.published_at),
    )  # fmt: skip
    return outcome
