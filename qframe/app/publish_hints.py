"""Notices what a handler publishes beside its transaction, and not in it."""

from __future__ import annotations

from typing import Final, cast

from qframe.current import being_handled
from qframe.events import Events
from qframe.runtime.handler.attempt import Attempt

_WHY: Final = (
    "it stays published when the handler's transaction is rolled back, and is published again by "
    "the next attempt: use outbox.publish(session, …), or an id made of the handled message's"
)


class PublishHints:
    """Says once for each consumer that its handler publishes beside its transaction.

    Args:
        events: where it is said.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._told: dict[tuple[str, str], object] = {}

    def look(self, topic: str) -> None:
        """Looks for a transaction that the caller, who publishes to a topic, runs in."""
        messages = being_handled()
        if not self._events or not messages:
            return
        attempt = cast("Attempt", messages[0])  # those of a batch have one transaction
        effect = attempt.effect
        if effect is None or effect.transaction is None:
            return
        consumer, mine = (attempt.topic, attempt.group), object()
        if consumer in self._told or self._told.setdefault(consumer, mine) is not mine:
            return
        self._events.emit(
            "publish.outside", topic=attempt.topic, group=attempt.group, id=attempt.id, into=topic,
            why=_WHY,
        )  # fmt: skip
