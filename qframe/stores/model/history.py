"""How attempts have ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from typing_extensions import override

from qframe.stores.base import History
from qframe.stores.model.role import ModelRole
from qframe.stores.records import HistoryEntry
from qframe.topic import Topic


class ModelHistory(ModelRole, History):
    """Entries of cursors."""

    @override
    def ends(
        self, topic: Topic, slots: Sequence[int], message_id: str = "", key: str = ""
    ) -> list[HistoryEntry]:
        with self._lock:
            return [
                replace(entry, group=group, slot=slot)
                for group, cursors in sorted(self._state(topic).groups.items())
                for slot in slots
                if (cursor := cursors.get(slot)) is not None
                for entry in cursor.history.get(
                    cursor.endings.get(key, ("", 0))[0] if key else message_id, ()
                )
            ]
