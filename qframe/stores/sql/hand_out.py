"""Handing heads out: those that are due, first ranks first, and the runs behind them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from sqlalchemy import bindparam, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.message import Delivery
from qframe.stores import rules
from qframe.stores.records import told_apart
from qframe.stores.sql import heads, lookups, named
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.schema import HeadState, is_there, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import LOST_ERROR, PullRequest, PullResult, PullTerms
from qframe.topic import Kind

_CLAIMABLE: Final = (
    select(subjects)
    .where(
        subjects.c.cursor == bindparam("at"),
        is_there(subjects.c.state),
        subjects.c.due <= bindparam("now"),
    )
    .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq)
    .limit(bindparam("most"))
)
_IN_TODO: Final = Statement(_CLAIMABLE.where(subjects.c.state == HeadState.TODO), "at now most")
# All that wait are of one rank. Without it, those that are to come would be looked at as well.
_BY_TIME: Final = Statement(
    _CLAIMABLE.where(subjects.c.state == HeadState.WAITING, subjects.c.rank == 0), "at now most"
)

_LIKELY_RUN: Final = 4

# Places in a row, which is no `HeadRow` where that would cost too much.
_SUBJECT, _DUE, _SEQ, _TRIES, _LOST, _BEHIND, _ENVELOPE = map(
    HeadRow.__struct_fields__.index,
    ("subject", "due_ms", "seq", "tries", "lost", "behind", "id"),
)


@lru_cache(maxsize=16)
def _claimed(count: int) -> Statement:
    """Takes heads into doing, all with runs of one length."""
    these, names = named.among(subjects, count)
    return Statement(
        subjects.update().where(these)
        .values(
            state=HeadState.DOING, rank=bindparam("until"), receipt=bindparam("token"),
            tries=subjects.c.tries + 1, given=bindparam("run"),
        ),
        f"until token run {names}",
    )  # fmt: skip


_NAMED: Final = named.found(subjects, numbers="runs")

_CLAIMED: Final = Statement(
    subjects.update().where(named.is_at(subjects, _NAMED))
    .values(
        state=HeadState.DOING, rank=bindparam("until"), receipt=bindparam("token"),
        tries=subjects.c.tries + 1, given=_NAMED.c.runs,
    ),
    f"until token {named.NAMES} runs",
)  # fmt: skip


class PullInProgress(msgspec.Struct):
    """One pull while it is done: its terms, its moment, and what comes of it."""

    transaction: Transaction
    ref: TopicRef
    terms: PullTerms
    now_ms: int
    pulled: PullResult = msgspec.field(default_factory=lambda: PullResult([], []))
    cursors: list[Row] = []
    claims: dict[tuple[int, int], list[str]] = {}  # subjects by cursor and length of their runs

    @property
    def until_ms(self) -> int:
        """When the leases of what is handed out end."""
        return self.now_ms + self.terms.lease_ms


def claim(pulling: PullInProgress, at: int, ask: PullRequest) -> int:
    """Hands out heads that are due, and the runs behind them; returns how many messages."""
    transaction, kind = pulling.transaction, pulling.ref.topic.kind
    now_ms, terms, pulled = pulling.now_ms, pulling.terms, pulling.pulled
    claimable = _IN_TODO if kind in rules.RANKED else _BY_TIME
    left, taken = ask.limit, 0
    while left > 0:
        most = left
        if kind is Kind.ORDERED:
            # A subject may bring a run with it, as long as those before, so few are enough.
            run = (ask.limit - left) // taken if taken else _LIKELY_RUN
            most = min(left, max(_LIKELY_RUN, left // run))
        rows = transaction.rows(claimable, (at, now_ms, most))
        most_tries = max([row[_TRIES] for row in rows], default=0)
        if kind not in rules.BACKLOGGED and most_tries < terms.max_attempts:
            _hand_out_alone(at, rows, ask.slot, pulling)
            left -= len(rows)
            break
        runs = _Runs(transaction, rows, terms.run if kind in rules.BACKLOGGED else 1)
        has_ended = False
        for number, row in enumerate(rows):
            if left <= 0:
                break
            if row[_TRIES] >= terms.max_attempts:
                head = HeadRow(*row)
                error, traceback = told_apart(head.error)
                heads.end_dead(transaction, kind, head, now_ms, error or LOST_ERROR, traceback)
                heads.advance(transaction, kind, head, now_ms)
                pulled.dead += 1
                has_ended = True  # what follows it may come before the other rows: look again
                break
            given = _hand_out(row, runs.behind(number, left), ask.slot, left, pulling)
            left -= given
            taken += 1
            pulling.claims.setdefault((at, given), []).append(row[_SUBJECT])
        if len(rows) < most and not has_ended:
            break
        if left > 0:
            write_claims(pulling)
    return ask.limit - left


def write_claims(pulling: PullInProgress) -> None:
    """Takes into doing what was handed out: of all slots at once, unless one is looked at again."""
    transaction = pulling.transaction
    claims, until_ms, receipt = pulling.claims, pulling.until_ms, pulling.terms.receipt
    if claims and transaction.takes_arrays:
        ats = [at for (at, _), names in claims.items() for _ in names]
        runs = [run for (_, run), names in claims.items() for _ in names]
        subjects_of = [name for names in claims.values() for name in names]
        transaction.run(_CLAIMED, (until_ms, receipt, ats, subjects_of, runs))
    else:
        given = [((until_ms, receipt, run, at), names) for (at, run), names in claims.items()]
        named.run_many(transaction, _claimed, given)
    claims.clear()


class _Runs:
    """The messages behind heads that are handed out, looked up for many of them at once."""

    def __init__(self, transaction: Transaction, rows: Sequence[Row], longest: int) -> None:
        self._transaction = transaction
        self._rows = rows
        self._longest = longest
        self._found: dict[tuple[int, str], list[Row]] = {}
        self._cut: tuple[int, str] | None = None  # of which there may be more than was found

    def behind(self, number: int, left: int) -> Sequence[Row]:
        """The messages that may go out with one of the heads, where so much is left to hand out."""
        row = self._rows[number]
        most = min(self._longest, left) - 1
        if most <= 0 or not _has_run(row):
            return ()
        found = self._found.get(row[:2])
        if found is None or (row[:2] == self._cut and len(found) < most):
            self._look(number, most, left)
        return self._found.get(row[:2], ())

    def _look(self, first: int, most: int, left: int) -> None:
        """Looks up from one head on as many as are enough if all of them are due."""
        wanted = [(*row[:2], most) for row in self._rows[first:] if _has_run(row)]
        self._found = found = lookups.behind(self._transaction, wanted, left)
        is_cut = sum(map(len, found.values())) >= left
        self._cut = next(reversed(found)) if is_cut else None


def _has_run(row: Row) -> bool:
    return bool(row[_BEHIND]) and not row[_LOST]


def _hand_out_alone(at: int, rows: Sequence[Row], slot: int, pulling: PullInProgress) -> None:
    """Adds the deliveries of heads that bring no run with them."""
    receipt = pulling.terms.receipt
    pulling.pulled.deliveries += [_delivery(row, slot, receipt) for row in rows]
    if rows:
        pulling.claims.setdefault((at, 1), []).extend([row[_SUBJECT] for row in rows])


def _delivery(row: Row, slot: int, receipt: str) -> Delivery:
    """The delivery of a head, given as a row."""
    message_id, key, headers, body, published_at = row[_ENVELOPE:]
    return Delivery(
        message_id, key, None if headers is None else heads.headers_of(headers), body,
        published_at, slot, row[_SUBJECT], row[_SEQ], receipt, row[_TRIES] + 1, row[_LOST],
        row[_DUE],
    )  # fmt: skip


def _hand_out(
    row: Row, behind: Sequence[Row], slot: int, left: int, pulling: PullInProgress
) -> int:
    """Adds the deliveries of one head, given as a row, and of its run; returns how many."""
    subject = row[_SUBJECT]
    receipt, deliveries = pulling.terms.receipt, pulling.pulled.deliveries
    deliveries.append(_delivery(row, slot, receipt))
    given = 1
    for _, _, seq, due, _, message_id, key, headers, body, published_at in behind[: left - 1]:
        if due > pulling.now_ms:
            break
        deliveries.append(
            Delivery(message_id, key, None if headers is None else heads.headers_of(headers),
                     body, published_at, slot, subject, seq, receipt, 1, 0, due)
        )  # fmt: skip
        given += 1
    return given
