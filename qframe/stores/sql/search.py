"""Finding messages, and changing nothing: by primary keys and second indexes, then row by row."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from qframe.drivers.sql import Transaction
from qframe.stores.base import Searching
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.records import HistoryEntry
from qframe.stores.sql import histories
from qframe.stores.sql.cursors import GROUPS
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_MOST_OF_A_TIME: Final = 2000


class SqlSearching(SqlRole, Searching):
    """Look-ups, and pages of whole tables."""

    @override
    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        return self._read(topic, history, message_id, slot)

    @override
    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        return self._read(topic, last_ended, key)


def history(
    transaction: Transaction, ref: TopicRef, message_id: str, slot: int | None
) -> list[HistoryEntry]:
    """The ends of a message's attempts that are kept, by group and slot."""
    everywhere = [*ref.topic.past_slots, *ref.topic.all_slots]
    found = [
        entry
        for name, number in sorted(_groups(transaction, ref).items())
        for each in (everywhere if slot is None else [slot])
        for entry in histories.of(transaction, ref.cursor_number(number, each), name, message_id)
    ]
    return in_time(found, ref.topic, transaction.now_ms())


def last_ended(transaction: Transaction, ref: TopicRef, key: str) -> list[HistoryEntry]:
    """The ends of the message of a key that has ended last, by group."""
    found = [
        entry
        for name, number in sorted(_groups(transaction, ref).items())
        for slot in ref.topic.slots_ever_of(key.encode())
        for entry in histories.of_key(transaction, ref.cursor_number(number, slot), name, key)
    ]
    return in_time(of_last_slots(found), ref.topic, transaction.now_ms())


def _groups(transaction: Transaction, ref: TopicRef) -> dict[str, int]:
    return {name: number for number, name in transaction.rows(GROUPS, (ref.id,))}
