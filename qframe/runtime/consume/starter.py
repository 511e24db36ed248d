"""How attempts begin: whether the handler of each is to be called now."""

from __future__ import annotations

from qframe.errors import WorkerLost
from qframe.message import Delivery
from qframe.runtime.consume.finisher import Finisher
from qframe.runtime.consume.in_hand import AttemptsInHand
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import Sorting


class Starter:
    """Begins attempts, as the policy, the order and the gate let them, and sees to the others.

    Args:
        context: the consumer's.
        in_hand: the consumer's attempts.
        finisher: ends those that are not to be handled.

    Attributes:
        max_attempts: a delivery with more attempts is given up.
    """

    def __init__(
        self, context: ConsumerContext, in_hand: AttemptsInHand, finisher: Finisher
    ) -> None:
        self._is_batch = context.options.batch is not None
        self.max_attempts: int = context.options.max_attempts
        self._policy, self._order, self._flow = in_hand.policy, in_hand.order, in_hand.flow
        self._in_hand, self._finisher = in_hand, finisher

    def begin(self, unit: list[Attempt]) -> list[Attempt]:
        """Returns those attempts whose handler is to be called now; the others were seen to."""
        policy = self._policy
        unit = self.still_here(unit)
        if policy.is_joint:
            return self._begin_together(unit)
        if policy.settles_first:  # what may not begin yet must not be settled: it would be lost
            return self.still_here(self._sorted_out(policy.begin(self._admitted(unit))))
        if policy.blocks:
            unit = self.still_here(self._sorted_out(policy.begin(unit)))  # that may take long
        return self._admitted(unit)

    def prepare(self, run: list[Attempt]) -> list[Attempt]:
        """Asks in one call about attempts that begin one by one; returns those that may."""
        return self._sorted_out(self._policy.prepare(self.still_here(run)))

    def still_here(self, unit: list[Attempt]) -> list[Attempt]:
        """Attempts to be handled: open, this worker's, not spent; sees to the others."""
        here = []
        held = self._order.held(unit)
        certain, present = self._in_hand.slots.certain(), self._in_hand.in_flight
        for attempt in unit:
            if not attempt.is_open:
                self._in_hand.leave(attempt, has_returned=False)
            elif not certain or attempt.delivery not in present:
                attempt.lose()
                self._policy.let_go([attempt])
                self._in_hand.free([attempt.delivery])
            elif attempt in held:
                self._in_hand.set_aside([(attempt, 0.0)])
            elif attempt.delivery.attempt > self.max_attempts:
                self._give_up(attempt)
            else:
                here.append(attempt)
        return here

    def _begin_together(self, unit: list[Attempt]) -> list[Attempt]:
        """The same, where a transaction must have the marks of those alone that are handled."""
        has_tokens = False
        while unit:
            unit = self._sorted_out(self._policy.begin(unit))
            is_mine = self._in_hand.is_mine  # asked anew: to begin may take long
            lost = [attempt for attempt in unit if not is_mine(attempt)]
            held = [attempt for attempt in self._order.held(unit) if attempt not in lost]
            waiting = [(attempt, 0.0) for attempt in held]
            if not lost and not waiting and not has_tokens:
                _, waiting = self._admission(unit)
                has_tokens = True
            if not lost and not waiting:
                return unit
            self._policy.release(unit)
            self._in_hand.set_aside(waiting)
            self._in_hand.drop(lost)
            gone = {*lost, *[attempt for attempt, _ in waiting]}
            unit = [attempt for attempt in unit if attempt not in gone]
        return []

    def _sorted_out(self, sorting: Sorting) -> list[Attempt]:
        """Sees to attempts that are not to be handled; returns the others."""
        self._finisher.see_to(sorting)
        return sorting.go

    def _give_up(self, attempt: Attempt) -> None:
        """Ends an attempt that is one too many: as a duplicate, where its effect has happened."""
        policy = self._policy
        sorting = Sorting(go=[attempt]) if policy.settles_first else policy.begin([attempt])
        sorting.failed += [(one, WorkerLost(one.id)) for one in sorting.go]
        sorting.go = []
        self._finisher.see_to(sorting)

    def _admitted(self, unit: list[Attempt]) -> list[Attempt]:
        """Attempts that may begin now; the others wait here, unclaimed, in their order."""
        if self._flow.gate is None:
            return unit
        here, waiting = self._admission(unit)
        if waiting:
            self._policy.release([attempt for attempt, _ in waiting])  # first: they may begin soon
            self._in_hand.set_aside(waiting)
        return here

    def _admission(self, unit: list[Attempt]) -> tuple[list[Attempt], list[tuple[Attempt, float]]]:
        """Attempts that may begin now, and the others, with how long each waits."""
        policy, gate = self._policy, self._flow.gate
        if gate is None:
            return unit, []
        here: list[Attempt] = []
        waiting: list[tuple[Attempt, float]] = []
        lanes: set[str | int] = set()  # of those that may not: who is behind one waits with it
        for attempt in unit:
            lane = self._order.lane_of(attempt.delivery)
            is_free = policy.settles_first and not policy.asks_for_a_token(attempt)
            wait_s = 0.0 if is_free or lane in lanes else gate(attempt.delivery)
            if not wait_s and lane not in lanes:
                here.append(attempt)
                continue
            waiting.append((attempt, wait_s))
            if lane is not None:
                lanes.add(lane)
        if self._is_batch:  # more of them may begin together then
            longest_s = max([self._flow.gather_s, *[wait_s for _, wait_s in waiting]])
            waiting = [(attempt, longest_s) for attempt, _ in waiting]
        return here, waiting

    # For a loop of the user's own.

    def begins_in_s(self, delivery: Delivery) -> float:
        """Returns 0 if a delivery may begin now, else after how long to ask again."""
        gate = self._flow.gate
        return 0.0 if gate is None else gate(delivery)

    def take_over(self, attempt: Attempt) -> bool:
        """Leaves an attempt to its user; false if it is not this worker's any more."""
        if not self.still_here([attempt]):
            return False
        self._in_hand.leave(attempt, has_returned=True)
        return not attempt.settled
