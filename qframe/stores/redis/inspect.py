"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.base import Inspecting
from qframe.stores.faults import sentences
from qframe.stores.records import Stats
from qframe.stores.redis.audit import verify
from qframe.stores.redis.counts import stats
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic


class RedisInspecting(RedisRole, Inspecting):
    """Counts, records and the audit."""

    @override
    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        return self._call(topic, stats, group, self._now())

    @override
    def verify(self, topic: Topic) -> list[str]:
        return sentences(self._call(topic, verify, self._now()))

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._now_ms()
