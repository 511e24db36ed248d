"""The numbers of one consumer of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableSequence, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from qframe.clock import Clock
from qframe.hooks import check_result
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.runtime.executors.run_worker import SLOW_S
from qframe.runtime.executors.thread_executor import ThreadExecutor
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.meter import PendingRun
from qframe.runtime.handler.retry_policy import Disposition
from qframe.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from qframe.runtime.consume.consumer import Consumer

T = TypeVar("T")

OUTCOMES: Final = ("ack", "retry", "dead", "reject", "duplicate", "skipped", "stale")
_ACK, _RETRY, _DEAD, _REJECT, _DUPLICATE, _SKIPPED, _STALE = range(len(OUTCOMES))

_DELIVERY: Final = attrgetter("delivery")
_DUE: Final = attrgetter("due_ms")
_PUBLISHED: Final = attrgetter("published_at_ms")
_NONE: Final[list[Disposition]] = []
_ONE_IN: Final = 8

SECONDS: Final = (
    SLOW_S, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
    21600.0,
)  # fmt: skip


class ConsumerMeter:
    """Counts what one consumer does.

    Plain handlers are measured by the run (as `ThreadExecutor` cuts it), but for each call that
    takes longer than the least bound of the histogram: so that is exact. Async ones and batches are
    measured by each call. How long messages have waited, and how old and how late they are at their
    end, is looked up for one in eight where more than eight come together.

    Args:
        topic, group: the consumer's.
        clock: measures, and tells the time beside that of the store.
        cells: where the outcomes are counted, each at its own place.
    """

    def __init__(
        self, topic: str, group: str, *, clock: Clock, cells: MutableSequence[int]
    ) -> None:
        self.topic = topic
        self.group = group
        self._clock = clock
        self._cells = cells
        self._guard = threading.Lock()
        self._unhandled = {_DUPLICATE: 0, _SKIPPED: 0}
        self._running: dict[object, float] = {}
        self.handle: Histogram = Histogram(SECONDS)
        self.wait: Histogram = Histogram(SECONDS, 1000)
        self.end_to_end: Histogram = Histogram(SECONDS, 1000)
        self.lateness: Histogram = Histogram(SECONDS, 1000)
        self.counts: dict[str, int] = {"lost": 0, "taken": 0, "left": 0, "slots_lost": 0}
        self._consumer: Consumer | None = None
        self._limited_s = 0.0

    # For the consumer's parts.

    def due(self, attempts: Sequence[Attempt]) -> PendingRun:
        """Looks up since when attempts have been due that are handled next."""
        deliveries = list(map(_DELIVERY, _some(attempts)))
        since = list(map(_DUE, deliveries))
        if not all(since):
            published = map(_PUBLISHED, deliveries)
            since = [due or at for due, at in zip(since, published, strict=True)]
        return PendingRun(len(attempts), since, self._clock.now_ms())

    def begun(self, run: PendingRun, count: int) -> None:
        """Counts how long the first so many of a run were due when their handlers were called."""
        since = run.since_ms
        if count < run.attempts:  # another thread has the others, or they had to wait
            since = since[: -(-count * len(since) // run.attempts)]
        self.wait.add_since(since, run.now_ms, count)

    def handled(self, count: int, seconds: float, slow: Sequence[float] = ()) -> None:
        """Counts so many calls of the handler, which have taken so long together."""
        for each_s in slow:
            self.handle.add(each_s)
        if others := count - len(slow):
            self.handle.add(max(0.0, seconds - sum(slow)) / others, others)

    def settled(self, batch: Sequence[Delivery | Disposition], results: Sequence[Settled]) -> None:
        """Counts how messages have ended, by what the store has said of each."""
        done: Sequence[Delivery | Disposition] = batch
        stale = 0
        if results.count(Settled.SETTLED) < len(batch):
            pairs = list(zip(batch, results, strict=True))
            done = [one for one, result in pairs if result is Settled.SETTLED]
            stale = results.count(Settled.STALE)
        acked, others = done, _NONE
        if Disposition in map(type, done):
            acked = [one for one in done if not isinstance(one, Disposition)]
            others = [one for one in done if isinstance(one, Disposition)]
        some = _some(acked)
        published = list(map(_PUBLISHED, some))
        due = [at for at, since in zip(map(_DUE, some), published, strict=True) if at > since]
        now_ms = self._clock.now_ms()
        if due:  # what was to come later than it was published
            self.lateness.add_since(due, now_ms, len(due) * len(acked) // len(some))
        self.end_to_end.add_since(published, now_ms, len(acked))
        cells = self._cells
        with self._guard:
            handled = len(acked)
            for place, waiting in self._unhandled.items():
                moved = min(waiting, handled)
                if moved:  # they were acknowledged, and no handler was called
                    self._unhandled[place] -= moved
                    cells[place] += moved
                    handled -= moved
            cells[_ACK] += handled
            for one in others:
                if one.verdict is Verdict.RETRY:
                    cells[_RETRY] += 1
                elif one.verdict is Verdict.DEAD:
                    cells[_REJECT if one.is_rejected else _DEAD] += 1
            cells[_STALE] += stale

    # For what hears events.

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Counts an event of this consumer."""
        count = facts.get("count", 1)
        with self._guard:
            if name == "delivery.duplicate":
                self._unhandled[_DUPLICATE] += count
            elif name == "delivery.skipped":
                self._unhandled[_SKIPPED] += count
            elif name == "delivery.lost":
                self.counts["lost"] += count
            elif name == "slot.taken":
                self.counts["taken"] += count
            elif name == "slot.left":
                self.counts["left"] += count
            elif name == "slot.lost":
                self.counts["slots_lost"] += count

    # Around handlers that no run is measured for.

    def around(self, handler: Callable[[Any], Any], *, is_async: bool) -> Callable[[Any], Any]:
        """A handler that is measured at each call, with a message or a list of them."""

        def call(given: Any) -> object:
            mark = self._enter(given)
            try:
                if (result := handler(given)) is not None:
                    check_result(result)
                return result
            finally:
                self._leave(mark, given)

        async def acall(given: Any) -> object:
            mark = self._enter(given)
            try:
                if (result := await handler(given)) is not None:
                    check_result(result)
                return result
            finally:
                self._leave(mark, given)

        return acall if is_async else call

    def _enter(self, given: Any) -> object:
        mark = object()
        self._running[mark] = self._clock.monotonic_s()
        attempts = given if isinstance(given, list) else [given]
        self.begun(self.due(attempts), len(attempts))
        return mark

    def _leave(self, mark: object, given: Any) -> None:
        seconds = self._clock.monotonic_s() - self._running.pop(mark)
        count = len(given) if isinstance(given, list) else 1
        self.handled(max(1, count), seconds)

    # For who reads the numbers.

    def watch(self, consumer: Consumer) -> None:
        """Reads the state of this consumer from now on, and adds up what only grows."""
        self._limited_s = self.limited_s
        self._consumer = consumer

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        """How many messages have ended in each way."""
        return list(zip(OUTCOMES, self._cells, strict=True))

    @property
    def in_flight(self) -> int:
        """How many messages are pulled, and neither settled nor lost."""
        return 0 if self._consumer is None else len(self._consumer.in_flight)

    @property
    def longest_running_s(self) -> float:
        """How long the call of a handler has taken that runs for longest; 0 if none does."""
        now_s = self._clock.monotonic_s()
        longest_s = max([now_s - since_s for since_s in list(self._running.values())], default=0.0)
        executor = None if self._consumer is None else self._consumer.executor
        if isinstance(executor, ThreadExecutor):
            longest_s = max(longest_s, executor.longest_s)
        return longest_s

    @property
    def progress_age_s(self) -> float:
        """How long its pull loop has been at one step; 0 while it waits for work."""
        return 0.0 if self._consumer is None else self._consumer.pull_loop.busy_s()

    @property
    def is_open(self) -> bool:
        """Whether its circuit breaker is open."""
        consumer = self._consumer
        return consumer is not None and consumer.flow.seeks and not consumer.pull_loop.stopping

    @property
    def full_slots(self) -> int:
        """In how many slots so much is parked that their lines are not read."""
        return 0 if self._consumer is None else len(self._consumer.slots.full)

    @property
    def limited_s(self) -> float:
        """For how long its rate limit has let nothing through."""
        return self._limited_s + (0.0 if self._consumer is None else self._consumer.flow.limited_s)


def _some(many: Sequence[T]) -> Sequence[T]:
    return many if len(many) <= _ONE_IN else many[::_ONE_IN]
