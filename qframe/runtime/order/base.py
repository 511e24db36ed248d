"""The protocol of orders: in which order deliveries are handled and settled."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from qframe.message import Delivery
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.retry_policy import Disposition


class Order(Protocol):
    """Lets deliveries of a lane through in their order, and tells the store of their ends."""

    def offer(
        self, deliveries: list[Delivery], hand_on: Callable[[list[Delivery]], object]
    ) -> None:
        """Takes what was pulled, and hands on what may go to the executor."""

    def free(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Frees the lanes of deliveries that are through; returns what may go on now."""

    def lane_of(self, delivery: Delivery) -> str | int | None:
        """A delivery's lane; None if it has none."""

    def held(self, unit: list[Attempt]) -> list[Attempt]:
        """Attempts of a unit that must wait: one before them in their lane is tried again."""

    def behind(self) -> list[Delivery]:
        """Deliveries that went on to the executor, and wait there behind others of their lane."""

    def acknowledge(self, deliveries: list[Delivery]) -> None:
        """Tells the store that deliveries are done."""

    def end(self, disposition: Disposition) -> Collection[Delivery]:
        """Tells the store how a delivery has ended; returns what it takes back with it.

        Only of what went on to the executor: what waits here is taken back by itself.
        """

    def release(self, deliveries: list[Delivery]) -> Collection[Delivery]:
        """Gives deliveries back, uncounted; returns what the order takes back with them.

        Only of what went on to the executor, as `end`.
        """

    def give_back(
        self, deliveries: list[Delivery], wanted: Callable[[Delivery], bool]
    ) -> list[Delivery]:
        """Gives back deliveries, and what waits here and is wanted; returns all of them."""

    def forget(self, lost: Collection[Delivery]) -> None:
        """Forgets what is not this worker's any more."""

    def before_pull(self) -> None:
        """Opens the keys of which the store has answered all that was given back."""
