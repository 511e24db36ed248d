"""The attempts that a consumer has in hand, from its order until their lanes are free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from qframe.message import Acknowledger, AutoAck, Delivery
from qframe.runtime.consume.manual_acks import ManualAcks
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Executor
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.admission import AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.attempt import Attempt, AttemptState
from qframe.runtime.handler.retry_policy import Disposition
from qframe.runtime.order.base import Order
from qframe.runtime.policies.base import EffectPolicy


class AttemptsInHand:
    """Makes attempts of deliveries, and says where each goes: on, aside, to its user, or back.

    Args:
        context: the consumer's.
        policy: hears of attempts whose effects are not to happen here.
        order: of deliveries.
        flow: hears of attempts that wait.
        in_flight: what is in flight.
        slots: says whether that is this worker's.
        acks: the attempts that their users settle.

    Attributes:
        auto_ack: the consumer's option, as messages have it.
        policy, order, flow, in_flight, slots, acks: as given, for those who begin and end attempts.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        policy: EffectPolicy,
        order: Order,
        flow: AdmissionControl,
        in_flight: InFlight,
        slots: Slots,
        acks: ManualAcks,
    ) -> None:
        self.auto_ack: bool = AutoAck(context.options.auto_ack)  # type: ignore[assignment]
        self.policy: EffectPolicy = policy
        self._settles_first = policy.settles_first
        self.order: Order = order
        self.flow: AdmissionControl = flow
        self.in_flight: InFlight = in_flight
        self.slots: Slots = slots
        self.acks: ManualAcks = acks
        self.acknowledge: Callable[[list[Delivery]], None] = order.acknowledge
        self._acknowledger: Acknowledger
        self._executor: Executor

    def connect(self, acknowledger: Acknowledger, executor: Executor) -> None:
        """Takes what settles messages for their users, and calls handlers: both are made of it."""
        self._acknowledger, self._executor = acknowledger, executor

    def __iter__(self) -> Iterator[Attempt]:
        """The attempts that handlers have in hand, and those that their users settle."""
        yield from self._executor.in_hand()
        yield from self.acks

    def is_mine(self, attempt: Attempt) -> bool:
        """Whether nobody else can have an attempt yet, as far as this worker knows."""
        if attempt.cancelled and not attempt.overdue:
            return False
        if self._settles_first or not self.policy.blocks:
            return True
        return self.slots.certain() and attempt.delivery in self.in_flight

    # Attempts that go on.

    def attempts(self, deliveries: list[Delivery]) -> list[Attempt]:
        """Makes attempts of deliveries that wait for nothing but their executor, and a token."""
        automatic = self.auto_ack
        self.flow.now_ready(deliveries)
        return [Attempt(delivery, self._acknowledger, automatic) for delivery in deliveries]

    def complete(self, deliveries: list[Delivery]) -> list[Attempt]:
        """Acknowledges deliveries and frees their lanes; returns what may go on."""
        if not deliveries:
            return []
        self.acks.end_child()
        if self._settles_first:
            self._forget(deliveries)
        else:
            self.order.acknowledge(deliveries)
        return self.attempts(self.order.free(deliveries))

    def go_on_after(self, deliveries: list[Delivery]) -> None:
        """Acknowledges deliveries, and has the executor go on with what waited for them."""
        if following := self.complete(deliveries):
            self._executor.dispatch(following)

    def free(self, deliveries: list[Delivery]) -> None:
        """Lets the next ones of their lanes go on."""
        if self._settles_first and (settled := self.policy.settled.intersection(deliveries)):
            self._forget(settled)
        if following := self.order.free(deliveries):
            self._executor.dispatch(self.attempts(following))

    # Attempts that wait.

    def set_aside(self, waiting: list[tuple[Attempt, float]]) -> None:
        """Has attempts begin again after a pause, unless the consumer itself is paused."""
        for attempt, wait_s in waiting:
            self._executor.pause(attempt, wait_s)
        if waiting:
            self.flow.laid_aside()

    def wait(self, waiting: list[tuple[Attempt, float]]) -> None:
        """Has attempts wait for somebody else than their turn."""
        unit = self.renewed([attempt for attempt, _ in waiting])
        self.flow.parked([attempt.delivery for attempt in unit])
        self.set_aside(waiting)

    def renewed(self, unit: list[Attempt]) -> list[Attempt]:
        """Attempts that begin anew here."""
        for attempt in unit:
            attempt.renew(auto_ack=self.auto_ack)
        return unit

    def leave(self, attempt: Attempt, *, has_returned: bool) -> None:
        """Its handler is through with an attempt: its user settles it, or somebody has."""
        state = self.acks.leave(attempt)
        if state in (AttemptState.HELD, AttemptState.ENDING):
            return
        if state is AttemptState.OWED:
            self.wait([(attempt, self.policy.wait_s(attempt))])
            return
        if has_returned and attempt.auto_ack:  # else its user has not said that it is done
            self.policy.end_lost(attempt)
        else:
            self.policy.let_go([attempt])
        self.free([attempt.delivery])

    # Attempts that go back.

    def end(self, disposition: Disposition) -> None:
        """Tells the store how a delivery ends, and lets go what it takes back with that."""
        self._take_back(self.order.end(disposition))

    def drop(self, unit: list[Attempt]) -> None:
        """Gives back, uncounted, attempts that are not to be handled."""
        released = []
        with self.acks.guard:
            for attempt in unit:
                attempt.cancel()
                if not attempt.settled:
                    attempt.lose()
                    if not self._settles_first and attempt.delivery in self.in_flight:
                        released.append(attempt.delivery)
        self._take_back(self.order.release(released))
        for attempt in unit:
            self.leave(attempt, has_returned=False)

    def _take_back(self, deliveries: Collection[Delivery]) -> None:
        """The store has taken these back, with one before them; they come again in their order."""
        if not deliveries:
            return
        gone = set(deliveries)
        for attempt in self:
            if attempt.delivery in gone:
                attempt.lose()
        waiting = self._executor.withdraw(gone.__contains__)
        self.policy.let_go(waiting)
        self.free([attempt.delivery for attempt in waiting])
        self.free(list(filter(self.acks.let_go, gone)))

    def _forget(self, deliveries: Collection[Delivery]) -> None:
        """Handlers of what was settled first have ended: its slots may be given to others now."""
        self.in_flight.remove(deliveries)  # first: in flight and unsettled, its lease were lost
        self.policy.has_handled(deliveries)
        self.slots.drain()
