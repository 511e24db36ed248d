"""A worker in a thread of this process that shares slots with others, and what it was told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from eventually import eventually

from qframe import Message, QFrame, Topic
from qframe.errors import UnknownGroup
from qframe.roster import Roster

GROUP = "g"


class Shop:
    """A worker in a thread of this process, and what its handler saw."""

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
        self.app = QFrame(
            store=store, coordinator=coordinator, namespace=namespace, grace=5,
            session_timeout=session_s,
        )  # fmt: skip
        self.topic = topic
        self.events: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.app.events.listen(self._listen)
        self.app.consumer(topic, group=GROUP, **options)(handle)
        self._thread = threading.Thread(target=self._run)

    def _listen(self, name: str, facts: dict[str, Any]) -> None:
        self.events[name] += facts.get("count", 1)

    def _run(self) -> None:
        try:
            self.app.run()
        except Exception as error:  # told by whoever looks
            self.failure = error

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

    def stop(self) -> None:
        self.app.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
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
