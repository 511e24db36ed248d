"""How attempts have ended: rows of the history, by primary keys."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from qframe.drivers.sql import Transaction
from qframe.stores.base import History
from qframe.stores.records import HistoryEntry
from qframe.stores.sql import histories
from qframe.stores.sql.cursors import GROUPS
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic


class SqlHistory(SqlRole, History):
    """Rows of cursors."""

    @override
    def ends(
        self, topic: Topic, slots: Sequence[int], message_id: str = "", key: str = ""
    ) -> list[HistoryEntry]:
        return self._read(topic, ends, slots, message_id, key)


def ends(
    transaction: Transaction, ref: TopicRef, slots: Sequence[int], message_id: str, key: str
) -> list[HistoryEntry]:
    """The ends of a message's attempts that are kept, by group and slot."""
    groups = sorted((name, number) for number, name in transaction.rows(GROUPS, (ref.id,)))
    find, value = (histories.of_key, key) if key else (histories.of, message_id)
    return [
        entry
        for name, number in groups
        for slot in slots
        for entry in find(transaction, ref.cursor_number(number, slot), name, value)
    ]
