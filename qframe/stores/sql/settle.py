"""Ending deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, select

from qframe.drivers.sql import Statement, Transaction
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import NO_EPOCH, Settlement
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, window
from qframe.stores.sql.graves import bury
from qframe.stores.sql.heads import Head
from qframe.stores.sql.places import SET_CURSOR, Cursor, Place, cursors_of, known_group
from qframe.stores.sql.schema import State, subjects

_CUT: Final = Statement(
    subjects.update()
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
    .values(given=bindparam("run")),
    "run at of",
)


@lru_cache(maxsize=64)
def _doing(count: int) -> Statement:
    names = [f"s{number}" for number in range(count)]
    c = subjects.c
    query = select(c.subject, c.receipt, c.seq, c.given, c.behind).where(
        c.cursor == bindparam("at"),
        c.subject.in_([bindparam(name) for name in names]),
        c.state == State.DOING,
    )
    return Statement(query, f"at {' '.join(names)}")


def settle(
    transaction: Transaction,
    place: Place,
    group: str,
    settlements: Sequence[Settlement],
    now_ms: int,
) -> list[Settled]:
    """Settles each, in order within its slot; what is not held any more changes nothing."""
    known = cursors_of(transaction, place, known_group(transaction, place, group))
    answers: list[Settled] = [Settled.STALE] * len(settlements)
    by_slot: dict[int, list[int]] = {}
    for number, one in enumerate(settlements):
        by_slot.setdefault(one.slot, []).append(number)
    for slot, numbers in by_slot.items():
        cursor = known.get(slot)
        if cursor is None:
            continue
        line = [each for each in numbers if settlements[each].subject is None]
        queued = [each for each in numbers if settlements[each].subject is not None]
        before = cursor.row()
        if line:
            chosen = [settlements[each] for each in line]
            found = window.settle(transaction, place, cursor, chosen, now_ms)
            for each, answer in zip(line, found, strict=True):
                answers[each] = answer
        if cursor.row() != before:
            transaction.run(SET_CURSOR, cursor.row())
        if queued:
            chosen = [settlements[each] for each in queued]
            found = _settle_queued(transaction, place, cursor, chosen, now_ms)
            for each, answer in zip(queued, found, strict=True):
                answers[each] = answer
    return answers


def _settle_queued(
    transaction: Transaction,
    place: Place,
    cursor: Cursor,
    settlements: Sequence[Settlement],
    now_ms: int,
) -> list[Settled]:
    """Settles deliveries of one slot's subjects, those of a subject together and in order."""
    answers: list[Settled] = [Settled.STALE] * len(settlements)
    by_subject: dict[str, list[int]] = {}
    for number, one in enumerate(settlements):
        if one.epoch == cursor.epoch != NO_EPOCH and one.subject is not None:
            by_subject.setdefault(one.subject, []).append(number)
    at = cursor.cursor
    doing = {}
    for wanted in arrive.padded(list(by_subject)) if by_subject else ():
        for row in transaction.rows(_doing(len(wanted)), (at, *wanted)):
            doing[row[0]] = row
    gone: list[tuple[int, str]] = []
    acked = absorbed = 0
    for subject, numbers in by_subject.items():
        if subject not in doing:
            continue
        row = doing[subject]
        one = settlements[numbers[0]]
        if (
            not row[4] and len(numbers) == 1 and one.verdict is Verdict.ACK
            and one.receipt == row[1] and one.seq == row[2]
        ):  # fmt: skip
            # The most frequent case by far: the only message of its subject is done.
            gone.append((at, subject))
            answers[numbers[0]] = Settled.SETTLED
            acked += 1
            continue
        subject_of = _Subject(transaction, place, at, subject, now_ms)
        for number in numbers:
            answers[number] = subject_of.settle(settlements[number])
        subject_of.finish()
        acked += subject_of.acked
        absorbed += subject_of.absorbed
    transaction.run_many(heads.DELETE, gone)
    if acked or absorbed:
        transaction.run(arrive.COUNT, (-absorbed, acked, 0, at))
    return answers


class _Subject:
    """One subject in doing, while its deliveries are settled one after the other.

    Acknowledgements are gathered, and written when something else comes or at the end: `_done`
    is the seq up to which the run is acknowledged.
    """

    def __init__(
        self, transaction: Transaction, place: Place, at: int, subject: str, now_ms: int
    ) -> None:
        self._transaction = transaction
        self._kind = place.topic.kind
        self._streams = not place.topic.has_subjects
        self._at = at
        self._subject = subject
        self._now_ms = now_ms
        self._head: Head | None = heads.fetched(transaction, at, subject)
        self._run = self._seqs_of_run()
        self._done: int | None = None
        self.acked = 0
        self.absorbed = 0

    def _seqs_of_run(self) -> list[int]:
        head = self._head
        if head is None or head.given <= 1:
            return [head.seq] if head is not None else []
        rows = self._transaction.rows(heads.BEHIND, (self._at, self._subject, head.given - 1))
        return [head.seq, *(row[2] for row in rows)]

    def settle(self, one: Settlement) -> Settled:
        """Settles a delivery, if it is the next one of the run."""
        head = self._head
        if head is None or one.receipt != head.receipt or not self._run:
            return Settled.STALE
        if one.verdict is Verdict.RELEASE and one.seq in self._run[1:]:
            self._run = self._run[: self._run.index(one.seq)]
            return Settled.SETTLED
        if one.seq != self._run[0]:
            return Settled.STALE
        if one.verdict is Verdict.ACK:
            self._done = self._run.pop(0)
            self.acked += 1
            return Settled.SETTLED
        self._write_acknowledged()
        if one.verdict is Verdict.DEAD:
            self._bury(one)
        else:
            self._give_back(one)
        return Settled.SETTLED

    def finish(self) -> None:
        """Writes what is not written yet."""
        self._write_acknowledged()
        head = self._head
        if head is not None and head.receipt is not None and head.given != len(self._run):
            self._transaction.run(_CUT, (len(self._run), self._at, self._subject))

    def _write_acknowledged(self) -> None:
        """Moves on to the message behind those that are acknowledged."""
        if self._done is not None:
            self._follow(self._done)
            self._done = None

    def _follow(self, last: int) -> None:
        head = self._head
        if head is None:
            return
        heads.follow(
            self._transaction, self._kind, head, self._now_ms, last=last, keeps=len(self._run)
        )
        if not self._run:
            self._head = None

    def _bury(self, one: Settlement) -> None:
        head = self._head
        if head is None:
            return
        bury(
            self._transaction, self._at, seq=head.seq,
            subject=None if self._streams else self._subject, priority=head.priority,
            attempts=head.tries, error=one.error, traceback=one.traceback,
            died_at_ms=self._now_ms, envelope=head.envelope(),
        )  # fmt: skip
        self._follow(self._run.pop(0))

    def _give_back(self, one: Settlement) -> None:
        head = self._head
        if head is None:
            return
        if one.verdict is Verdict.RETRY:
            head.due = self._now_ms + one.delay_ms if one.at_ms is None else one.at_ms
            head.lost = 0
            head.error = one.error
        else:
            head.tries -= 1
            if self._streams:
                head.due = heads.FRONT
        self.absorbed += heads.come_back(self._transaction, self._kind, head, self._now_ms)
        self._head = None
        self._run = []
