"""Whatever stands still, and wherever, workers with any options come to the end of their messages.

Threads stand still where they look at the time: there they wait, plan and decide. Each run draws
what a consumer may have: its kind of topic, manner, limits, breaker and failures; and a few workers
of one process, each thread of which may stand still at any moment, for up to 0.4 s. It looks for
two parts that wait for each other, which needs the right options and the wrong moment.

`QFRAME_CHAOS_RUNS` (12) says how many runs there are on each store; `QFRAME_CHAOS_SEED` (2026)
chooses what is drawn.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, NamedTuple

import pytest
from eventually import eventually

from qframe import AlreadySettled, Batch, Breaker, Message, Outgoing, QFrame, RateLimit, Topic
from qframe.clock import SYSTEM_CLOCK

pytestmark = pytest.mark.promise(1, 4)

RUNS = int(os.environ.get("QFRAME_CHAOS_RUNS", "12"))
SEED = int(os.environ.get("QFRAME_CHAOS_SEED", "2026"))
MESSAGES, KEYS, GROUP = 60, 7, "g"
STANDSTILLS_S = (0.001, 0.02, 0.15, 0.4)
WITHIN_S = 240
PLAIN, ASYNC, BATCH, ASYNC_BATCH, LATE = "plain", "async", "batch", "async batch", "late"


class HaltingClock:
    """The machine's clock; who looks at it may stand still."""

    def __init__(self, chance: Random, share: float) -> None:
        self._chance = chance
        self._share = share

    def now_ms(self) -> int:
        """Wall time."""
        return SYSTEM_CLOCK.now_ms()

    def monotonic_s(self) -> float:
        """Seconds since some moment, after a standstill or not."""
        if self._chance.random() < self._share:
            time.sleep(self._chance.choice(STANDSTILLS_S))
        return SYSTEM_CLOCK.monotonic_s()


class Drawn(NamedTuple):
    """What one run is like; see the module."""

    topic: Topic
    manner: str
    options: dict[str, Any]
    workers: int
    session_s: float
    failing: float
    takes_s: float
    standing: float
    is_paused: bool


def drawn(chance: Random) -> Drawn:
    """What the next run is like."""
    manner = chance.choice((PLAIN, PLAIN, ASYNC, BATCH, ASYNC_BATCH, LATE))
    options: dict[str, Any] = {
        "backoff": "20ms", "max_attempts": 1000, "threads": chance.choice((1, 2, 8)),
        "lease": chance.choice((1, 3, 30)), "auto_ack": manner != LATE,
    }  # fmt: skip
    if chance.random() < 0.6:
        over = chance.choice(("worker", "group"))
        options["rate_limit"] = RateLimit("50/s", burst=chance.choice((10, 20)), over=over)
    if chance.random() < 0.6:
        options["breaker"] = Breaker(chance.choice((1, 2, 3)), pause="100ms", longest="300ms")
    if manner in (BATCH, ASYNC_BATCH):
        options["batch"] = Batch(chance.choice((3, 10)), "20ms")
    if chance.random() < 0.3:
        options["max_in_flight"] = chance.choice((10, 50))
    if chance.random() < 0.2:
        options["serial"] = True
    return Drawn(
        topic=Topic("t", chance.choice(("stream", "ordered", "delay")), chance.choice((1, 4, 16))),
        manner=manner,
        options=options,
        workers=chance.choice((1, 1, 2)),
        session_s=chance.choice((1, 5, 10)),
        failing=chance.choice((0, 0.1, 0.3)),
        takes_s=chance.choice((0, 0.002, 0.02)),
        standing=chance.choice((0.001, 0.01, 0.03)),
        is_paused=chance.random() < 0.3,
    )


def handler_of(run: Drawn, done: Callable[[Message], None], others: Executor) -> Callable[..., Any]:
    """A handler of the run's manner; `done` takes each message, or raises."""

    def plain(message: Message) -> None:
        time.sleep(run.takes_s)
        done(message)

    async def awaited(message: Message) -> None:
        await asyncio.sleep(run.takes_s)
        done(message)

    def batch(messages: list[Message]) -> None:
        time.sleep(run.takes_s)
        for each in messages:
            done(each)

    async def awaited_batch(messages: list[Message]) -> None:
        await asyncio.sleep(run.takes_s)
        for each in messages:
            done(each)

    def late(message: Message) -> None:
        done(message)
        others.submit(settle, message)

    def settle(message: Message) -> None:
        time.sleep(run.takes_s)
        with suppress(AlreadySettled):  # its lease has passed while somebody stood still
            message.ack()

    return {PLAIN: plain, ASYNC: awaited, BATCH: batch, ASYNC_BATCH: awaited_batch, LATE: late}[
        run.manner
    ]


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_all_is_settled_whoever_stands_still(
    request: pytest.FixtureRequest, store: str, number: int
) -> None:
    chance = Random(f"{SEED} {store} {number}")
    run = drawn(chance)
    url = request.getfixturevalue(store)
    handled: set[int] = set()
    failures: list[BaseException] = []

    def done(message: Message) -> None:
        if chance.random() < run.failing:
            raise ConnectionError("as drawn")
        handled.add(message.body)

    def work(app: QFrame) -> None:
        try:
            app.run()
        except BaseException as error:
            failures.append(error)

    with ExitStack() as stack:
        publisher = stack.enter_context(QFrame(store=url))
        publisher.declare(run.topic)
        publisher.store.subscribe(run.topic, GROUP)
        others = stack.enter_context(ThreadPoolExecutor(4))
        apps = []
        for _ in range(run.workers):
            app = stack.enter_context(QFrame(store=url, grace=20, session_timeout=run.session_s))
            app.parts.opened.clock = HaltingClock(chance, run.standing)
            app.consumer(run.topic, group=GROUP, **run.options)(handler_of(run, done, others))
            apps.append(app)
        threads = [threading.Thread(target=work, args=(app,), daemon=True) for app in apps]
        for each in threads:
            each.start()
        for start in range(0, MESSAGES, 10):
            publisher.publish_many(run.topic, outgoing(run.topic, range(start, start + 10)))
            if run.is_paused:
                (publisher.admin.pause if start % 20 else publisher.admin.resume)("t", GROUP)
            time.sleep(chance.random() * 0.05)
        publisher.admin.resume("t", GROUP)
        eventually(lambda: failures or settled(publisher, run.topic) == MESSAGES, within=WITHIN_S)
        for app in apps:
            app.stop()
        for each in threads:
            each.join(60)
            assert not each.is_alive(), run
        assert failures == [], run
        assert handled == set(range(MESSAGES)), run
        assert publisher.store.verify(run.topic) == [], run


def outgoing(topic: Topic, numbers: range) -> list[Outgoing]:
    """Messages of a few keys, or of one each where those of a key would become one."""
    keys = MESSAGES if topic.kind == "delay" else KEYS
    return [Outgoing(number, key=f"k{number % keys}") for number in numbers]


def settled(app: QFrame, topic: Topic) -> int:
    """How many messages are settled."""
    return sum(each.settled for each in app.store.stats(topic, GROUP))
