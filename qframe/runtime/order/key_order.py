"""The order of deliveries that are handled one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.retry_policy import Disposition, releases
from qframe.runtime.order.lanes import Lanes


class KeyOrder:
    """One delivery of a lane at a time, by `Lanes`, so that ends are in order by themselves.

    One is retried while what waits behind it is given back, by a pause or a stop: whichever comes
    first takes the rest of its lane along, and nothing goes to the store twice.

    Args:
        lanes: the lanes, with a filter where the consumer has tags.
        by_run: whether the store parks a subject with its first message, as in all kinds but
            streams.
        gone: hears of deliveries that the store takes back with others.
        put: hands settlements to the settler.
    """

    def __init__(
        self,
        lanes: Lanes,
        *,
        by_run: bool,
        gone: Callable[[list[Delivery]], object],
        put: Callable[[list[Delivery] | Disposition], None],
    ) -> None:
        self._lanes = lanes
        self._by_run = by_run
        self._gone = gone
        self._put = put
        self._guard = threading.Lock()  # from when something leaves its lane until it is put
        self.offer: Callable[[Iterable[Delivery]], list[Delivery]] = lanes.offer
        self.free: Callable[[Iterable[Delivery]], list[Delivery]] = lanes.free
        self.forget: Callable[[Collection[Delivery]], None] = lanes.forget

    def lane_of(self, delivery: Delivery) -> str | int | None:  # noqa: ARG002 - of the protocol
        """Matters within a batch alone."""
        return None

    def held(self, unit: list[Attempt]) -> list[Attempt]:  # noqa: ARG002 - of the protocol
        """Holds none: no other one of its lane is let through."""
        return []

    def behind(self) -> list[Delivery]:
        """Lets nothing through that would wait."""
        return []

    def acknowledge(self, deliveries: list[Delivery]) -> None:
        """Tells the store that deliveries are done."""
        self._put(deliveries)

    def end(self, disposition: Disposition) -> Collection[Delivery]:
        """Tells the store how a delivery has ended.

        Where the store parks the subject, what waits behind in the lane goes back with it.
        """
        with self._guard:
            self._end(disposition)
        return ()

    def release(self, deliveries: list[Delivery]) -> None:
        """Gives deliveries back, uncounted."""
        with self._guard:
            self._release(deliveries)

    def give_back(
        self, deliveries: list[Delivery], wanted: Callable[[Delivery], bool]
    ) -> list[Delivery]:
        """Gives back deliveries, and what waits behind others and is wanted; returns all."""
        with self._guard:
            deliveries = deliveries + self._lanes.withdraw(wanted)
            self._release(deliveries)
        return deliveries

    def _release(self, deliveries: list[Delivery]) -> None:
        dispositions, implied = releases(deliveries, by_run=self._by_run)
        self._gone(implied)
        for disposition in dispositions:
            self._end(disposition)

    def _end(self, disposition: Disposition) -> None:
        if self._by_run and disposition.verdict is not Verdict.DEAD:
            self._gone(self._lanes.drop(disposition.delivery))
        self._put(disposition)
