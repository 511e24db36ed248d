"""A worker in a thread of this process that shares slots with others, and what it was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import apps
from eventually import eventually

from qframe import Message, Topic
from qframe.errors import UnknownGroup
from qframe.roster import Roster

GROUP = "g"


class Shop(apps.Shop):
    """A worker in a thread of this process, and what its handler saw."""

    keeps = Exception

    def __init__(
        self,
        store: str,
        coordinator: str,
        namespace: str,
        topic: Topic,
        handle: Callable[[Message], None],
        session_s: float = 10,
        **options: Any,
    ) -> None:
        super().__init__(
            store, coordinator=coordinator, namespace=namespace, session_timeout=session_s
        )
        self.topic = topic
        self.app.consumer(topic, group=GROUP, **options)(handle)

    @property
    def epochs(self) -> dict[int, str]:
        """The slots that it may pull from, and their epochs."""
        worker = self.app.parts.opened.worker
        return {} if worker is None else dict(worker._consumers[0].slots.open())

    @property
    def roster(self) -> Roster:
        coordinator = self.app.parts.opened.coordinator
        assert coordinator is not None
        return coordinator.roster(self.topic, GROUP)

    @property
    def shares(self) -> list[int]:
        """How many slots each member owns, the most first; none while nobody has subscribed."""
        try:
            roster = self.roster
        except UnknownGroup:
            return []
        counts = Counter(owner.member for owner in roster.owners.values())
        return sorted((counts[member.id] for member in roster.members), reverse=True)

    def __enter__(self) -> Self:
        self.start()
        eventually(lambda: self.app.parts.opened.coordinator is not None)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.app.close()


def counting(seen: list[int], number: int) -> Callable[[Message], None]:
    """A handler that tells that it was called."""

    def handle(message: Message) -> None:
        seen.append(number)

    return handle
