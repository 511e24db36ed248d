"""Dead letters."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.acts import DeadLetters
from qframe.stores.model import inspect
from qframe.stores.model.role import ModelRole
from qframe.stores.records import ALL_DEAD, ChosenDead, Record
from qframe.topic import Topic


class ModelDeadLetters(ModelRole, DeadLetters):
    """Dead letters of cursors."""

    @override
    def dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> list[Record]:
        with self._lock:
            self._group(topic, group)
            everything = inspect.peek(self._state(topic), group, ("dead",), 2**62, self._now_ms())
        return listed(everything, chosen)


def listed(everything: list[Record], chosen: ChosenDead) -> list[Record]:
    """Dead messages, the longest dead first."""
    found = [record for record in everything if chosen.has(record.id, record.dead_place)]
    return sorted(found, key=lambda each: each.dead_place)[: chosen.limit]
