"""Mending what is wrong: nobody but the model itself writes its memory, so there is nothing."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores.acts import Repairing
from qframe.stores.model.role import ModelRole
from qframe.topic import Topic


class ModelRepairing(ModelRole, Repairing):
    """Nothing to put right."""

    @override
    def repair(self, topic: Topic) -> list[str]:
        with self._lock:
            self._state(topic)
            return []
