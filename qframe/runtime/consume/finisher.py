"""How attempts end with their handlers: acknowledged, tried again, or given back."""

from __future__ import annotations

from collections.abc import Callable

from qframe.errors import AlreadySettled, NotSupported
from qframe.message import Delivery
from qframe.retry import NeedRetry
from qframe.runtime.consume.in_hand import AttemptsInHand
from qframe.runtime.consume.manual_finisher import RETURN, transaction_of
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Ended
from qframe.runtime.handler.attempt import Attempt, AttemptState
from qframe.runtime.handler.failure_handler import FailureHandler
from qframe.runtime.handler.retry_policy import pause_s, retries_locally, signal_in
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.policies.base import Sorting

Later = Callable[[Attempt], None] | None


class Finisher:
    """Ends attempts as their handlers end, and goes on with what waited for that.

    Args:
        context: the consumer's.
        in_hand: the consumer's attempts.
        time_limit: how long a handler may run.
    """

    def __init__(
        self,
        context: ConsumerContext,
        in_hand: AttemptsInHand,
        time_limit: TimeLimit,
    ) -> None:
        self._options = context.options
        self._in_hand, self._acks = in_hand, in_hand.acks
        self._policy, self._flow = in_hand.policy, in_hand.flow
        self._failures = FailureHandler(context, in_hand.flow.failed)
        self._time_limit = time_limit
        self._transaction = transaction_of(in_hand.policy, context.options)

    def end(self, unit: list[Attempt], error: BaseException | None, later: Later = None) -> Ended:
        """Ends what a handler was called with; `later` gets what is to be finished."""
        self._acks.end_child(error)
        error = self._outcome(unit, error)
        try:
            if error is not None:
                return Ended([], self._end_badly(unit, error))
            return self._end_well(unit, later)
        finally:
            del error  # its traceback leads here, and would keep the attempts in a circle

    def end_batch(
        self, unit: list[Attempt], error: BaseException | None, *, is_cancelled: bool
    ) -> list[list[Attempt]]:
        """Ends a batch; returns in which parts it is tried again, at once.

        Args:
            unit: what the handler was called with.
            error: what it has raised.
            is_cancelled: whether it was cancelled, since it was late or nothing in it was ours.
        """
        if is_cancelled and not any(attempt.overdue for attempt in unit):
            self._policy.release(unit)
            return [unit]
        ended = self.end(unit, error)
        self._in_hand.go_on_after(ended.done)
        return ended.again

    def _outcome(self, unit: list[Attempt], error: BaseException | None) -> BaseException | None:
        """The error that a call ends with: the handler's, or one for how it has returned."""
        if (overdue := self._time_limit.problem_of(unit, error)) is not None:
            return overdue
        if error is not None:
            return signal_in(error)
        its = self._transaction
        if its is not None and any(not (one.auto_ack or one.settled) for one in unit):
            return NotSupported(f"auto_ack = False in {its} transaction", RETURN)
        return None

    def _end_well(self, unit: list[Attempt], later: Later) -> Ended:
        """The handler has returned."""
        if self._policy.is_joint and any(one.effect.is_mine for one in unit if one.effect):
            mine = [attempt for attempt in unit if self._in_hand.is_mine(attempt)]
            if len(mine) < len(unit):
                self._policy.refuse(unit)
                self._in_hand.drop(list(dict.fromkeys(unit).keys() - mine))
                return Ended([], [self._in_hand.renewed(mine)])
        ending: list[Attempt] = []
        others: list[Attempt] = []
        ends = Attempt.return_to_end if self._policy.blocks else Attempt.returns
        with self._acks.guard:
            for attempt in unit:
                (ending if ends(attempt) else others).append(attempt)
        for attempt in others:  # what one that is overdue has returned from may be incomplete
            self._in_hand.leave(attempt, has_returned=not attempt.overdue)
        if later is None:
            return self._finished(ending) if ending else Ended([], [])
        for attempt in ending:
            later(attempt)
        return Ended([], [])

    def finish(self, unit: list[Attempt]) -> None:
        """Finishes the effects of attempts, and goes on with what waited for that."""
        ended = self._finished(unit)
        self._in_hand.set_aside([(attempt, 0.0) for part in ended.again for attempt in part])
        self._in_hand.go_on_after(ended.done)

    def _finished(self, ending: list[Attempt]) -> Ended:
        """Finishes the effects of attempts whose handlers have returned."""
        try:
            sorting = self._policy.end(ending)
        except BaseException as error:  # it counts as the handler's own
            return Ended([], self._end_badly(self._in_hand.renewed(ending), error))
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
            self._in_hand.leave(attempt, has_returned=False)
        if (sorting := self._policy.retries(left, error)) is not None:
            self.see_to(sorting)
            return []
        if len(unit) > 1 and not isinstance(error, NeedRetry):
            if self._policy.is_joint:
                self._policy.release(left)
            self._in_hand.renewed(left)
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
            self._in_hand.free([attempt.delivery])
            return
        is_local = retries_locally(error, attempt.local_retries, self._options.local_retries)
        if is_local and attempt.cancelled and not attempt.overdue:
            self._in_hand.drop([attempt])  # it keeps its place, which a stream's retry gives up
            return
        is_local = is_local and not attempt.cancelled
        if self._policy.is_joint or not is_local:
            self._policy.release([attempt])
        if is_local:
            attempt.retry_here(auto_ack=self._in_hand.auto_ack)
            self._in_hand.set_aside([(attempt, pause_s(error, attempt.local_retries))])
            return
        try:  # another thread may settle it just now, or the store has taken it back
            self._acks.begin_ending(attempt)
        except AlreadySettled:
            self._in_hand.leave(attempt, has_returned=False)
            return
        self._acks.close(attempt)
        self._in_hand.end(self._failures.disposition_of(attempt, error))
        self._in_hand.free([attempt.delivery])

    def see_to(self, sorting: Sorting) -> None:
        """Sees to attempts that are not to be handled now."""
        if sorting.done or sorting.ended:
            for attempt in sorting.done:
                attempt.close()
            self._in_hand.go_on_after(
                [one.delivery for one in sorting.done] + self._ended(sorting.ended)
            )
        if sorting.waiting:
            self._in_hand.wait(sorting.waiting)
        for attempt, error in sorting.failed:
            self._in_hand.renewed([attempt])
            self._fail(attempt, error)
        if sorting.gone:
            self._in_hand.drop(sorting.gone)
