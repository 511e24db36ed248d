"""Messages that stand first for a key."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.acts import Unblocking
from qframe.stores.model import inspect
from qframe.stores.model.role import ModelRole
from qframe.stores.records import Record
from qframe.topic import Topic


class ModelUnblocking(ModelRole, Unblocking):
    """Heads of a group."""

    @override
    def first_of_key(self, topic: Topic, group: str, key: str, limit: int = 100) -> list[Record]:
        with self._lock:
            self._group(topic, group)
            state = self._state(topic)
            found = [
                inspect.record_of_head(state, group, number, subject, head, self._now_ms())
                for number, cursor in state.cursors(group).items()
                for subject, head in sorted(cursor.heads.items(), key=lambda each: each[1].seq)
                if (subject if topic.has_subjects else head.message.key) == key
            ]
        return found[:limit]
