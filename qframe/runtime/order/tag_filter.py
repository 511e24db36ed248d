"""Lanes that let only those messages through that a consumer wants by their tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qframe.message import Delivery
from qframe.runtime.order.lanes import Lanes
from qframe.tags import Matches


class TagFilter(Lanes):
    """Acknowledges what its consumer does not want, many at a time, and no handler hears of it.

    On a stream that is done as deliveries come in: what is unwanted passes what waits in its lane,
    since a stream is settled in any order, and the order of those that are handled is the same.
    Elsewhere, and where a stream's group keeps order, deliveries of a subject have to be settled in
    their order, and a retry gives back all that is behind it; so what is unwanted waits for its
    turn, and is skipped when it has come.

    Args:
        matches: whether a message with these headers is wanted.
        skip: acknowledges deliveries.
        in_turn: whether what is unwanted waits for its turn.
        by_subject: as of `Lanes`.
        by_slot: as of `Lanes`.
    """

    def __init__(
        self,
        *,
        matches: Matches,
        skip: Callable[[list[Delivery]], None],
        in_turn: bool,
        by_subject: bool,
        by_slot: bool = False,
    ) -> None:
        super().__init__(by_subject=by_subject, by_slot=by_slot)
        self._matches = matches
        self._skip = skip
        self._in_turn = in_turn

    def offer(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Puts what is wanted into its lane, in order; returns those whose lane was free."""
        if self._in_turn:
            return self._filtered(super().offer(deliveries))
        wanted, unwanted = self._partitioned(deliveries)
        if unwanted:
            self._skip(unwanted)
        return super().offer(wanted)

    def free(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Frees the lanes of deliveries that are through; returns the next wanted one of each."""
        following = super().free(deliveries)
        return self._filtered(following) if self._in_turn else following

    def _filtered(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Of deliveries whose turn has come, those that are wanted, or else who comes after."""
        through, unwanted = self._partitioned(deliveries)
        while unwanted:
            self._skip(unwanted)  # before its lane is free, so that it is settled first
            wanted, unwanted = self._partitioned(super().free(unwanted))
            through += wanted
        return through

    def _partitioned(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        return partitioned(deliveries, self._matches)


def partitioned(
    deliveries: Iterable[Delivery], matches: Matches
) -> tuple[list[Delivery], list[Delivery]]:
    """Deliveries that are wanted by their headers, and those that are not."""
    wanted: list[Delivery] = []
    unwanted: list[Delivery] = []
    for delivery in deliveries:
        (wanted if matches(delivery.headers) else unwanted).append(delivery)
    return wanted, unwanted
