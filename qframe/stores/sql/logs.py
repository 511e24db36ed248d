"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from typing_extensions import override

from qframe.drivers.sql import Transaction
from qframe.message import Delivery
from qframe.stores.base import Logs
from qframe.stores.sql import window
from qframe.stores.sql.heads import headers_of
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic


class SqlLogs(SqlRole, Logs):
    """Logs as rows."""

    @override
    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        return self._read(topic, read_log, slot, first, limit)


def read_log(
    transaction: Transaction, ref: TopicRef, slot: int, first: int, limit: int
) -> list[Delivery]:
    """A slot's messages from an offset on, in order, at most `limit`."""
    rows = transaction.rows(window.READ, (ref.slot_number(slot), first, limit))
    return [
        Delivery(id_, key, headers_of(text), body, at_ms, slot, None, seq)
        for seq, id_, key, text, body, at_ms in rows
    ]
