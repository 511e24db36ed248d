"""Calls handlers in the thread of the test, one at a time, when it is told to."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.consume.executor_parts import ExecutorParts
from qframe.runtime.executors.base import Executor
from qframe.runtime.executors.batch_executor import BatchCaller, PlainHandler
from qframe.runtime.executors.batch_worker import BatchWorker
from qframe.runtime.executors.run_worker import RunWorker
from qframe.runtime.handler.attempt import Attempt
from qframe.testing.crashes import WorkerLife

MAX_PAUSES: Final = 16


class SteppedExecutor(Executor, Protocol):
    """An executor without threads."""

    def stacks(self) -> list[HandlerStack]:
        """Has no threads."""
        return []

    def stop(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - has no threads
        """Has no threads."""
        return True

    def resume(self) -> None:
        """Time has passed: attempts that lie aside are tried again."""

    def work_off_one(self) -> bool:
        """Calls the handler once, if there is a reason not to wait; returns whether it was."""

    def hand_out(self) -> bool:
        """Calls the handler with what was gathered; returns whether there was anything."""


class InlineExecutor(SteppedExecutor):
    """Holds what an engine lets go on, and calls its handler with one attempt at a time.

    A pause of an attempt costs no time. One that pauses again and again (its effect is claimed by
    another worker, its checker away) lies aside after that until the clock has moved.

    Args:
        place: what an executor is made of.
        life: the worker's, which hears of what comes.
    """

    def __init__(self, place: ExecutorParts, life: WorkerLife) -> None:
        self._work = place.work
        self._life = life
        self._worker = RunWorker()
        self._inbox: deque[Attempt] = deque()
        self._aside: list[Attempt] = []
        self._patience: Counter[Delivery] = Counter()
        self._held = threading.RLock()

    @property
    def busy(self) -> bool:
        """Whether something lies here, or is being handled."""
        return bool(self._inbox or self._aside) or self._worker.attempt is not None

    def in_hand(self) -> list[Attempt]:
        """The attempt that is being handled."""
        return [*self._worker.asked, *self._worker.being_handled]

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Holds attempts, from any thread."""
        with self._held:
            self._inbox.extend(attempts)
        self._life.wake()

    def pause(self, attempt: Attempt, seconds: float) -> None:  # noqa: ARG002 - costs no time
        """Holds an attempt again, or lays it aside."""
        with self._held:
            self._patience[attempt.delivery] += 1
            is_patient = self._patience[attempt.delivery] <= MAX_PAUSES
            (self._inbox if is_patient else self._aside).append(attempt)
        self._life.wake()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that no handler has in hand, in order."""
        with self._held:
            lying = [*self._inbox, *self._aside]
            self._inbox = deque(each for each in self._inbox if not wanted(each.delivery))
            self._aside = [each for each in self._aside if not wanted(each.delivery)]
        return [attempt for attempt in lying if wanted(attempt.delivery)]

    def resume(self) -> None:
        """Time has passed: attempts that lie aside are tried again."""
        with self._held:
            self._patience.clear()
            self._inbox.extend(self._aside)
            self._aside.clear()

    def work_off_one(self) -> bool:
        """Handles the next attempt; false if there is none."""
        worker = self._worker
        with self._held:
            if not self._inbox:
                return False
            worker.run.append(self._inbox.popleft())
        try:
            self._work.run(worker)
            done, worker.done = worker.done, deque()
            self.dispatch(self._work.complete(list(done)))
        finally:
            worker.attempt = None
        return True

    def hand_out(self) -> bool:
        """Keeps nothing back."""
        return False


class InlineBatchExecutor(SteppedExecutor):
    """Gathers what an engine lets go on, and calls its handler with a batch at a time.

    A batch waits for no time: it is handed out when it is full, or nothing more is due now. Pauses
    are as of `InlineExecutor`.

    Args:
        place: what an executor is made of.
        handler: called with a batch.
        clock: for batches.
        life: the worker's, which hears of what comes.
    """

    def __init__(
        self, place: ExecutorParts, handler: PlainHandler, *, clock: Clock, life: WorkerLife
    ) -> None:
        if place.batches is None:
            raise TypeError("a consumer without batch=")
        self._batches = place.batches
        self._life = life
        self._worker = BatchWorker()
        self._caller = BatchCaller(
            handler, None, time_limit=place.time_limit, clock=clock, work=place.work
        )
        self._patience: Counter[Delivery] = Counter()

    @property
    def busy(self) -> bool:
        """Whether something was gathered, or is being handled."""
        return len(self._batches) > 0 or bool(self._worker.attempts)

    def in_hand(self) -> list[Attempt]:
        """The attempts that are being handled, or will be for sure."""
        return self._worker.attempts

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Gathers attempts, from any thread."""
        self._batches.add(attempts)
        self._life.wake()

    def pause(self, attempt: Attempt, seconds: float) -> None:  # noqa: ARG002 - costs no time
        """Gathers an attempt again, or lays it aside."""
        self._patience[attempt.delivery] += 1
        is_patient = self._patience[attempt.delivery] <= MAX_PAUSES
        self._batches.pause(attempt, 0.0 if is_patient else math.inf)
        self._batches.resume()
        self._life.wake()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that no handler has in hand, in order."""
        parts = self._worker.withdraw(wanted)
        in_hand = [one.delivery for one in self._worker.attempts if not one.settled]
        return self._batches.withdraw(wanted, in_hand) + parts

    def resume(self) -> None:
        """Time has passed: attempts that lie aside are tried again."""
        self._patience.clear()
        self._batches.resume(math.inf)

    def work_off_one(self) -> bool:
        """Handles the next full batch; false if there is none."""
        return self._work_off(full_only=True)

    def hand_out(self) -> bool:
        """Handles what was gathered; false if there is nothing."""
        return self._work_off(full_only=False)

    def _work_off(self, *, full_only: bool) -> bool:
        if not self._batches.take_now(self._worker, full_only=full_only):
            return False
        self._caller.work_off(self._worker)
        return True
