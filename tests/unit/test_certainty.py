"""No handler begins in a worker that stood still until its slots may be another's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from seated import Seated

from qframe.clock import VirtualClock
from qframe.events import Events
from qframe.message import Delivery
from qframe.options.consumer import consumer_options
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.executors.thread_executor import RunWorker, ThreadExecutor
from qframe.runtime.policies.direct import Direct
from qframe.stores.model.store import ModelStore
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

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.seen: list[Any] = []
        store, topic = ModelStore(clock=self.clock), Topic("t", slots=1)
        store.declare(topic)
        store.subscribe(topic, "g")
        self.engine: Any = None
        self.consumer = Consumer(
            topic=topic, group="g", handler=self.seen.append, options=consumer_options(**options),
            make_policy=lambda _: Direct(), make_executor=self._executor, store=store,
            coordinator=Timed(self.clock),  # type: ignore[arg-type]
            max_bytes=1000, events=Events(), clock=self.clock, on_failure=lambda *_: None,
        )  # fmt: skip
        self.consumer.join()

    def _executor(self, parts: Any) -> ThreadExecutor:
        self.engine = parts.work
        return ThreadExecutor(
            name=parts.name, threads=1, time_limit=parts.time_limit, clock=self.clock,
            work=parts.work, on_failure=lambda *_: None,
        )  # fmt: skip

    def run(self, deliveries: Collection[Delivery]) -> None:
        """Has a thread go through a run."""
        worker = RunWorker()
        worker.run.extend(self.consumer._finisher.attempts([*deliveries]))
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
