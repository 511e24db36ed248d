"""Pulls of which a reply is missing: what they have handed out comes late, or is revoked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from qframe.errors import StoreUnavailable
from qframe.retry import Backoff
from qframe.runtime.context import ConsumerContext
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.base import Pulling
from qframe.stores.types import LateReply, PullRequest, StandingTerms

REPLACED_S: Final = 5.0
MOST_REPLACED: Final = 32
DAMAGED_SLEEP_S: Final = 5.0


class StandingPlace(NamedTuple):
    """A slot in which a pull stands, and what it may be answered under."""

    slot: int
    epoch: str
    receipt: str


class UnansweredPulls:
    """The pulls of one consumer that may have handed out what no reply has brought.

        standing ──its late reply comes──► taken over by the pull loop
          ├──two later pulls stand there──► replaced: its reply is taken over no more
          └──its slot is another's, or nothing is pulled──► in doubt
        a reply is lost, or not taken over ──► in doubt ──► revoked

    A pull that *stands* may be answered once, with one message, and takes its room in flight until
    it is. Its receipt revokes a reply that has not come: so no slot stands a second time under a
    receipt, by which it may have been answered. While a pull is made, the reply to the one before
    may come, so two stand in a slot. The reply to one that was *replaced* may be on its way still:
    its message is revoked with the others, for some seconds.

    Nothing is asked of a slot that is *in doubt*: a stream would go on behind what was handed out.
    Nor is anything of a damaged one, for some seconds.

    Args:
        context: the consumer's.
        store: revokes.
        in_flight: hears which slots may hold what no reply has brought, and keeps room for it.
        make_receipt: makes a receipt.
        position: says how far a stream's slot was received under an epoch.
        backoff: the pauses between two tries to revoke.

    Attributes:
        in_doubt: the slots in doubt.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: Pulling,
        in_flight: InFlight,
        make_receipt: Callable[[], str],
        position: Callable[[int, str], int],
        backoff: Backoff,
    ) -> None:
        self._context = context
        self._store = store
        self._in_flight = in_flight
        self._make_receipt = make_receipt
        self._position = position
        self._backoff = backoff
        self._clock = context.clock
        self._receipt = ""
        self._stood: set[int] = set()
        self._standing: dict[int, list[StandingPlace]] = {}
        self._replaced: deque[tuple[float, StandingPlace]] = deque(maxlen=MOST_REPLACED)
        self._to_revoke: list[tuple[list[PullRequest], str]] = []
        self._again_s = 0.0
        self._tries = 0
        self._damaged: dict[int, float] = {}
        self.in_doubt: frozenset[int] = frozenset()

    def stand(self, asks: Sequence[PullRequest], address: str) -> StandingTerms:
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
            before = self._standing.get(ask.slot, ())
            self._replaced += [(self._clock.monotonic_s(), pull) for pull in before[:-1]]
            self._standing[ask.slot] = [*before[-1:], StandingPlace(ask.slot, ask.epoch, receipt)]
        self._note()
        return StandingTerms(address, receipt)

    def has_answered(self, reply: LateReply) -> bool:
        """Notes a late reply; returns whether a pull stands for it that was not revoked."""
        pull = StandingPlace(reply.slot, reply.epoch, reply.receipt)
        if pull not in self._standing.get(reply.slot, ()):
            return False
        self._end([pull])
        return True

    def doubt(self, asks: list[PullRequest], receipt: str) -> None:
        """Has what was handed out under a receipt revoked.

        Of a stream that goes by position, which also gives back what its pulls that stand brought.
        """
        self._to_revoke.append((asks, receipt))
        slots = {ask.slot for ask in asks}
        is_stream = not self._context.topic.has_subjects
        self._end([pull for pull in self._pulls() if is_stream and pull.slot in slots])

    def end_standing(self, owned: Mapping[int, str] | None = None) -> bool:
        """Has pulls that stand revoked, or those of them whose slots are owned no more.

        Returns:
            Whether there were any.
        """
        pulls = [
            pull for pull in self._pulls() if owned is None or owned.get(pull.slot) != pull.epoch
        ]
        if not pulls:
            return False
        asks: dict[str, list[PullRequest]] = {}
        for slot, epoch, receipt in pulls:
            ask = PullRequest(slot, epoch, 1, self._position(slot, epoch))
            asks.setdefault(receipt, []).append(ask)
        self._to_revoke += [(those, receipt) for receipt, those in asks.items()]
        self._end(pulls)
        return True

    def revoke(self, *, at_once: bool = False) -> bool:
        """Revokes what it can, if the pause since the last try is over; returns whether it tried.

        A slot for which that fails stays in doubt, and is tried again after a growing pause.

        Args:
            at_once: whether it waits for no pause.
        """
        if not self._to_revoke:
            return False
        if self._clock.monotonic_s() < self._again_s and not at_once:
            return False
        pulls, self._to_revoke = self._to_revoke, []
        topic, group = self._context.topic, self._context.group
        for asks, receipt in pulls:
            try:
                away = self._store.revoke(topic, group, asks, receipt).unreachable
            except StoreUnavailable as error:
                self._context.unavailable(self._context.name_of("pull"), error)
                away = [ask.slot for ask in asks]
            if still := [ask for ask in asks if ask.slot in away]:
                self._to_revoke.append((still, receipt))
        self._tries = self._tries + 1 if self._to_revoke else 0
        pause_s = self._backoff.bound_ms(self._tries) / 1000 if self._to_revoke else 0.0
        self._again_s = self._clock.monotonic_s() + pause_s
        self._note()
        return True

    def add_damaged(self, slots: Iterable[int]) -> None:
        """Leaves out damaged slots for some seconds."""
        again_s = self._clock.monotonic_s() + DAMAGED_SLEEP_S
        self._damaged |= dict.fromkeys(slots, again_s)

    @property
    def left_out(self) -> frozenset[int]:
        """The slots to leave out of the next pull."""
        if not self._damaged:
            return self.in_doubt
        now_s = self._clock.monotonic_s()
        self._damaged = {slot: at_s for slot, at_s in self._damaged.items() if at_s > now_s}
        return self.in_doubt | self._damaged.keys()

    def at_most(self, timeout_s: float) -> float:
        """How long to wait at most, before the next try to revoke or to ask a damaged slot."""
        if not (self._to_revoke or self._damaged):
            return timeout_s
        again = [*self._damaged.values(), *([self._again_s] if self._to_revoke else [])]
        return min(timeout_s, max(0.0, min(again) - self._clock.monotonic_s()))

    def forget(self) -> None:
        """Forgets all pulls: the group that they were for is gone."""
        self._to_revoke.clear()
        self._end(self._pulls())

    def _pulls(self) -> list[StandingPlace]:
        """All that stand, and all that were replaced a short time ago."""
        since_s = self._clock.monotonic_s() - REPLACED_S
        replaced = [pull for at_s, pull in self._replaced if at_s > since_s]
        return [pull for pulls in (replaced, *self._standing.values()) for pull in pulls]

    def _end(self, pulls: Collection[StandingPlace]) -> None:
        """Ends standing pulls: what they were answered with is in flight, or in doubt."""
        for pull in pulls:
            if pull in (standing := self._standing.get(pull.slot, [])):
                standing.remove(pull)
                if not standing:
                    del self._standing[pull.slot]
        if self._replaced and pulls:
            left = [each for each in self._replaced if each[1] not in pulls]
            self._replaced = deque(left, maxlen=MOST_REPLACED)
        self._note()

    def _note(self) -> None:
        self.in_doubt = frozenset([ask.slot for asks, _ in self._to_revoke for ask in asks])
        self._in_flight.expected = len(self._standing)
        self._in_flight.unanswered = self.in_doubt.union(self._standing)
