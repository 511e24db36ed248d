"""The life of an attempt: it begins, its handler is called, and it ends."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Final

from qframe.hooks import check_result
from qframe.runtime.consume.finisher import Finisher
from qframe.runtime.consume.in_hand import AttemptsInHand
from qframe.runtime.consume.mark_sender import MarkSender
from qframe.runtime.consume.starter import Starter
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.run_worker import SLOW_S, RunWorker
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.binding import Handler
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.policies.direct import Direct
from qframe.runtime.policies.marks import Marks

TURN_S: Final = 1.0


class Engine:
    """Leads attempts through their handler, one by one or as batches, in any executor.

        `Starter` ──► the handler, called by the executor ──► `Finisher`
          │ gate, order, policy                   │ acknowledged, tried again, given back
          └ waits, was done before, is not ours   └ or left to its user: `ManualFinisher`

    It waits for nobody but its policy, and may be called from any thread; about one attempt by one
    thread of its executor at a time.

    Args:
        context: the consumer's.
        handler: called with an attempt by `run`; other executors call it themselves.
        in_hand: the consumer's attempts.
        time_limit: how long a handler may run.

    Attributes:
        marks: marks effects after their handlers, if the policy does so.
        begin, begins_in_s, take_over: those of the starter.
        end, end_batch: those of the finisher.
        drop, complete, is_mine: those of `AttemptsInHand`.
    """

    def __init__(
        self,
        context: ConsumerContext,
        handler: Handler,
        in_hand: AttemptsInHand,
        time_limit: TimeLimit,
    ) -> None:
        self._handler = time_limit.measured(handler)
        self._clock = context.clock
        policy = self._policy = in_hand.policy
        self._flow = in_hand.flow
        self._in_flight, self._slots = in_hand.in_flight, in_hand.slots
        self._finisher = finisher = Finisher(context, in_hand, time_limit)
        self._starter = starter = Starter(context, in_hand, finisher)
        self.marks: MarkSender | None = None
        if isinstance(policy, Marks):
            self.marks = MarkSender(context, finisher.finish)
        self._is_direct = isinstance(policy, Direct)
        self._asks_in_runs = policy.blocks and not policy.is_joint
        self.begin = starter.begin
        self.begins_in_s = starter.begins_in_s
        self.take_over = starter.take_over
        self.end = finisher.end
        self.end_batch = finisher.end_batch
        self.drop = in_hand.drop
        self.complete = in_hand.complete
        self.is_mine = in_hand.is_mine

    @property
    def has_long_runs(self) -> bool:
        """Whether a checker is asked, whose runs take turns, or cost a call, or a hand-over."""
        return self._policy.blocks and not self._policy.settles_first

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
        max_attempts = self._starter.max_attempts
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
                if not self._starter.still_here([attempt]):
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
        if len(worker.run) > 1 and not (self._policy.settles_first and self._flow.gate):
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
        marks = self.marks
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
        worker.run.extend(self._starter.prepare(worker.asked))
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
            if (result := self._handler(attempt)) is not None:
                check_result(result)
        except BaseException as error:  # a handler's SystemExit must not end a thread
            return error
        return None
