"""Looking, and changing nothing: counts, peeks, where a message is."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.base import Inspecting
from qframe.stores.faults import sentences
from qframe.stores.records import Stats
from qframe.stores.sql.audit import verify
from qframe.stores.sql.counts import stats
from qframe.stores.sql.role import SqlRole
from qframe.topic import Topic


class SqlInspecting(SqlRole, Inspecting):
    """Counts, records and the audit."""

    @override
    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        return self._read(topic, stats, group)

    @override
    def verify(self, topic: Topic) -> list[str]:
        return sentences(self._read(topic, verify))

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._database.read_autocommit(lambda it: it.now_ms())
