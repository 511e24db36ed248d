"""The order of deliveries that are handled one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.retry_policy import Disposition, releases
from qframe.runtime.order.lanes import Lanes
from qframe.runtime.order.parked_keys import ParkedKeys, of_one_key


class KeyOrder:
    """One delivery of a lane at a time, by `Lanes`, so that ends are in order by themselves.

    One is retried while what waits behind it is given back, by a pause or a stop: whichever comes
    first takes the rest of its lane along, and nothing goes to the store twice.

    Args:
        lanes: the lanes, with a filter where the consumer has tags.
        by_run: whether the store parks a subject with its first message, as in all kinds but
            streams.
        parked: the keys that are parked, if it is a stream whose group keeps order: the store parks
            a key with the first of its messages that comes back.
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
        parked: ParkedKeys | None = None,
    ) -> None:
        self._lanes = lanes
        self._by_run = by_run
        self._parked = parked
        self._gone = gone
        self._put = put
        self._guard = threading.Lock()  # from when something leaves its lane until it is put
        self.free: Callable[[list[Delivery]], list[Delivery]] = lanes.free
        self.forget: Callable[[Collection[Delivery]], None] = lanes.forget

    def offer(
        self, deliveries: list[Delivery], hand_on: Callable[[list[Delivery]], object]
    ) -> None:
        """Puts what was pulled into its lanes, and hands on what found them free."""
        if self._parked is None:
            hand_on(self._lanes.offer(deliveries))
            return
        with self._guard:
            deliveries, refused = self._parked.sort(deliveries)
            self._put_back(refused)
            through = self._lanes.offer(deliveries)
        hand_on(through)

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

        Where the store parks the subject or the key, what waits behind in the lane goes back.
        """
        one = disposition.delivery
        with self._guard:
            is_back = disposition.verdict is not Verdict.DEAD
            is_back = is_back and (self._parked is None or self._parked.is_held(one))
            self._put_back(self._taken_along([one]) if is_back else [], after=disposition)
        return ()

    def release(self, deliveries: list[Delivery]) -> Collection[Delivery]:
        """Gives deliveries back, uncounted."""
        with self._guard:
            self._put_back(deliveries + self._taken_along(deliveries))
        return ()

    def give_back(
        self, deliveries: list[Delivery], wanted: Callable[[Delivery], bool]
    ) -> list[Delivery]:
        """Gives back deliveries, and what waits behind others and is wanted; returns all."""
        with self._guard:
            deliveries = deliveries + self._lanes.withdraw(wanted)
            self._put_back(deliveries + self._taken_along(deliveries))
        return deliveries

    def before_pull(self) -> None:
        """Opens the keys of which the store has answered all that was given back."""
        if self._parked is not None:
            with self._guard:
                self._parked.before_pull()

    def _taken_along(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Takes out what waits in the lanes of deliveries that go back, and goes back with them.

        Returns those of a parked key; those of a run the store takes back by itself.
        """
        behind: list[Delivery] = []
        if self._parked is not None:
            for one in deliveries:
                others = self._lanes.drop(one, of_one_key)
                self._parked.park([one, *others])
                behind += others
        elif self._by_run:
            self._gone([other for one in deliveries for other in self._lanes.drop(one)])
        return behind

    def _put_back(self, deliveries: list[Delivery], after: Disposition | None = None) -> None:
        """Gives deliveries back, behind one that ends in its own way.

        First that is gone which the store takes back by itself: its lease ends with what is put.
        """
        dispositions: list[Disposition] = []
        if deliveries:
            dispositions, implied = releases(deliveries, after.delivery if after else None)
            self._gone(implied)
        if after is not None:
            self._put(after)
        for disposition in dispositions:
            self._put(disposition)
