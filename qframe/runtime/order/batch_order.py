"""The order of deliveries that are handled in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress

from qframe.message import Delivery
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.retry_policy import Disposition, releases
from qframe.runtime.order.batches import Batches
from qframe.runtime.order.parked_keys import ParkedKeys
from qframe.runtime.order.settlement_order import SettlementOrder
from qframe.runtime.order.tag_filter import partitioned
from qframe.tags import Matches


class BatchOrder:
    """Lanes are in `Batches`, with the batches; ends of an ordered topic wait for their turn.

    A message that is unwanted by its tags is acknowledged as it comes in; in an ordered topic, when
    its turn has come.

    Args:
        batches: where the executor gathers batches.
        in_turn: whether ends have to be told in order: in an ordered topic, and by a stream's
            group that keeps order.
        parked: the keys that are parked, if it is such a group.
        matches: whether a message with these headers is wanted; None if all are.
        is_mine: whether a delivery is in flight still.
        gone: hears of deliveries that the store takes back with others.
        put: hands settlements to the settler.
        on_skipped: called with how many were acknowledged that were not wanted.
    """

    def __init__(
        self,
        batches: Batches,
        *,
        in_turn: bool,
        parked: ParkedKeys | None,
        matches: Matches | None,
        is_mine: Callable[[Delivery], bool],
        gone: Callable[[list[Delivery]], object],
        put: Callable[[list[Delivery] | Disposition], None],
        on_skipped: Callable[[int], None],
    ) -> None:
        self._batches = batches
        self._matches = matches
        self._is_mine = is_mine
        self._gone = gone
        self._put = put
        self._on_skipped = on_skipped
        self._settlement_order = (
            SettlementOrder(self._put_in_turn, gone, parked=parked) if in_turn else None
        )
        self._skipped: deque[Delivery] = deque()

    def offer(
        self, deliveries: list[Delivery], hand_on: Callable[[list[Delivery]], object]
    ) -> None:
        """Lets all through that are wanted: `Batches` keeps the order of their lanes."""
        if self._settlement_order is None:
            wanted, unwanted = self._partitioned(deliveries)
            if unwanted:
                self.acknowledge(unwanted)
                self._on_skipped(len(unwanted))
            hand_on(wanted)
            return
        with self._settlement_order.guard:  # who is retried now takes back what `Batches` has
            # One whose slot was lost just now was forgotten before it came here.
            mine = [one for one in deliveries if self._is_mine(one)]
            wanted, unwanted = self._partitioned(self._settlement_order.note(mine))
            hand_on(wanted)
        self.acknowledge(unwanted)

    def _partitioned(self, deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        return (deliveries, []) if self._matches is None else partitioned(deliveries, self._matches)

    def free(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Frees lanes; the executor has what may go on."""
        self._batches.free(deliveries)
        return []

    def lane_of(self, delivery: Delivery) -> str | int | None:
        """A delivery's lane; None if it has none."""
        return self._batches.lane_of(delivery)

    def held(self, unit: list[Attempt]) -> list[Attempt]:
        """Attempts of a unit that must wait: one before them in their lane is tried again."""
        return self._batches.held(unit)

    def behind(self) -> list[Delivery]:
        """Deliveries that wait behind others of their lane."""
        return self._batches.behind()

    def acknowledge(self, deliveries: list[Delivery]) -> None:
        """Tells the store that deliveries are done, when their turns have come."""
        if self._settlement_order is None:
            if deliveries:
                self._put(deliveries)
            return
        for delivery in deliveries:
            self._settlement_order.settle(delivery, delivery)
        self._tell_skipped()

    def end(self, disposition: Disposition) -> Collection[Delivery]:
        """Tells the store how a delivery has ended, when its turn has come."""
        if self._settlement_order is None:
            self._put(disposition)
            return ()
        taken_back = self._settlement_order.settle(disposition.delivery, disposition)
        self._tell_skipped()
        return taken_back

    def release(self, deliveries: list[Delivery]) -> Collection[Delivery]:
        """Gives deliveries back, uncounted, and with them what has ended behind them."""
        if self._settlement_order is not None:
            return self._settlement_order.release(deliveries)
        dispositions, implied = releases(deliveries)
        self._gone(implied)
        for disposition in dispositions:
            self._put(disposition)
        return ()

    def give_back(
        self,
        deliveries: list[Delivery],
        wanted: Callable[[Delivery], bool],  # noqa: ARG002 - of the protocol
    ) -> list[Delivery]:
        """Gives deliveries back: nothing waits here, but in the executor."""
        self.release(deliveries)
        return deliveries

    def forget(self, lost: Collection[Delivery]) -> None:
        """Forgets what is not this worker's any more."""
        if self._settlement_order is not None:
            self._settlement_order.forget(lost)

    def before_pull(self) -> None:
        """Opens the keys of which the store has answered all that was given back."""
        if self._settlement_order is not None:
            self._settlement_order.before_pull()

    def _put_in_turn(self, one: Delivery | Disposition) -> None:
        self._put(one if isinstance(one, Disposition) else [one])
        matches = self._matches
        if matches is not None and isinstance(one, Delivery) and not matches(one.headers):
            self._skipped.append(one)  # it is told when no lock is held

    def _tell_skipped(self) -> None:
        skipped = 0
        with suppress(IndexError):
            while self._skipped.popleft():
                skipped += 1
        if skipped:
            self._on_skipped(skipped)
