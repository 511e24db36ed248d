"""Finding messages, and changing nothing."""

from __future__ import annotations

import msgspec
from typing_extensions import override

from qframe.stores.base import Searching
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.model.role import ModelRole
from qframe.stores.records import (
    HistoryEntry,
)
from qframe.topic import Topic


class ModelSearching(ModelRole, Searching):
    """Looks at everything; the other stores do so by their indexes."""

    @override
    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        with self._lock:
            found = [
                msgspec.structs.replace(entry, group=group, slot=number)
                for group, cursors in sorted(self._state(topic).groups.items())
                for number, cursor in cursors.items()
                if slot in (None, number)
                for entry in cursor.history.get(message_id, ())
            ]
            return in_time(found, topic, self._now_ms())

    @override
    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        with self._lock:
            found = [
                msgspec.structs.replace(entry, group=group, slot=number)
                for group, cursors in sorted(self._state(topic).groups.items())
                for number, cursor in cursors.items()
                for entry in cursor.history.get(cursor.endings.get(key, ("", 0))[0], ())
            ]
            return in_time(of_last_slots(found), topic, self._now_ms())
