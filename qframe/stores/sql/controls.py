"""The tuned settings of a group, its bucket of tokens, and what its workers report.

Tuning locks the group's row, drawing the bucket's, so that draws wait for draws alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, delete, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.stores.base import Controls
from qframe.stores.bucket import Bucket, DrawTerms, drawn
from qframe.stores.sql.cursors import known_group, lock_group
from qframe.stores.sql.padding import SIZES, padded
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import buckets, groups, reports, topics, tunings
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import REPORTS_MS, DrawResult, WorkerReport
from qframe.topic import Topic

_CLEAR: Final = Statement(
    delete(tunings).where(tunings.c.group_id == bindparam("of"), tunings.c.name == bindparam("n")),
    "of n",
)
_SET: Final = Statement(tunings.insert(), "group_id name value")
_BUCKET: Final = Statement(
    select(buckets.c.group_id, buckets.c.level, buckets.c.at)
    .where(
        buckets.c.group_id
        == select(groups.c.id)
        .where(groups.c.topic == bindparam("of"), groups.c.name == bindparam("n"))
        .scalar_subquery()
    )
    .with_for_update(),
    "of n",
)
_ADD_BUCKET: Final = Statement(buckets.insert(), "group_id level at")
_SET_BUCKET: Final = Statement(
    buckets.update()
    .where(buckets.c.group_id == bindparam("of"))
    .values(level=bindparam("l"), at=bindparam("a")),
    "l a of",
)
_FORGET: Final = [
    Statement(delete(table).where(table.c.group_id == bindparam("of")), "of")
    for table in (tunings, buckets, reports)
]

_REPORT: Final = Statement(
    reports.update()
    .where(reports.c.group_id == bindparam("of"), reports.c.worker == bindparam("w"))
    .values(at=bindparam("a"), text=bindparam("t")),
    "a t of w",
)
_ADD_REPORT: Final = Statement(reports.insert(), "group_id worker at text")
_OLD_REPORTS: Final = Statement(
    delete(reports).where(reports.c.group_id == bindparam("of"), reports.c.at <= bindparam("a")),
    "of a",
)
_REPORTS: Final = Statement(
    select(reports.c.worker, reports.c.at, reports.c.text)
    .where(reports.c.group_id == bindparam("of"))
    .order_by(reports.c.worker),
    "of",
)


class SqlControls(SqlRole, Controls):
    """Tunings and buckets as rows."""

    @override
    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        self._write(topic, tune, group, values)

    @override
    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        return self._database.read_autocommit(lambda it: tuned(it, self.namespace, asked))

    @override
    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        return self._write(topic, draw, group, DrawTerms(tokens, rate, per_ms, burst))

    @override
    def report(self, topic: Topic, group: str, worker: str, text: str) -> None:
        self._write(topic, report, group, worker, text)

    @override
    def reports(self, topic: Topic, group: str) -> list[WorkerReport]:
        return self._read(topic, reported, group)


def report(transaction: Transaction, ref: TopicRef, group: str, worker: str, text: str) -> None:
    """Keeps a worker's word; its first one takes the old ones of others away."""
    number = known_group(transaction, ref, group)
    now_ms = transaction.now_ms()
    if transaction.run(_REPORT, (now_ms, text, number, worker)):
        return
    number = _locked(transaction, ref, group)
    transaction.run(_OLD_REPORTS, (number, now_ms - REPORTS_MS))
    transaction.run(_ADD_REPORT, (number, worker, now_ms, text))


def reported(transaction: Transaction, ref: TopicRef, group: str) -> list[WorkerReport]:
    """The last report of each worker."""
    number = known_group(transaction, ref, group)
    return [WorkerReport(*row) for row in transaction.rows(_REPORTS, (number,))]


def tune(
    transaction: Transaction, ref: TopicRef, group: str, values: Mapping[str, str | None]
) -> None:
    """Sets values by name, or takes them back."""
    number = _locked(transaction, ref, group)
    transaction.run_many(_CLEAR, [(number, name) for name in values])
    transaction.run_many(
        _SET, [(number, name, text) for name, text in values.items() if text is not None]
    )


def tuned(
    transaction: Transaction, namespace: str, asked: Sequence[tuple[Topic, str]]
) -> list[dict[str, str] | None]:
    """The settings of each group."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    names = list(dict.fromkeys(topic.name for topic, _ in asked))
    for some in padded(names):
        for topic, group, name, text in transaction.rows(_tuned(len(some)), (namespace, *some)):
            found.setdefault((topic, group), {})[name] = text
    return [found.get((topic.name, group), {}) for topic, group in asked]


@lru_cache(maxsize=len(SIZES))
def _tuned(count: int) -> Statement:
    """The settings of groups of so many topics; others of the namespace cost nothing."""
    names = [f"n{number}" for number in range(count)]
    among = topics.c.name.in_([bindparam(name) for name in names])
    query = (
        select(topics.c.name, groups.c.name, tunings.c.name, tunings.c.value)
        .select_from(
            tunings.join(groups, groups.c.id == tunings.c.group_id).join(
                topics, topics.c.id == groups.c.topic
            )
        )
        .where(topics.c.namespace == bindparam("ns"), among)
        .order_by(tunings.c.group_id, tunings.c.name)
    )
    return Statement(query, f"ns {' '.join(names)}")


def draw(transaction: Transaction, ref: TopicRef, group: str, terms: DrawTerms) -> DrawResult:
    """Draws tokens, as many as there are."""
    row = transaction.row(_BUCKET, (ref.id, group))
    if row is None:
        # Of two who draw first, the second waits for the first and finds its bucket.
        number = _locked(transaction, ref, group)
        row = transaction.row(_BUCKET, (ref.id, group))
    before = None if row is None else Bucket(*row[1:])
    result, after = drawn(before, terms, transaction.now_ms())
    if after is None:
        return result
    if row is None:
        transaction.run(_ADD_BUCKET, (number, *after))
    else:
        transaction.run(_SET_BUCKET, (*after, row[0]))
    return result


def forget(transaction: Transaction, group: int) -> None:
    """Forgets what stands for a group that is dropped."""
    for statement in _FORGET:
        transaction.run(statement, (group,))


def _locked(transaction: Transaction, ref: TopicRef, group: str) -> int:
    """The number of a group that nobody drops meanwhile."""
    before = None
    # Dropped before it was locked, and subscribed again since, it has another number.
    while (number := known_group(transaction, ref, group)) != before:
        if lock_group(transaction, number):
            return number
        before = number
    raise UnknownGroup(ref.topic.name, group)
