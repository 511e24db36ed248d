"""The buckets of tokens of groups.

Drawing locks the bucket's row alone, so that draws wait for draws alone.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.errors import UnknownGroup
from qframe.stores.bucket import Bucket, Buckets, DrawTerms, drawn
from qframe.stores.sql.cursors import known_group, lock_group
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import buckets, groups
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import DrawResult
from qframe.topic import Topic

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
_FORGET: Final = Statement(delete(buckets).where(buckets.c.group_id == bindparam("of")), "of")


class SqlBuckets(SqlRole, Buckets):
    """Buckets as rows."""

    @override
    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        return self._write(topic, draw, group, DrawTerms(tokens, rate, per_ms, burst))


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
    """Forgets the bucket of a group that is dropped."""
    transaction.run(_FORGET, (group,))


def _locked(transaction: Transaction, ref: TopicRef, group: str) -> int:
    """The number of a group that nobody drops meanwhile."""
    before = None
    # Dropped before it was locked, and subscribed again since, it has another number.
    while (number := known_group(transaction, ref, group)) != before:
        if lock_group(transaction, number):
            return number
        before = number
    raise UnknownGroup(ref.topic.name, group)
