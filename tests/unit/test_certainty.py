"""A worker that does not know for certain begins no handler, and hands no slot over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from contexts import context_of
from seated import Seated

from qframe.clock import VirtualClock
from qframe.message import Delivery
from qframe.retry import NeedRetry
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.executors.run_worker import RunWorker
from qframe.runtime.executors.thread_executor import ThreadExecutor
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.policies.direct import Direct
from qframe.stores.model.store import ModelStore
from qframe.stores.types import PullRequest
from qframe.topic import Topic

CERTAIN_S = 4.0


class Timed(Seated):
    """A membership that is certain until a moment."""

    certain_until_s = CERTAIN_S

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def certain(self) -> bool:
        return self._clock.monotonic_s() < self.certain_until_s


class Bench:
    """A consumer whose only thread is a test's."""

    def __init__(self, handler: Callable[[Any], object] | None = None, **options: Any) -> None:
        self.clock = VirtualClock()
        self.seen: list[Any] = []
        store, topic = ModelStore(clock=self.clock), Topic("t", slots=1)
        store.declare(topic)
        store.subscribe(topic, "g")
        self.engine: Any = None
        self.membership = Timed(self.clock)
        context, seen = context_of(topic, clock=self.clock, **options), self.seen.append
        self.consumer = Consumer(
            context, ConsumerSpec(topic, "g", seen, handler or seen, context.options),
            make_policy=lambda _: Direct(), make_executor=self._executor, store=store,
            coordinator=self.membership,  # type: ignore[arg-type]
            max_bytes=1000,
        )  # fmt: skip
        self.consumer.join()

    def _executor(self, parts: Any) -> ThreadExecutor:
        self.engine = parts.work
        return ThreadExecutor(
            context_of(clock=self.clock), time_limit=parts.time_limit, work=parts.work
        )

    def run(self, deliveries: Collection[Delivery]) -> None:
        """Has a thread go through a run."""
        worker = RunWorker()
        worker.run.extend(self.consumer._in_hand.attempts([*deliveries]))
        self.engine.run(worker)


@pytest.mark.promise(4)
@pytest.mark.parametrize("options", [{}, {"rate_limit": "1000/s"}, {"timeout": "60s"}])
@pytest.mark.parametrize("stands_ms", [3999, 4000])
def test_what_was_pulled_before_a_worker_stood_still_reaches_no_handler_after(
    options: dict[str, Any], stands_ms: int
) -> None:
    bench = Bench(**options)
    pulled = [Delivery(f"m{seq}", None, None, b"1", seq=seq, receipt="r") for seq in range(2)]
    bench.consumer.in_flight.add(pulled)
    bench.clock.advance(stands_ms)
    bench.run(pulled)
    assert len(bench.seen) == (2 if stands_ms < CERTAIN_S * 1000 else 0)


@pytest.mark.promise(6)
def test_a_slot_does_not_pass_on_while_a_pull_of_it_is_in_doubt() -> None:
    """The next owner would count what no handler has seen: found by simulation."""
    bench = Bench()
    epoch = f"{1:016x}"
    bench.membership.owns(s0=epoch)
    assert bench.consumer.slots.open() == {0: epoch}
    pulls = bench.consumer.pull_loop._unanswered
    pulls.doubt([PullRequest(0, epoch, 1)], "r")
    bench.membership.owns(leaving=[0], s0=epoch)
    bench.consumer.slots.open()
    assert bench.membership.empty == []
    assert pulls.revoke()
    bench.consumer.slots.open()
    assert bench.membership.empty == [0]


@pytest.mark.promise(3)
def test_a_retry_in_place_of_what_was_lost_meanwhile_is_the_next_owners_affair() -> None:
    """As a retry of this worker's it would come behind the next of its key."""

    def handle(attempt: Any) -> None:
        bench.consumer.lose([attempt.delivery])
        attempt.cancel()  # as `lose` does with what threads of the executor's own have in hand
        raise NeedRetry

    bench = Bench(handle)
    one = Delivery("m0", "k", None, b"1", receipt="r")
    bench.consumer.in_flight.add([one])
    bench.consumer._order.offer([one], bench.run)
    assert bench.consumer.settler._inbox.empty()  # type: ignore[attr-defined]
    following = Delivery("m1", "k", None, b"1", seq=1, receipt="r")
    through: list[Delivery] = []
    bench.consumer._order.offer([following], through.extend)
    assert through == [following]
