"""A pool has as many threads as it was told, from the next run on; each message goes to one."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from contexts import context_of
from eventually import eventually
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_work import Handlers, living, messages, running

from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption
from qframe.message import Delivery
from qframe.runtime.executors.base import Ended
from qframe.runtime.executors.batch_executor import BatchThreadExecutor
from qframe.runtime.executors.engine_calls import CallsInLoop
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.executors.loop_executor import LoopExecutor
from qframe.runtime.executors.run_worker import RunWorker
from qframe.runtime.executors.thread_executor import RUN_S, ThreadExecutor
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.batches import Batches


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def test_a_pool_that_grows_under_load_has_more_handlers_at_once(handlers: Handlers) -> None:
    with running(handlers, 2) as pool:
        pool.dispatch(messages(handlers, range(40)))
        eventually(lambda: handlers.at_once == 2)
        pool.resize(16)
        eventually(lambda: handlers.at_once == 16)
        handlers.gate.set()
        eventually(lambda: not pool.busy)
    assert handlers.most == 16
    assert handlers.handled == Counter(range(40))


def test_a_pool_that_shrinks_lets_running_handlers_end_and_leaves_what_waits_to_the_rest(
    handlers: Handlers,
) -> None:
    with running(handlers, 16) as pool:
        pool.dispatch(messages(handlers, range(16)))
        eventually(lambda: handlers.at_once == 16)
        pool.resize(2)
        pool.dispatch(messages(handlers, range(16, 60)))
        assert (handlers.at_once, living("qframe.pool.t.g")) == (16, 16)
        handlers.gate.set()
        eventually(lambda: living("qframe.pool.t.g") == 2)
        eventually(lambda: not pool.busy)
        handlers.gate.clear()
        pool.dispatch(messages(handlers, range(60, 70)))
        eventually(lambda: handlers.at_once == 2)
        assert pool.size == 2
        handlers.gate.set()
        eventually(lambda: not pool.busy)
    assert handlers.handled == Counter(range(70))


def test_a_thread_between_two_messages_of_a_lane_is_at_work(handlers: Handlers) -> None:
    """Else its steward would rest, and see neither that the next is stuck nor that it is late."""
    seen: list[bool] = []
    handlers.gate.set()
    handlers.through_again = messages(handlers, range(1, 20))
    with running(handlers, 1) as pool:

        def look() -> None:
            # Its steward may hand over what it has done, and come to that when it is through.
            if threading.current_thread().name != "qframe.pool.t.g":
                seen.append(pool.busy)

        handlers.between = look
        pool.dispatch(messages(handlers, range(1)))
        eventually(lambda: handlers.handled == Counter(range(20)))
        eventually(lambda: not pool.busy)
    assert seen
    assert all(seen)


def test_what_follows_in_the_lanes_of_a_thread_that_ends_is_handled_by_others(
    handlers: Handlers,
) -> None:
    handlers.through_again = messages(handlers, range(100, 120))
    with running(handlers, 4) as pool:
        pool.dispatch(messages(handlers, range(4)))
        eventually(lambda: handlers.at_once == 4)
        pool.resize(1)
        handlers.gate.set()
        eventually(lambda: sum(handlers.handled.values()) == 24)
        eventually(lambda: living("qframe.pool.t.g") == 1)
    assert handlers.handled == Counter([*range(4), *range(100, 120)])


def test_where_the_system_has_no_more_threads_there_are_as_many_as_it_gave(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def give_few(thread: threading.Thread) -> None:
        if len(pool._threads.workers) > 6:
            raise RuntimeError("can't start new thread")  # as Python says it
        start(thread)

    with running(handlers, 2) as pool:
        monkeypatch.setattr(threading.Thread, "start", give_few)
        with pytest.raises(BadOption, match=r"refuses more threads .*use 6 or fewer"):
            pool.resize(20)
        pool.dispatch(messages(handlers, range(30)))
        eventually(lambda: handlers.at_once == 6)
        pool.resize(None)
        handlers.gate.set()
        eventually(lambda: living("qframe.pool.t.g") == 2)
        eventually(lambda: not pool.busy)
    assert handlers.handled == Counter(range(30))


def test_a_pool_that_was_resized_before_its_start_or_after_its_stop_has_no_thread_too_many(
    handlers: Handlers,
) -> None:
    handlers.gate.set()
    context = context_of(group="h", fail=lambda _, error: (_ for _ in ()).throw(error), threads=2)
    pool = ThreadExecutor(context, work=handlers, time_limit=TimeLimit(context))
    pool.resize(4)
    pool.resize(3)
    pool.start()
    eventually(lambda: living("qframe.pool.t.h") == 3)
    pool.dispatch(messages(handlers, range(9)))
    eventually(lambda: handlers.handled == Counter(range(9)))
    assert pool.stop(60)
    pool.resize(9)
    assert living("qframe.pool.t.h") == 0


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), max_size=8), seed=st.integers(0, 1000))
def test_however_it_is_resized_each_message_is_handled_once_and_as_many_threads_remain(
    sizes: list[int], seed: int
) -> None:
    handlers, dice = Handlers(), random.Random(seed)
    handlers.gate.set()
    with running(handlers, 3) as pool:
        number = 0
        for size in sizes:
            more = dice.randrange(30)
            pool.dispatch(messages(handlers, range(number, number + more)))
            number += more
            pool.resize(size)
        eventually(lambda: sum(handlers.handled.values()) >= number)
        eventually(lambda: living("qframe.pool.t.g") == ([3, *sizes])[-1])
    assert handlers.handled == Counter(range(number))


@pytest.mark.parametrize(("has_long_runs", "runs"), [(False, 8), (True, 1)])
def test_where_each_run_costs_something_runs_of_slow_handlers_are_longer(
    has_long_runs: bool, runs: int
) -> None:
    class Slow(Handlers):
        def run(self, worker: RunWorker) -> None:
            seen.append(len(worker.run))
            threading.Event().wait(2 * RUN_S * len(worker.run))
            super().run(worker)

    seen: list[int] = []
    handlers = Slow()
    handlers.has_long_runs = has_long_runs
    handlers.gate.set()
    with running(handlers, 1) as pool:
        pool.dispatch(messages(handlers, range(1)))  # by which the pool learns how slow they are
        eventually(lambda: handlers.handled and not pool.busy)
        seen.clear()
        pool.dispatch(messages(handlers, range(1, 9)))
        eventually(lambda: sum(handlers.handled.values()) == 9)
    assert len(seen) == runs


class BatchHandlers:
    """Handlers of batches that wait at a gate, and are counted; and the work of their pool."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.handled: Counter[int] = Counter()
        self._guard = threading.Lock()

    def handle(self, batch: list[Attempt]) -> None:
        self.gate.wait(60)
        with self._guard:
            self.handled.update([attempt.delivery.seq for attempt in batch])

    def begin(self, unit: list[Attempt]) -> list[Attempt]:
        return unit

    def end_batch(
        self, unit: list[Attempt], error: BaseException | None, *, is_cancelled: bool
    ) -> list[list[Attempt]]:
        assert error is None
        return []

    def drop(self, unit: list[Attempt]) -> None:
        raise AssertionError


def batch_pool(
    group: str, threads: int, work: BatchHandlers, failures: list[BaseException], *, size: int,
    within_s: float,
) -> BatchThreadExecutor:  # fmt: skip
    context = context_of(group=group, fail=lambda _, error: failures.append(error), threads=threads)
    return BatchThreadExecutor(
        context, work=work, handler=work.handle, event_loop=None,
        batches=Batches(
            size=size, within_s=within_s, by_subject=False, by_slot=False, clock=SYSTEM_CLOCK
        ),
        time_limit=TimeLimit(context),
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), max_size=8), seed=st.integers(0, 1000))
def test_a_pool_of_batches_is_resized_as_well(sizes: list[int], seed: int) -> None:
    work, dice = BatchHandlers(), random.Random(seed)
    failures: list[BaseException] = []
    pool = batch_pool("b", 3, work, failures, size=3, within_s=0.001)
    pool.start()
    number = 0
    for size in sizes:
        more = dice.randrange(30)
        pool.dispatch(messages(Handlers(), range(number, number + more)))
        number += more
        pool.resize(size)
        if dice.random() < 0.5:
            work.gate.set()
    work.gate.set()
    eventually(lambda: sum(work.handled.values()) >= number)
    eventually(lambda: living("qframe.pool.t.b") == ([3, *sizes])[-1])
    assert pool.stop(60)
    assert (living("qframe.pool.t.b"), failures) == (0, [])
    assert work.handled == Counter(range(number))


@pytest.mark.promise(3)
def test_what_a_batch_has_set_aside_is_not_given_back_while_one_behind_it_is_in_hand() -> None:
    """Else that one would come first."""
    work = BatchHandlers()
    failures: list[BaseException] = []
    pool = batch_pool("b", 1, work, failures, size=3, within_s=0)
    unit = [
        Attempt(Delivery(f"id-{n}", "k", None, b"1", seq=n), Handlers(), True) for n in range(3)
    ]
    pool.start()
    pool.dispatch(unit)
    eventually(lambda: pool.in_hand() == unit)
    pool.pause(unit[0], 3600)
    assert pool.withdraw(lambda _: True) == []
    work.gate.set()
    eventually(lambda: not pool.in_hand())
    assert pool.withdraw(lambda _: True) == unit[:1]
    assert pool.stop(60)
    assert failures == []


class Landing(threading.Event):
    """Has the last flight land after a stop has seen it, and before the stop waits for it."""

    def __init__(self, pool: LoopExecutor, land: Callable[[], None]) -> None:
        super().__init__()
        self._pool = pool
        self._land = land

    def clear(self) -> None:
        self._land()
        eventually(lambda: not self._pool.busy and self.is_set())
        super().clear()


class AsyncHandlers(Handlers):
    """The work of a pool of tasks."""

    def begin(self, unit: list[Attempt]) -> list[Attempt]:
        return unit

    def is_mine(self, _: Attempt) -> bool:
        return True

    def end(self, unit: list[Attempt], error: BaseException | None) -> Ended:
        assert error is None
        return Ended([attempt.delivery for attempt in unit], [])

    def drop(self, _: list[Attempt]) -> None:
        raise AssertionError


def test_a_stop_does_not_wait_for_a_handler_that_has_ended_just_before() -> None:
    failures: list[BaseException] = []
    loop = EventLoop(lambda _, error: failures.append(error), SYSTEM_CLOCK)
    gate = asyncio.Event()
    work = AsyncHandlers()
    context = context_of(group="a", fail=lambda _, error: failures.append(error))
    pool = LoopExecutor(
        context, limit=1, event_loop=loop, work=work,
        calls=CallsInLoop(work.begin, is_awaited=False),
        handler=lambda _: gate.wait(),
        time_limit=TimeLimit(context),
    )  # fmt: skip
    pool._idle = Landing(pool, lambda: loop.call(gate.set))
    pool.start()
    pool.dispatch(messages(work, range(1)))
    eventually(pool.stacks)
    stop = threading.Thread(target=pool.stop, daemon=True)
    stop.start()
    stop.join(60)
    assert not stop.is_alive()
    assert loop.stop(60)
    assert failures == []


class Resting(threading.Event):
    """A monitor's bell that tells when it is about to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            self.waits.set()
        return super().wait(timeout)


@pytest.mark.parametrize("kind", ["one", "batch"])
def test_what_is_paused_from_outside_while_nobody_works_is_handled_when_its_pause_is_over(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who acknowledges from a thread of his own pauses a message whose checker was away."""
    failures: list[BaseException] = []
    work: Any = Handlers() if kind == "one" else BatchHandlers()
    work.gate.set()
    pool: Any
    if kind == "one":
        context = context_of(group="p", fail=lambda _, error: failures.append(error), threads=1)
        pool = ThreadExecutor(context, work=work, time_limit=TimeLimit(context))
    else:
        pool = batch_pool("p", 1, work, failures, size=1, within_s=0)
    bell = Resting()
    monkeypatch.setattr(pool, "_awake", bell)
    monkeypatch.setattr(pool._threads, "awake", bell)
    pool.start()
    assert bell.waits.wait(60)
    pool.pause(messages(Handlers(), range(1))[0], 0.001)
    eventually(lambda: work.handled[0], 30)
    assert pool.stop(60)
    assert failures == []
