"""How attempts end: acknowledged, tried again, given back, or left to their users."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, cast

from qframe.errors import AlreadySettled, NotSupported
from qframe.message import Delivery, Message
from qframe.options.consumer import ConsumerOptions
from qframe.retry import NeedRetry
from qframe.runtime.consume.manual_acks import ManualAcks
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Ended, Executor
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.admission import AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.attempt import Attempt, AttemptState
from qframe.runtime.handler.failure_handler import FailureHandler
from qframe.runtime.handler.retry_policy import pause_s, retries_locally, signal_in
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.base import Order
from qframe.runtime.policies.base import EffectPolicy, Sorting
from qframe.runtime.policies.settle_first import SettleFirst

Later = Callable[[Attempt], None] | None

RETURN: Final = "return from the handler to commit, or raise"


class Finisher:
    """Ends attempts, as their handlers end or their users say, and goes on with what waited for it.

    Args:
        context, options: the consumer's.
        policy: hears that a handler has ended.
        order: of deliveries.
        flow: hears how handlers have ended, and of attempts that wait.
        in_flight, slots: what is in flight, and whether that is this worker's.
        time_limit: how long a handler may run.
        call_later: has the settler's thread call something; the garbage collector may ask for it.
        extend: renews a lease.

    Attributes:
        acks: the attempts that their users settle.
        executor: calls handlers; set when it is made, of an engine, which is made of this.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        options: ConsumerOptions,
        policy: EffectPolicy,
        order: Order,
        flow: AdmissionControl,
        in_flight: InFlight,
        slots: Slots,
        time_limit: TimeLimit,
        call_later: Callable[[Callable[[], object]], None],
        extend: Callable[[Delivery, float], None],
    ) -> None:
        self._context = context
        self.topic, self.group = context.topic.name, context.group
        self._options, self._policy = options, policy
        self._first = policy if isinstance(policy, SettleFirst) else None
        self._order, self._flow, self._time_limit = order, flow, time_limit
        self._in_flight, self._slots, self._extend = in_flight, slots, extend
        self._failures = FailureHandler(context, options=options, on_failed=flow.failed)
        self.executor: Executor
        self.acks: ManualAcks = ManualAcks(lambda one: call_later(partial(self.leaked, one)))
        self._joins_batches = policy.is_joint and options.batch is not None
        self._whose = "a batch's" if self._joins_batches else "an AsyncSession's"

    def attempts(self, deliveries: list[Delivery]) -> list[Attempt]:
        """Makes attempts of deliveries that wait for nothing but their executor, and a token."""
        automatic = self._options.auto_ack
        self._flow.now_ready(deliveries)
        return [Attempt(delivery, self, automatic) for delivery in deliveries]

    def is_mine(self, attempt: Attempt) -> bool:
        """Whether nobody else can have an attempt yet, as far as this worker knows."""
        if attempt.cancelled and not attempt.overdue:
            return False
        if self._first is not None or not self._policy.blocks:
            return True
        return self._slots.certain() and attempt.delivery in self._in_flight

    def complete(self, deliveries: list[Delivery]) -> list[Attempt]:
        """Acknowledges deliveries and frees their lanes; returns what may go on."""
        if not deliveries:
            return []
        self.acks.end_child()
        if self._first is not None:
            self._forget(self._first, deliveries)
        else:
            self._order.acknowledge(deliveries)
        return self.attempts(self._order.free(deliveries))

    def end(self, unit: list[Attempt], error: BaseException | None, later: Later = None) -> Ended:
        """Ends what a handler was called with; `later` gets what is to be finished."""
        self.acks.end_child(error)
        error = self._outcome(unit, error)
        try:
            if error is not None:
                return Ended([], self._end_badly(unit, error))
            return self._end_well(unit, later)
        finally:
            del error  # its traceback leads here, and would keep the attempts in a circle

    def _outcome(self, unit: list[Attempt], error: BaseException | None) -> BaseException | None:
        """The error that a call ends with: the handler's, or one for how it has returned."""
        if (overdue := self._time_limit.problem_of(unit, error)) is not None:
            return overdue
        ends_here = self._joins_batches or self._policy.in_loop
        if error is None and ends_here and any(not (one.auto_ack or one.settled) for one in unit):
            return NotSupported(f"auto_ack = False in {self._whose} transaction", RETURN)
        return None if error is None else signal_in(error)

    def _end_well(self, unit: list[Attempt], later: Later) -> Ended:
        """The handler has returned."""
        if self._policy.is_joint and any(one.effect.is_mine for one in unit if one.effect):
            mine = [attempt for attempt in unit if self.is_mine(attempt)]
            if len(mine) < len(unit):
                self._policy.refuse(unit)
                self.drop(list(dict.fromkeys(unit).keys() - mine))
                return Ended([], [self._renewed(mine)])
        ending: list[Attempt] = []
        others: list[Attempt] = []
        ends = Attempt.return_to_end if self._policy.blocks else Attempt.returns
        with self.acks.guard:
            for attempt in unit:
                (ending if ends(attempt) else others).append(attempt)
        for attempt in others:
            self.leave(attempt, has_returned=True)
        if later is None:
            return self._finished(ending) if ending else Ended([], [])
        for attempt in ending:
            later(attempt)
        return Ended([], [])

    def finish(self, unit: list[Attempt]) -> None:
        """Finishes the effects of attempts, and goes on with what waited for that."""
        ended = self._finished(unit)
        self.set_aside([(attempt, 0.0) for part in ended.again for attempt in part])
        self.go_on_after(ended.done)

    def _finished(self, ending: list[Attempt]) -> Ended:
        """Finishes the effects of attempts whose handlers have returned."""
        try:
            sorting = self._policy.end(ending)
        except BaseException as error:  # it counts as the handler's own
            return Ended([], self._end_badly(self._renewed(ending), error))
        done, sorting.ended = self._ended(sorting.ended), []
        self.see_to(sorting)
        return Ended(done, [])

    def _ended(self, unit: list[Attempt]) -> list[Delivery]:
        """Closes attempts whose effect has happened, and tells the breaker."""
        for attempt in unit:
            attempt.close()
            if attempt.overdue:  # of one that was settled first
                self._flow.failed(attempt.delivery, self._time_limit.error_of(attempt))
        self._flow.succeeded([one.delivery for one in unit if not one.overdue])
        return [attempt.delivery for attempt in unit]

    def _end_badly(self, unit: list[Attempt], error: BaseException) -> list[list[Attempt]]:
        """The handler has raised: returns in which parts what is open is tried again.

        An error is an attempt's own only where its handler was called with it alone: of several,
        the one at fault may be settled, or taken back by the store.
        """
        left = [attempt for attempt in unit if attempt.is_open]
        if not left:
            self._failures.emit("delivery.failed", unit[0], error, settled=True)
        for attempt in [one for one in unit if not one.is_open]:
            self.leave(attempt, has_returned=False)
        if (sorting := self._policy.retries(left, error)) is not None:
            self.see_to(sorting)
            return []
        if len(unit) > 1 and not isinstance(error, NeedRetry):
            if self._policy.is_joint:
                self._policy.release(left)
            self._renewed(left)
            if self._flow.gate is not None:  # halves that had to wait would be mixed with others
                for attempt in left:
                    attempt.suspect()
                return [left]
            middle = len(left) // 2
            return [left[:middle], left[middle:]]
        for attempt in left:
            self._fail(attempt, error)
        return []

    def _fail(self, attempt: Attempt, error: BaseException) -> None:
        """Ends an attempt by its own error, unless it is tried again in this worker."""
        if attempt.state is AttemptState.SETTLED_FIRST:  # its error is told: it is not tried again
            attempt.close()
            self._flow.failed(attempt.delivery, error)
            self._failures.report_settled(attempt, error)
            self.free(attempt.delivery)
            return
        is_local = retries_locally(error, attempt.local_retries, self._options.local_retries)
        if is_local and attempt.cancelled and not attempt.overdue:
            self.drop([attempt])  # it comes again in its place, which a stream's retry gives up
            return
        is_local = is_local and not attempt.cancelled
        if self._policy.is_joint or not is_local:
            self._policy.release([attempt])
        if is_local:
            attempt.retry_here(auto_ack=self._options.auto_ack)
            self.set_aside([(attempt, pause_s(error, attempt.local_retries))])
            return
        try:  # another thread may settle it just now, or the store has taken it back
            self.acks.begin_ending(attempt)
        except AlreadySettled:
            self.leave(attempt, has_returned=False)
            return
        self.acks.close(attempt)
        self._take_back(self._order.end(self._failures.disposition_of(attempt, error)))
        self.free(attempt.delivery)

    def leave(self, attempt: Attempt, *, has_returned: bool) -> None:
        """Its handler is through with an attempt: its user settles it, or somebody has."""
        state = self.acks.leave(attempt)
        if state in (AttemptState.HELD, AttemptState.ENDING):
            return
        if state is AttemptState.OWED:
            self._wait([(attempt, self._policy.wait_s(attempt))])
            return
        if has_returned and attempt.auto_ack:  # else its user has not said that it is done
            self._policy.end_lost(attempt)
        else:
            self._policy.let_go([attempt])
        self.free(attempt.delivery)

    def drop(self, unit: list[Attempt]) -> None:
        """Gives back, uncounted, attempts that are not to be handled."""
        released = []
        with self.acks.guard:
            for attempt in unit:
                attempt.cancel()
                if not attempt.settled:
                    attempt.lose()
                    if self._first is None and attempt.delivery in self._in_flight:
                        released.append(attempt.delivery)
        self._take_back(self._order.release(released))
        for attempt in unit:
            self.leave(attempt, has_returned=False)

    def see_to(self, sorting: Sorting) -> None:
        """Sees to attempts that are not to be handled now."""
        if sorting.done or sorting.ended:
            for attempt in sorting.done:
                attempt.close()
            self.go_on_after([one.delivery for one in sorting.done] + self._ended(sorting.ended))
        if sorting.waiting:
            self._wait(sorting.waiting)
        for attempt, error in sorting.failed:
            self._renewed([attempt])
            self._fail(attempt, error)
        if sorting.gone:
            self.drop(sorting.gone)

    def go_on_after(self, deliveries: list[Delivery]) -> None:
        """Acknowledges deliveries, and has the executor go on with what waited for them."""
        if following := self.complete(deliveries):
            self.executor.dispatch(following)

    def _renewed(self, unit: list[Attempt]) -> list[Attempt]:
        for attempt in unit:
            attempt.renew(auto_ack=self._options.auto_ack)
        return unit

    def _wait(self, waiting: list[tuple[Attempt, float]]) -> None:
        """Has attempts wait for somebody else than their turn."""
        unit = self._renewed([attempt for attempt, _ in waiting])
        self._flow.parked([attempt.delivery for attempt in unit])
        self.set_aside(waiting)

    def set_aside(self, waiting: list[tuple[Attempt, float]]) -> None:
        """Has attempts begin again after a pause, unless the consumer itself is paused."""
        for attempt, wait_s in waiting:
            self.executor.pause(attempt, wait_s)
        if waiting:
            self._flow.laid_aside()

    def free(self, delivery: Delivery) -> None:
        """Lets the next one of its lane go on."""
        if self._first is not None and delivery in self._first.settled:
            self._forget(self._first, [delivery])
        if following := self._order.free([delivery]):
            self.executor.dispatch(self.attempts(following))

    def in_hand(self) -> list[Attempt]:
        """The attempts that handlers have in hand, and those that their users settle."""
        return [*self.executor.in_hand(), *self.acks]

    def _take_back(self, deliveries: Collection[Delivery]) -> None:
        """The store has taken these back, with one before them; they come again in their order."""
        if not deliveries:
            return
        gone = set(deliveries)
        for attempt in self.in_hand():
            if attempt.delivery in gone:
                attempt.lose()
        waiting = self.executor.withdraw(gone.__contains__)
        self._policy.let_go(waiting)
        for attempt in waiting:
            self.free(attempt.delivery)
        for delivery in filter(self.acks.let_go, gone):
            self.free(delivery)

    def _forget(self, first: SettleFirst, deliveries: list[Delivery]) -> None:
        """Handlers of what was settled first have ended: its slots may be given to others now."""
        self._in_flight.remove(deliveries)  # first: in flight and unsettled, its lease were lost
        first.settled.difference_update(deliveries)
        self._slots.drain()

    # For users, from any thread.

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Ends an attempt's effect, in the caller's thread, and settles it.

        Raises:
            AlreadySettled: if it is settled already.
            NotSupported: if its transaction ends with its handler.
            Exception: what the commit raised; it counts as the handler's own error.
        """
        attempt = cast("Attempt", message)
        error = None if error is None else signal_in(error)
        if self._joins_batches or self._policy.in_loop:
            raise NotSupported(f"message.ack() in {self._whose} transaction", RETURN)
        self.acks.begin_ending(attempt)
        if not self._policy.blocks:
            self._settle(attempt, elapsed_s, error)
            return
        sorting, problem = Sorting(), None
        try:
            if error is not None:
                self._policy.release([attempt])
            elif self._policy.is_joint and not self.is_mine(attempt):
                self._policy.refuse([attempt])
                sorting.gone.append(attempt)
            else:
                sorting = self._policy.end([attempt])
        except BaseException as raised:
            problem = raised
        problem = problem or next((each for _, each in sorting.failed), None)
        if sorting.waiting:  # while its handler still runs, its return sees to it
            if self.acks.owe(attempt):
                self._wait(sorting.waiting)
        elif sorting.gone:
            if self.acks.lose(attempt):
                self.free(attempt.delivery)
        elif problem is not None:
            self._policy.release([attempt])
            self._settle(attempt, elapsed_s, problem)
            raise problem
        else:
            self._settle(attempt, elapsed_s, error)

    def acknowledge_many(self, messages: list[Message]) -> list[Message]:
        """Acknowledges what is not settled yet, in one step; returns those it can only singly."""
        if self._policy.blocks:
            return messages
        ended, returned = self.acks.end_all(cast("list[Attempt]", messages))
        self._flow.succeeded(ended)
        self._order.acknowledge(ended)
        if following := self._order.free(returned):
            self.executor.dispatch(self.attempts(following))
        return []

    def _settle(
        self, attempt: Attempt, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        if elapsed_s is not None:
            self._context.emit("delivery.acknowledged", elapsed_s=elapsed_s)
        has_returned = self.acks.close(attempt)
        if error is not None:
            self._take_back(self._order.end(self._failures.disposition_of(attempt, error)))
        else:
            self._flow.succeeded([attempt.delivery])
            self._order.acknowledge([attempt.delivery])
        if has_returned:  # else its handler's return frees the lane
            self.free(attempt.delivery)

    def extend(self, message: Message, seconds: float) -> None:
        """Renews one message's lease, now, to end in `seconds` or later."""
        self._extend(cast("Attempt", message).delivery, seconds)

    def leaked(self, delivery: Delivery) -> None:
        """Hands back an attempt that its user let go unsettled: at once, and it counts."""
        self._policy.forget(self.acks.effect_of(delivery))
        if self.acks.let_go(delivery):
            self._take_back(self._order.end(self._failures.disposition_of_leaked(delivery)))
            self.free(delivery)
