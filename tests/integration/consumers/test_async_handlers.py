"""Async handlers, in a real worker: lanes, limits, retries and stops are those of plain ones."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from apps import Shop, audited
from eventually import eventually

from qframe import (
    AlreadySettled,
    Backoff,
    BadOption,
    Message,
    NeedRetry,
    Outgoing,
    Reject,
    Topic,
)

SOON = Backoff(first=0.02, cap=0.02)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with audited(Shop(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal")) as shop:
        yield shop


def test_no_more_than_threads_are_awaited_at_once_and_a_hundred_by_default(shop: Shop) -> None:
    few, default = Topic("few", slots=2), Topic("default", slots=2)
    running: Counter[str] = Counter()
    gate = threading.Event()

    async def handle(message: Message) -> None:
        running[message.topic] += 1
        while not gate.is_set():
            await asyncio.sleep(0.005)

    shop.app.consumer(few, group="g", threads=7)(handle)
    shop.app.consumer(default, group="g")(handle)
    for topic in (few, default):
        shop.app.publish_many(topic, range(200))
    shop.start()
    eventually(lambda: running == {"few": 7, "default": 100})
    stats = [shop.app.admin.topic(topic).groups[0] for topic in (few, default)]
    assert [each.settled for each in stats] == [0, 0]
    assert running == {"few": 7, "default": 100}
    gate.set()
    eventually(lambda: running == {"few": 200, "default": 200})


def test_async_and_plain_handlers_share_a_worker_and_async_ones_a_thread(shop: Shop) -> None:
    topic = Topic("t", slots=1)
    places: dict[str, set[str]] = {"one": set(), "two": set(), "plain": set()}

    async def one(message: Message) -> None:
        places["one"].add(threading.current_thread().name)

    async def two(message: Message) -> None:
        places["two"].add(threading.current_thread().name)

    def plain(message: Message) -> None:
        places["plain"].add(threading.current_thread().name)

    for function in (one, two, plain):
        shop.app.consumer(topic, group=function.__name__, threads=1)(function)
    shop.app.publish_many(topic, range(10))
    shop.app.run(burst=True)
    assert places == {
        "one": {"qframe.loop"}, "two": {"qframe.loop"}, "plain": {"qframe.pool.t.plain.0"}
    }  # fmt: skip
    assert "qframe.loop" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_no_exception_of_a_handler_ends_the_loop(shop: Shop, error: BaseException) -> None:
    topic = Topic("t", slots=1)

    async def fail() -> None:
        raise error

    @shop.app.consumer(topic, group="g", backoff=SOON)
    async def handle(message: Message) -> None:
        if message.attempt == 1:
            await fail()
        if message.attempt == 2:
            await asyncio.create_task(fail())
        if message.attempt == 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        shop.seen.append(message.body)

    shop.app.publish_many(topic, range(3))
    shop.app.run(burst=True)
    assert sorted(shop.seen) == [0, 1, 2]
    assert shop.events["delivery.retried"] == 9


@pytest.mark.parametrize("settles_itself", [False, True])
def test_a_signal_that_a_task_group_has_wrapped_counts_and_any_other_error_is_retried(
    shop: Shop, settles_itself: bool
) -> None:
    topic = Topic("t", slots=1)
    signals = {"never": Reject("no"), "later": NeedRetry("busy", delay="20ms"), "bad": KeyError(1)}

    async def work(message: Message) -> None:
        if message.attempt == 1:
            raise signals[message.body]

    @shop.app.consumer(topic, group="g", backoff="1h", auto_ack=not settles_itself)
    async def handle(message: Message) -> None:
        error = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(work(message))
        except ExceptionGroup as group:
            error = group
        if settles_itself:
            message.ack(error=error)
        elif error:
            raise error
        if error is None:
            shop.seen.append((message.body, message.attempt))

    shop.app.publish_many(topic, [Outgoing(body, key=body) for body in signals])
    shop.start()
    eventually(lambda: shop.seen == [("later", 2)])
    eventually(lambda: [each.error for each in shop.app.admin.dead(topic, "g")] == ["Reject: no"])
    eventually(lambda: shop.app.admin.topic(topic).groups[0].waiting == 1)  # for an hour


def test_a_message_can_be_acknowledged_later_from_a_task_or_a_thread(shop: Shop) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    taken: list[Message] = []
    tasks: list[asyncio.Task[None]] = []

    async def acknowledge(message: Message) -> None:
        await asyncio.sleep(0.01)
        message.ack()

    @shop.app.consumer(topic, group="g", auto_ack=False)
    async def handle(message: Message) -> None:
        taken.append(message)
        if message.body != 1:
            tasks.append(asyncio.create_task(acknowledge(message)))

    shop.app.publish_many(topic, [Outgoing(number, key="k") for number in range(3)])
    shop.start()
    eventually(lambda: len(taken) == 2)
    threading.Thread(target=taken[1].ack).start()
    eventually(lambda: shop.app.admin.lag(topic, "g") == 0)
    assert [message.body for message in taken] == [0, 1, 2]
    with pytest.raises(AlreadySettled):
        taken[0].ack()


def test_a_message_that_was_taken_over_and_forgotten_is_handed_back(shop: Shop) -> None:
    topic = Topic("t", slots=1)

    @shop.app.consumer(topic, group="g", lease="60s", backoff=SOON)
    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        shop.seen.append(message.attempt)
        message.auto_ack = message.attempt > 1

    shop.app.publish(topic, 1)
    shop.start()
    eventually(lambda: gc.collect() >= 0 and shop.app.admin.lag(topic, "g") == 0)
    assert shop.seen == [1, 2]
    assert shop.events["delivery.leaked"] == 1


@pytest.mark.parametrize("threads", [1, 100])
def test_each_message_has_context_variables_of_its_own(shop: Shop, threads: int) -> None:
    topic = Topic("t", slots=1)
    current: ContextVar[int] = ContextVar("current", default=-1)

    @shop.app.consumer(topic, group="g", threads=threads)
    async def handle(message: Message) -> None:
        before = current.get()
        current.set(message.body)
        await asyncio.sleep(0.001)
        shop.seen.append((before, current.get() == message.body))

    shop.app.publish_many(topic, range(50))
    shop.app.run(burst=True)
    assert shop.seen == [(-1, True)] * 50


@pytest.mark.promise(7)
def test_slow_keys_delay_no_other_key(shop: Shop) -> None:
    topic = Topic("t", slots=1)
    gate = threading.Event()

    @shop.app.consumer(topic, group="g", threads=3)
    async def handle(message: Message) -> None:
        while message.key in ("slow", "slower") and not gate.is_set():
            await asyncio.sleep(0.005)
        shop.seen.append(message.key)

    items = [Outgoing(1, key="slow"), Outgoing(1, key="slower"), Outgoing(1, key="slow")]
    items += [Outgoing(1, key=f"k{number}") for number in range(300)]
    shop.app.publish_many(topic, items)
    shop.start()
    eventually(lambda: len(shop.seen) == 300)
    assert not {"slow", "slower"} & set(shop.seen)
    gate.set()
    eventually(lambda: len(shop.seen) == 303)


@pytest.mark.gate
@pytest.mark.promise(4)
def test_a_handler_whose_message_was_lost_is_cancelled_and_settles_nothing(shop: Shop) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    ended: list[tuple[int, bool]] = []

    @shop.app.consumer(topic, group="g")
    async def handle(message: Message) -> None:
        try:
            if message.attempt == 1 and message.key == "k":
                await asyncio.sleep(600)
        finally:
            ended.append((message.attempt, message.cancelled))

    shop.app.publish(topic, 1, key="k", id="m")
    shop.start()
    eventually(lambda: [each.doing for each in shop.app.admin.stats(topic)] == [1])
    # As a worker would that was cut off from whoever shares the slots out.
    epoch = int(shop.app.store.epochs(topic, "g")[0], 16)
    assert shop.app.store.take(topic, "g", {0: f"{epoch + 1:016x}"}) == [0]
    shop.app.publish(topic, 2, key="other")  # which makes the worker pull, and be refused
    # It claims the slot under a later epoch, and what was lost comes again.
    eventually(lambda: sorted(ended) == [(1, False), (1, True), (2, False)])
    eventually(lambda: shop.app.admin.lag(topic, "g") == 0)
    assert not shop.events["delivery.stale"]


@pytest.mark.promise(9)
def test_stopping_lets_handlers_finish_and_gives_the_rest_back_uncounted(shop: Shop) -> None:
    topic = Topic("t", slots=2)
    gate = threading.Event()
    attempts: Counter[int] = Counter()

    @shop.app.consumer(topic, group="g", threads=5)
    async def handle(message: Message) -> None:
        while not gate.is_set():
            await asyncio.sleep(0.005)
        attempts[message.attempt] += 1

    shop.app.publish_many(topic, [Outgoing(number, key=f"k{number % 20}") for number in range(50)])
    shop.start()
    eventually(lambda: sum(each.doing for each in shop.app.admin.topic(topic).groups) >= 10)
    shop.app.stop()
    # Not before the rest is back: a worker that is slow to hear would let handlers go on with it.
    eventually(lambda: sum(each.doing for each in shop.app.admin.topic(topic).groups) == 5)
    gate.set()
    shop.stop()
    [totals] = shop.app.admin.topic(topic).groups
    assert totals.doing == 0
    assert 5 <= sum(attempts.values()) < 50
    shop.app.run(burst=True)
    assert attempts == {1: 50}


@pytest.mark.gate
@pytest.mark.promise(9)
def test_what_outlasts_the_grace_is_cancelled_and_given_back_when_it_has_ended(
    tmp_path: Path,
) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}", grace=0.2)
    topic = Topic("t", slots=1)
    left: list[int] = []

    @shop.app.consumer(topic, group="g")
    async def handle(message: Message) -> None:
        shop.seen.append((message.body, message.attempt))
        if len(shop.seen) > 2:
            return
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.01)
            [totals] = await asyncio.to_thread(lambda: shop.app.admin.topic(topic).groups)
            left.append(totals.doing)
            while len(left) < 2:  # else the other may look when this one has ended
                await asyncio.sleep(0.005)

    shop.app.publish_many(topic, range(2))
    shop.start()
    eventually(lambda: len(shop.seen) == 2)
    shop.stop()
    [totals] = shop.app.admin.topic(topic).groups
    assert (totals.doing, totals.todo) == (0, 2)
    assert left == [2, 2]
    assert not shop.events["delivery.failed"]
    shop.app.run(burst=True)
    assert sorted(shop.seen) == [(0, 1), (0, 1), (1, 1), (1, 1)]
    shop.app.close()


def test_a_stop_waits_for_no_handler_that_ignores_its_cancellation(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}", grace=0.1)
    topic = Topic("t", slots=1)
    gate = threading.Event()

    @shop.app.consumer(topic, group="g")
    async def handle(message: Message) -> None:
        shop.seen.append(message.attempt)
        gate.wait(60)  # it holds up the whole loop

    shop.app.publish(topic, 1)
    shop.start()
    eventually(lambda: shop.seen == [1])
    shop.stop()
    [totals] = shop.app.admin.topic(topic).groups
    assert (totals.doing, totals.todo) == (0, 1)
    gate.set()
    shop.app.close()


def test_tasks_that_handlers_leave_behind_end_with_the_worker(shop: Shop) -> None:
    topic = Topic("t", slots=1)
    ended: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cancelled")

    @shop.app.consumer(topic, group="g")
    async def handle(message: Message) -> None:
        tasks.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    shop.app.publish(topic, 1)
    shop.app.run(burst=True)
    assert ended == ["cancelled"]


def test_an_object_whose_call_is_async_is_awaited(shop: Shop) -> None:
    topic = Topic("t", slots=1)

    class Handler:
        async def __call__(self, body: int) -> None:
            await asyncio.sleep(0)
            shop.seen.append(body)

    shop.app.consumer(topic, group="g")(Handler())
    shop.app.publish(topic, 5)
    shop.app.run(burst=True)
    assert shop.seen == [5]


def test_only_async_handlers_may_run_by_ten_thousands(shop: Shop) -> None:
    async def awaited(message: Message) -> None: ...
    def plain(message: Message) -> None: ...

    shop.app.consumer("t", group="g", threads=100_000)(awaited)
    with pytest.raises(BadOption, match="threads 1025: a plain function has a thread for each"):
        shop.app.consumer("t", group="h", threads=1025)(plain)


def test_the_loop_that_lines_share_runs_until_all_of_them_have_left(tmp_path: Path) -> None:
    """Checkers of async engines have their connections in it, and release claims till then."""
    shop = Shop(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal")
    alive: list[bool] = []

    async def handle(message: Message) -> None:
        del message

    with shop.app:
        for group in ("a", "b"):
            shop.app.consumer(Topic("t", slots=1), group=group)(handle)
        shop.start()
        eventually(lambda: shop.events["worker.ready"])
        for consumer in shop.app.parts.opened.worker._consumers:  # type: ignore[union-attr]

            def leave(consumer: Any = consumer, leave: Any = consumer.leave) -> None:
                leave()
                alive.append(consumer.executor._event_loop.alive)

            consumer.leave = leave  # type: ignore[method-assign]
        shop.stop()
    assert alive == [True, True]
