"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from typing_extensions import override

from qframe.message import Delivery
from qframe.stores.base import Logs
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import Slot, TopicState
from qframe.topic import Topic


class ModelLogs(ModelRole, Logs):
    """Logs by offset."""

    @override
    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        with self._lock:
            return read_log(self._state(topic), slot, first, limit)


def read_log(state: TopicState, number: int, first: int, limit: int) -> list[Delivery]:
    """A slot's messages from an offset on, in order, at most `limit`."""
    slot = state.slots.get(number, Slot())  # who splits it may not know that it is forgotten
    wanted = [each for each in sorted(slot.log.items()) if each[0] >= first]
    return [
        Delivery(
            one.id, one.key, one.headers, one.body, one.published_at_ms, number, None, offset
        )
        for offset, one in wanted[:limit]
    ]  # fmt: skip
