"""The life of an attempt: it begins, its handler is called, and it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final, cast

from qframe.clock import Clock
from qframe.errors import WorkerLost
from qframe.hooks import check_result
from qframe.message import Delivery
from qframe.options.consumer import ConsumerOptions
from qframe.runtime.consume.finisher import Finisher
from qframe.runtime.consume.mark_sender import MarkSender
from qframe.runtime.executors.base import Ended
from qframe.runtime.executors.run_worker import SLOW_S, RunWorker
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.admission import AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.binding import BatchHandler, Handler
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.base import Order
from qframe.runtime.policies.base import EffectPolicy, Sorting
from qframe.runtime.policies.direct import Direct
from qframe.runtime.policies.settle_first import SettleFirst

TURN_S: Final = 1.0


class Engine:
    """Leads attempts through their handler, one by one or as batches, in any executor.

        begin ──► the handler, called by the executor ──► end
          │ gate, order, policy                            │ acknowledged, tried again, given back
          └ waits, was done before, or is not ours         └ or left to its user: `ManualAcks`

    It waits for nobody but its policy, and may be called from any thread; about one attempt by one
    thread of its executor at a time.

    Args:
        handler: called with an attempt by `run`; other executors call it themselves.
        options: the consumer's.
        policy: stands around each call.
        order: of deliveries.
        flow: says whether an attempt may begin.
        in_flight: what is in flight.
        slots: says whether that is this worker's.
        time_limit: how long a handler may run.
        finisher: ends attempts, and has those wait that may not begin.
        marks: marks effects after their handlers, if the policy does so.
        clock: measures waits.

    Attributes:
        end, drop, complete, is_mine: those of the finisher.
    """

    def __init__(
        self,
        *,
        handler: Handler | BatchHandler,
        options: ConsumerOptions,
        policy: EffectPolicy,
        order: Order,
        flow: AdmissionControl,
        in_flight: InFlight,
        slots: Slots,
        time_limit: TimeLimit,
        finisher: Finisher,
        marks: MarkSender | None,
        clock: Clock,
    ) -> None:
        self._handler = cast("Handler", handler)
        self._options = options
        self._policy = policy
        self._order = order
        self._flow = flow
        self._in_flight = in_flight
        self._slots = slots
        self._time_limit = time_limit
        self._finisher = finisher
        self._marks = marks
        self._clock = clock
        self._is_direct = isinstance(policy, Direct)
        self._first = policy if isinstance(policy, SettleFirst) else None
        self._max_attempts = options.max_attempts
        self._asks_in_runs = policy.blocks and not policy.is_joint
        self.end: Callable[[list[Attempt], BaseException | None], Ended] = finisher.end
        self.drop: Callable[[list[Attempt]], None] = finisher.drop
        self.complete: Callable[[list[Delivery]], list[Attempt]] = finisher.complete
        self.is_mine: Callable[[Attempt], bool] = finisher.is_mine

    @property
    def has_long_runs(self) -> bool:
        """Whether a checker is asked, whose runs take turns, or cost a call, or a hand-over."""
        return self._policy.blocks and self._first is None

    # In threads, one by one.

    def run(self, worker: RunWorker) -> None:
        """Calls the handler for each attempt of a run."""
        if self._is_direct and self._flow.gate is None:
            self._run_direct(worker)
        elif (turns := self._policy.turns) is None:
            self._run(worker)
        else:
            started_s = self._clock.monotonic_s()
            has_turn = turns.acquire(timeout=TURN_S)
            worker.waited_s += self._clock.monotonic_s() - started_s
            try:
                self._run(worker)
            finally:
                if has_turn:
                    turns.release()

    def _run_direct(self, worker: RunWorker) -> None:
        """Calls the handler, and asks nobody. The hot path: see what each line costs."""
        take = worker.run.popleft
        done = worker.done.append
        handler = self._handler
        now_s = self._clock.monotonic_s
        present = self._in_flight.deliveries
        max_attempts = self._max_attempts
        until_s = self._slots.certain_until_s
        began_s = inf  # no call has ended yet
        while True:
            before_s, began_s = began_s, now_s()
            if began_s - before_s > SLOW_S:
                worker.slow.append(began_s - before_s)
            try:
                attempt = take()
            except IndexError:
                worker.attempt = None
                return
            worker.attempt = attempt
            delivery = attempt.delivery
            if began_s >= until_s or delivery not in present or delivery.attempt > max_attempts:
                until_s = self._slots.certain_until_s
                if not self._still_here([attempt]):
                    worker.handled += 1
                    worker.passed += 1
                    began_s = inf
                    continue
            try:
                if (result := handler(attempt)) is not None:
                    check_result(result)
            except BaseException as error:  # a handler's SystemExit must not end a thread
                self.end([attempt], error)
            else:
                if attempt.returns():
                    done(delivery)
                else:
                    self.end([attempt], None)
                    worker.attempt = attempt = None  # type: ignore[assignment] # let it go
            worker.handled += 1

    def _run(self, worker: RunWorker) -> None:
        if len(worker.run) > 1 and not (self._first and self._flow.gate):
            self._prepare(worker)
        while True:
            try:
                attempt = worker.run.popleft()
            except IndexError:
                worker.attempt = None
                return
            worker.attempt = attempt
            started_s, waited_s = self._clock.monotonic_s(), worker.waited_s
            is_begun = bool(self.begin([attempt]))
            self._has_waited(worker, started_s)
            if is_begun:
                error = self._call(attempt)
                returned_s = self._clock.monotonic_s()
                self._end(worker, attempt, error)
                self._has_waited(worker, returned_s)
            worker.attempt = attempt = error = None  # type: ignore[assignment] # let it go
            worker.handled += 1
            took_s = self._clock.monotonic_s() - started_s - (worker.waited_s - waited_s)
            if not is_begun:
                worker.passed += 1
            elif took_s > SLOW_S:
                worker.slow.append(took_s)

    def _end(self, worker: RunWorker, attempt: Attempt, error: BaseException | None) -> None:
        """Ends an attempt; its mark is not waited for while there is something else to do.

        A breaker, which counts failures in a row, is told of each end before the next handler.
        """
        marks = self._marks
        if marks is None or error is not None or self._flow.gate is not None:
            worker.done.extend(self.end([attempt], error).done)
        elif not worker.run and marks.begins_call():
            try:
                worker.done.extend(self.end([attempt], None).done)
            finally:
                marks.ends_call()
        else:
            self._finisher.end([attempt], None, marks.put)

    def _prepare(self, worker: RunWorker) -> None:
        """Asks about a run in one call; it is taken off, so that nobody else begins with it."""
        with suppress(IndexError):
            while True:
                worker.asked.append(worker.run.popleft())
        started_s = self._clock.monotonic_s()
        worker.run.extend(self._sorted_out(self._policy.prepare(self._still_here(worker.asked))))
        worker.asked = []
        self._has_waited(worker, started_s)

    def _has_waited(self, worker: RunWorker, since_s: float) -> None:
        """Counts no time of a policy's server as the handler's.

        Else a slow server would make runs short, and there would be a call for each attempt.
        """
        if self._asks_in_runs:
            worker.waited_s += self._clock.monotonic_s() - since_s

    def _call(self, attempt: Attempt) -> BaseException | None:
        """Calls the handler; returns what it has raised."""
        try:
            with self._time_limit.running(attempt):
                if (result := self._handler(attempt)) is not None:
                    check_result(result)
        except BaseException as error:  # a handler's SystemExit must not end a thread
            return error
        return None

    # Beginning.

    def begin(self, unit: list[Attempt]) -> list[Attempt]:
        """Returns those attempts whose handler is to be called now; the others were seen to."""
        policy = self._policy
        unit = self._still_here(unit)
        if policy.is_joint:
            return self._begin_together(unit)
        if self._first is not None:  # what may not begin yet must not be settled: it would be lost
            return self._still_here(self._sorted_out(policy.begin(self._admitted(unit))))
        if policy.blocks:
            unit = self._still_here(self._sorted_out(policy.begin(unit)))  # that may take long
        return self._admitted(unit)

    def _begin_together(self, unit: list[Attempt]) -> list[Attempt]:
        """The same, where a transaction must have the marks of those alone that are handled."""
        has_tokens = False
        while unit:
            unit = self._sorted_out(self._policy.begin(unit))
            lost = [attempt for attempt in unit if not self.is_mine(attempt)]  # it may take long
            held = [attempt for attempt in self._order.held(unit) if attempt not in lost]
            waiting = [(attempt, 0.0) for attempt in held]
            if not lost and not waiting and not has_tokens:
                _, waiting = self._admission(unit)
                has_tokens = True
            if not lost and not waiting:
                return unit
            self._policy.release(unit)
            self._finisher.set_aside(waiting)
            self.drop(lost)
            gone = {*lost, *[attempt for attempt, _ in waiting]}
            unit = [attempt for attempt in unit if attempt not in gone]
        return []

    def _sorted_out(self, sorting: Sorting) -> list[Attempt]:
        """Sees to attempts that are not to be handled; returns the others."""
        self._finisher.see_to(sorting)
        return sorting.go

    def _still_here(self, unit: list[Attempt]) -> list[Attempt]:
        """Attempts to be handled: open, this worker's, not spent; sees to the others."""
        here = []
        held = self._order.held(unit)
        certain = self._slots.certain()
        for attempt in unit:
            if not attempt.is_open:
                self._finisher.leave(attempt, has_returned=False)
            elif not certain or attempt.delivery not in self._in_flight:
                attempt.lose()
                self._policy.let_go([attempt])
                self._finisher.free(attempt.delivery)
            elif attempt in held:
                self._finisher.set_aside([(attempt, 0.0)])
            elif attempt.delivery.attempt > self._max_attempts:
                self._give_up(attempt)
            else:
                here.append(attempt)
        return here

    def _give_up(self, attempt: Attempt) -> None:
        """Ends an attempt that is one too many: as a duplicate, where its effect has happened."""
        is_settled_first = self._first is not None
        sorting = Sorting(go=[attempt]) if is_settled_first else self._policy.begin([attempt])
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
            self._finisher.set_aside(waiting)
        return here

    def _admission(self, unit: list[Attempt]) -> tuple[list[Attempt], list[tuple[Attempt, float]]]:
        """Attempts that may begin now, and the others, with how long each waits."""
        gate = self._flow.gate
        if gate is None:
            return unit, []
        here: list[Attempt] = []
        waiting: list[tuple[Attempt, float]] = []
        lanes: set[str | int] = set()  # of those that may not: who is behind one waits with it
        for attempt in unit:
            lane = self._order.lane_of(attempt.delivery)
            is_free = self._first is not None and not self._first.asks_for_a_token(attempt)
            wait_s = 0.0 if is_free or lane in lanes else gate(attempt.delivery)
            if not wait_s and lane not in lanes:
                here.append(attempt)
                continue
            waiting.append((attempt, wait_s))
            if lane is not None:
                lanes.add(lane)
        if self._options.batch is not None:  # more of them may begin together then
            longest_s = max([self._flow.gather_s, *[wait_s for _, wait_s in waiting]])
            waiting = [(attempt, longest_s) for attempt, _ in waiting]
        return here, waiting

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
        self._finisher.go_on_after(ended.done)
        return ended.again

    # For a loop of the user's own.

    def begins_in_s(self, delivery: Delivery) -> float:
        """Returns 0 if a delivery may begin now, else after how long to ask again."""
        gate = self._flow.gate
        return 0.0 if gate is None else gate(delivery)

    def take_over(self, attempt: Attempt) -> bool:
        """Leaves an attempt to its user; false if it is not this worker's any more."""
        if not self._still_here([attempt]):
            return False
        self._finisher.leave(attempt, has_returned=True)
        return not attempt.settled
