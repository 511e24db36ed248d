"""The contract of a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from qframe.topic import Topic


class Ledger(Protocol):
    """Where the epochs of slots are kept, and checked: the store."""

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot, as 16 hexadecimal digits."""


class Membership(Protocol):
    """One consumer's part in a (topic, group)."""

    def owned(self) -> Mapping[int, str]:
        """The slots that are this member's now, and their epochs; the same object until it changes.

        Empty while it must not pull. The consumer takes new ones in the store before it pulls.
        """

    def fenced(self, slot: int) -> None:
        """Told by the consumer when the store refused a slot's epoch."""

    def leave(self) -> None:
        """Gives all slots up; idempotent. The consumer has settled or given back everything."""


class Coordinator(Protocol):
    """Allots slots to the members of each (topic, group)."""

    def join(
        self,
        topic: Topic,
        group: str,
        *,
        on_change: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> Membership:
        """Takes part.

        Args:
            topic: the topic.
            group: the group.
            on_change: called, from any thread, after what `owned` answers has changed.
            on_failure: called with a part's name and an error after which the worker must end.
        """

    def close(self) -> None:
        """Leaves everything and frees connections; idempotent."""
