"""Finding messages, and changing nothing: by names of keys and subjects, then entry by entry."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from qframe.stores.base import Searching
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.records import HistoryEntry
from qframe.stores.redis import histories
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

_MOST_OF_A_TIME: Final = 2000


class RedisSearching(RedisRole, Searching):
    """Look-ups, and pages of whole hashes."""

    @override
    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        found = self._call(topic, histories.found, message_id, slot)
        return in_time(found, topic, self._now_ms())

    @override
    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        found = self._call(topic, histories.found_by_key, key)
        return in_time(of_last_slots(found), topic, self._now_ms())
