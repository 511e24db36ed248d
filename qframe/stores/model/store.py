"""The store in memory: the sum of its roles, each of them in the module of its name."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.stores.base import Topics
from qframe.stores.controls import Controls
from qframe.stores.documents import Space
from qframe.stores.edits import Edits
from qframe.stores.model.bell import EventBell
from qframe.stores.model.buckets import ModelBuckets
from qframe.stores.model.copying import ModelCopying
from qframe.stores.model.documents import ModelDocuments
from qframe.stores.model.edits import ModelRewriting
from qframe.stores.model.groups import ModelGroups
from qframe.stores.model.growing import ModelGrowing
from qframe.stores.model.history import ModelHistory
from qframe.stores.model.inspect import ModelInspecting
from qframe.stores.model.logs import ModelLogs
from qframe.stores.model.pages import ModelPages
from qframe.stores.model.publish import ModelPublishing
from qframe.stores.model.pull import ModelPulling
from qframe.stores.model.repair import ModelRepairing
from qframe.stores.model.settle import ModelSettling
from qframe.stores.model.topics import ModelTopics
from qframe.stores.rosters import Rosters
from qframe.stores.types import Capabilities
from qframe.topic import Topic

_CAPABILITIES: Final = Capabilities(bell=True)


class ModelStore(
    ModelTopics, ModelPublishing, ModelPulling, ModelSettling, ModelGroups, ModelDocuments,
    ModelBuckets, ModelPages, ModelRewriting, ModelRepairing, ModelInspecting, ModelHistory,
    ModelLogs, ModelCopying, ModelGrowing, Topics, Rosters, Controls, Edits,
):  # fmt: skip
    """Messages in this process's memory.

    Args:
        namespace: as for every store; there is nobody else here.
        clock: the store's clock.
    """

    url = "model://"
    capabilities = _CAPABILITIES

    def __init__(self, *, namespace: str = "qframe", clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock)
        self.namespace = namespace

    def bell(self, topics: Sequence[Topic]) -> EventBell:  # noqa: ARG002 - it hears all of them
        """A bell that rings when one of these topics may have something new."""
        bell = EventBell(self._bells.discard, secrets.token_hex(8))
        self._bells.add(bell)
        return bell

    def document_bell(self, topic: Topic, group: str, space: Space) -> EventBell:  # noqa: ARG002
        """A bell that rings when any documents have changed."""
        bell = EventBell(self._space_bells.discard)
        self._space_bells.add(bell)
        return bell

    def reconnect(self) -> None:
        """Has no connections."""

    def close(self) -> None:
        """Ends all waits."""
        for bell in [*self._bells, *self._space_bells]:
            bell.close()
