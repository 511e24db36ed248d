"""The consumer of a pull loop, as that uses it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from qframe.errors import UnknownGroup
from qframe.message import Delivery


class PullReceiver(Protocol):
    """The consumer of a pull loop: owns the slots, and takes over what is pulled."""

    def owned(self) -> Mapping[int, str]:
        """The slots that may be pulled from now, and their epochs; takes new ones."""

    def lacks(self) -> bool:
        """Whether there may be more than a bell tells of.

        It owns slots that could not be taken, since their servers are away, or slots that are full.
        """

    def before_pull(self) -> None:
        """A pull is asked for: what is answered until now it knows."""

    def note_full(self, asked: Collection[int], full: Collection[int]) -> None:
        """Notes of which slots asked so much is parked that their lines are not read."""

    def still_owned(self, deliveries: list[Delivery]) -> list[Delivery]:
        """The deliveries of those just pulled whose slots were not lost in the meantime."""

    def offer(self, deliveries: list[Delivery]) -> None:
        """Takes deliveries over; they are in flight already."""

    def kept(self) -> Callable[[], None] | None:
        """Handles what it has kept for the thread that has pulled it; None if that is nothing."""

    def fenced(self, slots: list[int]) -> None:
        """Called when the store has refused the epochs of these slots."""

    def held_back(self) -> None:
        """Called when nothing is pulled until some of what is in flight is settled."""

    def subscribe_anew(self, error: UnknownGroup) -> None:
        """Subscribes a group that has expired; raises the error for any other."""
