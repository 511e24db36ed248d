"""Messages that stand first for a key."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.acts import Unblocking
from qframe.stores.records import Record
from qframe.stores.sql import heads
from qframe.stores.sql.cursors import known_group
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.records import record_of_head
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, subjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_OF_KEY: Final = Statement(
    select(subjects)
    .where(
        subjects.c.cursor >= bindparam("first"),
        subjects.c.cursor < bindparam("end"),
        subjects.c.key == bindparam("k"),
    )
    .order_by(subjects.c.cursor, subjects.c.seq)
    .limit(bindparam("most")),
    "first end k most",
)


class SqlUnblocking(SqlRole, Unblocking):
    """Rows of subjects."""

    @override
    def first_of_key(self, topic: Topic, group: str, key: str, limit: int = 100) -> list[Record]:
        return self._read(topic, first_of_key, group, key, limit)


def first_of_key(
    transaction: Transaction, ref: TopicRef, group: str, key: str, limit: int
) -> list[Record]:
    """A subject's head by primary key; in a stream those that left the line, which are few."""
    number, now_ms = known_group(transaction, ref, group), transaction.now_ms()
    found: list[HeadRow] = []
    if ref.topic.has_subjects:
        for at in ref.cursor_numbers(number):
            head = heads.fetched(transaction, at, key)
            found += [] if head is None else [head]
    else:
        first, end = ref.cursor_range(number)  # a slot that is being filled has the same once more
        rows = transaction.rows(_OF_KEY, (first, end, key, 2 * limit))
        found = [HeadRow(*row) for row in rows if ref.is_in_use(row[0] % PER_TOPIC)]
    return [record_of_head(ref, group, head, now_ms) for head in found[:limit]]
