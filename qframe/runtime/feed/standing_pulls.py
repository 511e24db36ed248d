"""Pulls of an idle worker that stand in the store, so that publishing hands messages out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from qframe.clock import Clock
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.types import LateReply, PullRequest, StandingTerms

REPLACED_S: Final = 5.0
MOST_REPLACED: Final = 32


class StandingPlace(NamedTuple):
    """A slot in which a pull stands, and what it may be answered under."""

    slot: int
    epoch: str
    receipt: str


class StandingPulls:
    """Where pulls of one consumer may stand.

    Each may be answered once, with one message, and takes its room in flight until it is. Its
    receipt revokes a reply that has not come: so no slot stands a second time under a receipt, by
    which it may have been answered. Of a slot it takes over replies to the last two: while a pull
    is made, the reply to the one before may come. A reply to those before may be on its way
    still: its message is revoked with them, for some seconds.

    Args:
        in_flight: keeps room for the replies.
        make_receipt: makes a receipt.
        clock: says which were replaced long ago.

    Attributes:
        slots: where one may stand; to read from any thread.
    """

    def __init__(
        self, *, in_flight: InFlight, make_receipt: Callable[[], str], clock: Clock
    ) -> None:
        self._in_flight = in_flight
        self._make_receipt = make_receipt
        self._clock = clock
        self._receipt = ""
        self._stood: set[int] = set()
        self._places: dict[int, list[StandingPlace]] = {}
        self._replaced: deque[tuple[float, StandingPlace]] = deque(maxlen=MOST_REPLACED)
        self.slots: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._places)

    def begin(self, asks: Sequence[PullRequest], address: str) -> StandingTerms:
        """How a pull that is about to be asked stands, also if its own reply is lost.

        Args:
            asks: the pull's.
            address: where replies are sent.
        """
        if not self._receipt or any(ask.slot in self._stood for ask in asks):
            self._receipt = self._make_receipt()
            self._stood.clear()
        receipt = self._receipt
        for ask in asks:
            self._stood.add(ask.slot)
            before = self._places.get(ask.slot, ())
            self._replaced += [(self._clock.monotonic_s(), place) for place in before[:-1]]
            self._places[ask.slot] = [*before[-1:], StandingPlace(ask.slot, ask.epoch, receipt)]
        self._note()
        return StandingTerms(address, receipt)

    def place_of(self, reply: LateReply) -> StandingPlace | None:
        """Where the pull stands that this is the reply to; None if it was revoked, or is old."""
        place = StandingPlace(reply.slot, reply.epoch, reply.receipt)
        return place if place in self._places.get(reply.slot, ()) else None

    def places(self, owned: Mapping[int, str] | None = None) -> list[StandingPlace]:
        """All places, or those whose slots are not owned so; what replaced ones brought as well."""
        since_s = self._clock.monotonic_s() - REPLACED_S
        replaced = [place for at_s, place in self._replaced if at_s > since_s]
        return [
            place
            for places in (replaced, *self._places.values())
            for place in places
            if owned is None or owned.get(place.slot) != place.epoch
        ]

    def end(self, places: Collection[StandingPlace]) -> None:
        """No pull stands there: what it was answered with is in flight, or in doubt."""
        for place in places:
            if place in (standing := self._places.get(place.slot, [])):
                standing.remove(place)
                if not standing:
                    del self._places[place.slot]
        if self._replaced and places:
            left = [each for each in self._replaced if each[1] not in places]
            self._replaced = deque(left, maxlen=MOST_REPLACED)
        self._note()

    def forget(self) -> None:
        """The group that they were for is gone."""
        self.end(self.places())

    def _note(self) -> None:
        self.slots = frozenset(self._places)
        self._in_flight.expected = len(self._places)
