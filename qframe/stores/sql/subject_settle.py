"""Ending deliveries of subjects: each subject's head and run, one settlement after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, literal_column

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores import rules
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, lookups, named
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.schema import PER_TOPIC, HeadState, subjects
from qframe.stores.types import Settlement
from qframe.topic import Kind

_CUT: Final = Statement(
    subjects.update()
    .where(subjects.c.cursor == bindparam("at"), subjects.c.subject == bindparam("of"))
    .values(given=bindparam("run")),
    "run at of",
)


@lru_cache(maxsize=16)
def _removed(count: int) -> Statement:
    these, names = named.among(subjects, count)
    return Statement(subjects.delete().where(these), names)


_NAMED: Final = named.found(subjects)
_REMOVED: Final = Statement(subjects.delete().where(named.is_at(subjects, _NAMED)), named.NAMES)
_HELD: Final = named.found(subjects, numbers="seqs")
# A state in the query would lead to the index that begins with it; only what is in doing has a
# receipt.
_ACKNOWLEDGED: Final = Statement(
    subjects.delete()
    .where(
        named.is_at(subjects, _HELD), subjects.c.seq == _HELD.c.seqs,
        subjects.c.receipt == bindparam("token"), subjects.c.behind == literal_column("0"),
    )
    .returning(subjects.c.cursor, subjects.c.subject),
    f"{named.NAMES} seqs token",
)  # fmt: skip


class BySubject:
    """The settlements of each subject, by their numbers and in order.

    There are hundreds in an operation, nearly all of them alone with their subject, and Python's
    collector looks through each list of one: so numbers stand by themselves.
    """

    def __init__(self) -> None:
        self.first: dict[int, dict[str, int]] = {}  # by cursor and subject
        self._others: dict[tuple[int, str], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self.first)

    def add(self, cursor: int, subject: str, number: int) -> None:
        """Adds a settlement."""
        first = self.first.get(cursor)
        if first is None:
            first = self.first[cursor] = {}
        if first.setdefault(subject, number) != number:
            self._others.setdefault((cursor, subject), []).append(number)

    def of(self, cursor: int, subject: str) -> list[int]:
        """Returns the numbers of a subject's settlements."""
        return [self.first[cursor][subject], *self._others.get((cursor, subject), ())]


class HeldSubjects:
    """The subjects of acknowledged deliveries, by receipt and cursor.

    Where nothing stands behind it, as nearly always, the only message of its subject is done: it
    goes by its receipt, without a look at it before.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, dict[int, dict[str, int]]] = {}
        self._seqs: dict[str, dict[int, list[int]]] = {}

    def add(self, cursor: int, one: Delivery, number: int) -> bool:
        """Adds a delivery; returns False for a second one of its subject and receipt."""
        by_cursor = self._numbers.get(one.receipt)
        if by_cursor is None:
            by_cursor = self._numbers[one.receipt] = {}
            self._seqs[one.receipt] = {}
        numbers = by_cursor.get(cursor)
        if numbers is None:
            numbers = by_cursor[cursor] = {}
            self._seqs[one.receipt][cursor] = []
        if numbers.setdefault(str(one.subject), number) != number:
            return False
        self._seqs[one.receipt][cursor].append(one.seq)
        return True

    def acknowledge(self, transaction: Transaction, results: list[Settled]) -> list[int]:
        """Removes those that are done, and says so in results; returns the others' numbers."""
        acked: Counter[int] = Counter()
        rest: list[int] = []
        for receipt, by_cursor in self._numbers.items():
            seqs = [seq for each in self._seqs[receipt].values() for seq in each]
            given = (*named.columns_of(by_cursor), seqs, receipt)
            for at, subject in transaction.rows_of_arrays(_ACKNOWLEDGED, given):
                results[by_cursor[at].pop(subject)] = Settled.SETTLED
                acked[at] += 1
            rest += [number for left in by_cursor.values() for number in left.values()]
        transaction.run_many(arrive.COUNT, [(0, count, 0, at) for at, count in acked.items()])
        return rest


def settle(
    transaction: Transaction,
    kind: Kind,
    settlements: Sequence[Settlement],
    by_subject: BySubject,
    results: list[Settled],
    now_ms: int,
) -> list[int]:
    """Settles deliveries by cursor and subject, and writes down the result of each.

    Returns the slots in which something may be next.
    """
    changed = _Changes()
    rest: dict[int, list[str]] = {}
    lines: list[tuple[int, str, int]] = []
    wanted = {at: list(names) for at, names in by_subject.first.items()}
    for row in lookups.heads_to_settle(transaction, wanted):
        at, subject, state, receipt, seq, given, behind = row
        if state != HeadState.DOING:
            continue
        number = by_subject.first[at][subject]
        one = settlements[number]
        if (
            not behind and one.verdict is Verdict.ACK
            and one.receipt == receipt and one.seq == seq
        ):  # fmt: skip
            # The most frequent case by far: the only message of its subject is done. What else
            # there is for the subject comes after that, and is stale.
            changed.removed.setdefault(at, []).append(subject)
            results[number] = Settled.SETTLED
            continue
        rest.setdefault(at, []).append(subject)
        if behind:
            # With the run, the next message, and one more, which says that others are behind it.
            lines.append((at, subject, max(1, given) + 1))
    for at, done in changed.removed.items():
        changed.count(at, len(done), 0)
    behind_of = lookups.behind(transaction, lines)
    for head in lookups.whole_heads(transaction, rest):
        rows = behind_of.get((head.cursor, head.subject), [])
        run = _Run(transaction, kind, head, rows, now_ms)
        for number in by_subject.of(head.cursor, head.subject):
            results[number] = run.settle(settlements[number])
        run.finish(changed)
    changed.write(transaction)
    return changed.stirred


class _Changes:
    """The rows to write once all is settled: few large batches cost less than many small ones.

    No row is read before: a subject is settled once in an operation.
    """

    def __init__(self) -> None:
        self.removed: dict[int, list[str]] = {}  # subjects of which nothing is left, by cursor
        self.heads: list[Row] = []
        self.cuts: list[Row] = []
        self.settled_behind: list[Row] = []
        self.stirred: list[int] = []
        self._acked: dict[int, int] = {}
        self._absorbed: dict[int, int] = {}

    def count(self, cursor: int, acked: int, absorbed: int) -> None:
        """Adds to a cursor's counts."""
        self._acked[cursor] = self._acked.get(cursor, 0) + acked
        self._absorbed[cursor] = self._absorbed.get(cursor, 0) + absorbed

    def write(self, transaction: Transaction) -> None:
        """Writes all of it."""
        transaction.run_many(heads.DELETE_BEHIND, self.settled_behind)
        transaction.run_many(heads.SET, self.heads)
        transaction.run_many(_CUT, self.cuts)
        self._remove(transaction)
        counts = [(-self._absorbed[at], acked, 0, at) for at, acked in self._acked.items()]
        transaction.run_many(arrive.COUNT, [row for row in counts if row[0] or row[1]])

    def _remove(self, transaction: Transaction) -> None:
        if self.removed and transaction.takes_arrays:
            transaction.run(_REMOVED, named.columns_of(self.removed))
        else:
            given = [((at,), names) for at, names in self.removed.items()]
            named.run_many(transaction, _removed, given)


class _Run:
    """A subject's head in doing and its run, while they are settled one after the other.

    Acknowledgements are gathered until something else comes or the end: `_done` is the seq up to
    which the run is acknowledged. The head's new row is written at the end; only a message that
    comes back is written at once, and ends the run.
    """

    def __init__(
        self, transaction: Transaction, kind: Kind, head: HeadRow, behind: list[Row], now_ms: int
    ) -> None:
        self._transaction = transaction
        self._kind = kind
        self._head = head
        self._behind = behind  # the run, and up to two more
        self._now_ms = now_ms
        self._run = [head.seq, *(row[2] for row in behind[: max(0, head.given - 1)])]
        self._done: int | None = None
        self._settled_to: int | None = None
        self._start = 0
        self._is_removed = False
        self._is_back = False
        self._acked = 0
        self._absorbed = 0

    def settle(self, one: Settlement) -> Settled:
        """Settles a delivery, if it is the next one of the run."""
        if not self._run or one.receipt != self._head.receipt:
            return Settled.STALE
        if one.verdict is Verdict.RELEASE and one.seq in self._run[1:]:
            self._run = self._run[: self._run.index(one.seq)]
            return Settled.SETTLED
        if one.seq != self._run[0]:
            return Settled.STALE
        if one.verdict is Verdict.ACK:
            self._done = self._run.pop(0)
            self._acked += 1
            return Settled.SETTLED
        self._pass_acknowledged()
        if one.verdict is Verdict.DEAD:
            self._end_dead(one)
        else:
            self._give_back(one)
        return Settled.SETTLED

    def finish(self, changed: _Changes) -> None:
        """Adds what is not written yet to the changes."""
        self._pass_acknowledged()
        head = self._head
        at = head.cursor
        if self._is_removed:
            changed.removed.setdefault(at, []).append(head.subject)
        elif self._settled_to is not None and not self._is_back:
            head.given = len(self._run)  # its tail may have been cut off since it became the head
            changed.heads.append(heads.changed(head))
        elif not self._is_back and head.given != len(self._run):
            changed.cuts.append((len(self._run), at, head.subject))
        if self._settled_to is not None and self._behind:
            changed.settled_behind.append((at, head.subject, self._settled_to))
        changed.count(at, self._acked, self._absorbed)
        changed.stirred.append(at % PER_TOPIC)

    def _pass_acknowledged(self) -> None:
        """Moves on to the message behind the acknowledged ones."""
        if self._done is not None:
            self._advance(self._done)
            self._done = None

    def _advance(self, last: int) -> None:
        """Moves on to the message behind `last`, or to none.

        The next one may have a smaller seq than the first head, which a retried dead letter of a
        stream does not pass by.
        """
        passed = [number for number, row in enumerate(self._behind) if row[2] == last]
        start = passed[0] + 1 if passed else self._start
        rows = self._behind[start : start + 2]
        if rows:
            heads.promote_next(self._kind, self._head, rows, self._now_ms, keeps=len(self._run))
            last, self._start = self._head.seq, start + 1
        else:
            self._is_removed = True
        self._settled_to = last

    def _end_dead(self, one: Settlement) -> None:
        heads.end_dead(
            self._transaction, self._kind, self._head, self._now_ms, one.error, one.traceback
        )
        self._advance(self._run.pop(0))

    def _give_back(self, one: Settlement) -> None:
        if one.verdict is Verdict.RETRY:
            rules.retry(self._head, one, self._now_ms)
        else:
            rules.release(self._head, self._kind)
        self._absorbed += heads.requeue(self._transaction, self._kind, self._head, self._now_ms)
        self._run = []
        self._is_back = True
