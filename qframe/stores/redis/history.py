"""How attempts have ended: a script for each slot."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from qframe.stores.base import History
from qframe.stores.records import HistoryEntry
from qframe.stores.redis import histories
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic


class RedisHistory(RedisRole, History):
    """Entries of slots' hashes."""

    @override
    def ends(
        self, topic: Topic, slots: Sequence[int], message_id: str = "", key: str = ""
    ) -> list[HistoryEntry]:
        return self._call(topic, histories.looked_up, slots, message_id, key)
