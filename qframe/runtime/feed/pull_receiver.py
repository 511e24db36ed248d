"""The consumer of a pull loop, as that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qframe.errors import UnknownGroup
from qframe.message import Delivery


class PullReceiver(Protocol):
    """The consumer of a pull loop: takes over what is pulled."""

    def before_pull(self) -> None:
        """A pull is asked for: what is answered until now it knows."""

    def offer(self, deliveries: list[Delivery]) -> None:
        """Takes deliveries over; they are in flight already."""

    def kept(self) -> Callable[[], None] | None:
        """Handles what it has kept for the thread that has pulled it; None if that is nothing."""

    def held_back(self) -> None:
        """Called when nothing is pulled until some of what is in flight is settled."""

    def subscribe_anew(self, error: UnknownGroup) -> None:
        """Subscribes a group that has expired; raises the error for any other."""
