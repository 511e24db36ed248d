"""A worker that is paused, resumed and limited while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apps import handler
from eventually import eventually
from sqlalchemy import Connection, create_engine, text

from qframe import (
    Batch,
    DatabaseChecker,
    Message,
    NeedRetry,
    Outgoing,
    QFrame,
    Topic,
    TransactionalChecker,
)
from qframe.options.flow import RateLimit
from qframe.runtime.flow.admission import LONGEST_SLEEP_S, AdmissionControl

THREADS = 4
ALMOST_S = 1e-6  # what adding up fractions may lose


@contextmanager
def running(app: QFrame) -> Iterator[AdmissionControl]:
    """A worker in a thread, and the flow of its one line, to be paused from here."""
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        eventually(
            lambda: app.parts.opened.worker is not None and bool(app.parts.opened.worker._consumers)
        )
        worker: Any = app.parts.opened.worker
        yield worker._consumers[0].flow
    finally:
        app.stop()
        thread.join()
        assert app.admin.verify("events") == []


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}", grace="5s") as app:
        yield app


def pause(flow: AdmissionControl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses, and returns once the pull loop knows: no pull is on its way any more."""
    knows = threading.Event()
    give_back = flow._give_back

    def noted() -> Any:
        knows.set()
        return give_back()

    monkeypatch.setattr(flow, "_give_back", noted)
    flow.pause()
    assert knows.wait(60)


def in_doing(app: QFrame, topic: Topic) -> int:
    """How many messages are in doing."""
    return sum(stats.doing for stats in app.store.stats(topic, "g"))


def assert_within(starts: list[float], limit: RateLimit, in_hand: int = THREADS) -> None:
    """No span between two starts has more of them than burst and rate allow.

    But for so many as may stand still, for any time, between their token and their handler's first
    line.
    """
    starts = sorted(starts)
    free = limit.burst + in_hand
    for count in range(free + 1, len(starts) + 1):
        spans = [b - a for a, b in zip(starts, starts[count - 1 :], strict=False)]
        assert min(spans) >= (count - free) / limit.per_s - ALMOST_S, (count, min(spans))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_paused_consumer_handles_nothing_more_and_goes_on_in_order(
    app: QFrame, kind: Any, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("events", kind, slots=4)
    handled: list[tuple[str | None, int]] = []
    go_on = threading.Event()
    begun = threading.Event()

    def work(message: Message) -> None:
        handled.append((message.key, message.body))
        if len(handled) == 50:
            begun.set()
            go_on.wait(60)

    app.consumer(topic, "g", threads=1)(handler(is_async, work))
    items = [Outgoing(number, key=f"k{number % 7}") for number in range(300)]
    app.publish_many(topic, items)
    with running(app) as flow:
        assert begun.wait(60)
        pause(flow, monkeypatch)
        go_on.set()
        eventually(lambda: in_doing(app, topic) == 0)
        assert flow.paused
        paused_at = len(handled)
        app.publish(topic, 300, key="k0")
        assert paused_at < 300
        eventually(lambda: in_doing(app, topic) == 0)
        assert len(handled) == paused_at
        flow.resume()
        eventually(lambda: len(handled) == 301)
    for key in {key for key, _ in handled}:
        numbers = [number for each, number in handled if each == key]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_limited_consumer_begins_no_faster_and_as_fast_as_it_may(
    app: QFrame, is_async: bool
) -> None:
    topic = Topic("events", slots=4)
    limit = RateLimit("100/s", burst=10)
    starts: list[float] = []

    app.consumer(topic, "g", rate_limit=limit, threads=THREADS)(
        handler(is_async, lambda _: starts.append(time.monotonic()))
    )
    app.publish_many(topic, [Outgoing(number, key=f"k{number % 7}") for number in range(110)])
    with running(app):
        eventually(lambda: len(starts) == 110)
    assert_within(starts, limit)


@pytest.mark.parametrize("key", ["one", None])
def test_batches_of_one_key_reach_the_rate_of_a_group(app: QFrame, key: str | None) -> None:
    topic = Topic("events", slots=4)
    limit = RateLimit("500/s", burst=100, over="group")
    starts: list[float] = []

    @app.consumer(topic, "g", rate_limit=limit, batch=Batch(16, within=0), threads=2)
    def handle(messages: list[Message]) -> None:
        starts.extend([time.monotonic()] * len(messages))

    app.publish_many(topic, [Outgoing(number, key=key) for number in range(600)])
    with running(app):
        eventually(lambda: len(starts) == 600, within=20)  # a second is due
    # A draw that takes long brings tokens that others have replaced since.
    assert_within(starts, limit, in_hand=2 * 16 + limit.burst - limit.meanwhile)


def test_a_retry_in_place_takes_a_token_as_every_call_does(app: QFrame) -> None:
    topic = Topic("events", slots=1)
    limit = RateLimit("20/s", burst=2)
    starts: list[float] = []

    @app.consumer(topic, "g", rate_limit=limit, threads=THREADS)
    def handle(message: Message) -> None:
        starts.append(time.monotonic())
        if message.local_retries < 2:
            raise NeedRetry()

    app.publish_many(topic, range(6))
    with running(app):
        eventually(lambda: len(starts) == 18)
    assert_within(starts, limit)


def test_a_slow_key_does_not_use_up_what_others_may_take(app: QFrame) -> None:
    topic = Topic("events", slots=1)
    handled: list[int] = []
    go_on = threading.Event()

    @app.consumer(topic, "g", rate_limit=RateLimit("200/s", burst=3))
    def handle(message: Message) -> None:
        if message.key == "slow":
            go_on.wait(60)
        else:
            handled.append(message.body)

    slow = [Outgoing(number, key="slow") for number in range(30)]
    app.publish_many(topic, [*slow, *[Outgoing(number, key="k") for number in range(10)]])
    with running(app):
        eventually(lambda: len(handled) == 10)
        go_on.set()


@pytest.mark.gate
@pytest.mark.promise(1, 3)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("is_async", [False, True])
def test_pauses_lose_and_repeat_nothing_and_keep_the_order_of_keys_however_slow_the_store_is(
    app: QFrame, kind: Any, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("events", kind, slots=4)
    done: dict[str | None, list[int]] = defaultdict(list)
    again: list[str] = []
    told: list[str] = []
    app.events.listen(lambda name, _: told.append(name))
    latency = threading.Event()

    def handle(message: Message) -> None:
        if message.body % 7 == 0 and message.local_retries < 2:
            raise NeedRetry()
        if message.attempt != 1:
            again.append(f"{message.key} {message.body}: attempt {message.attempt}")
        done[message.key].append(message.body)

    async def handle_async(message: Message) -> None:
        await asyncio.sleep(0.001)
        handle(message)

    app.consumer(topic, "g", threads=8)(handle_async if is_async else handle)
    app.publish_many(topic, [Outgoing(number, key=f"k{number % 9}") for number in range(900)])
    settle = app.store.settle

    def settle_late(*arguments: Any) -> Any:
        latency.wait(0.03)
        return settle(*arguments)

    monkeypatch.setattr(app.store, "settle", settle_late)
    with running(app) as flow:
        while sum(len(set(numbers)) for numbers in list(done.values())) < 900:
            flow.pause()
            eventually(lambda: flow.again_s == LONGEST_SLEEP_S)
            flow.resume()
            latency.wait(0.02)
    # A worker that stood still for its whole session has lost its slots, and repeats.
    has_lost = "slot.lost" in told
    assert has_lost or again == []
    for key, numbers in done.items():
        handled = list(dict.fromkeys(numbers)) if has_lost else numbers
        assert handled == [n for n in range(900) if f"k{n % 9}" == key]


def test_a_checker_is_asked_again_after_a_message_was_held_back(
    app: QFrame, tmp_path: Path
) -> None:
    topic = Topic("events", "ordered", slots=2)
    limit = RateLimit("100/s", burst=3)
    engine = create_engine(f"sqlite:///{tmp_path / 'business.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE done (number INTEGER)"))
    starts: list[float] = []

    checker = TransactionalChecker(engine)

    @app.consumer(topic, "g", rate_limit=limit, idempotent_checker=checker, threads=THREADS)
    def handle(message: Message, connection: Connection) -> None:
        starts.append(time.monotonic())
        connection.execute(text("INSERT INTO done VALUES (:number)"), {"number": message.body})
        if message.body % 5 == 0 and not message.local_retries:
            raise NeedRetry()

    app.publish_many(topic, [Outgoing(number, key=f"k{number % 7}") for number in range(40)])
    app.run(burst=True)
    assert_within(starts, limit)
    with engine.begin() as connection:
        done = connection.execute(text("SELECT number FROM done ORDER BY number")).scalars().all()
    assert done == list(range(40))


def test_what_a_checker_has_seen_before_takes_no_token(app: QFrame, tmp_path: Path) -> None:
    topic = Topic("events", slots=1)
    checker = DatabaseChecker(create_engine(f"sqlite:///{tmp_path / 'effects.db'}"), key="id")
    handled: list[str] = []

    @app.consumer(topic, "g", rate_limit=RateLimit("1/h", burst=2), idempotent_checker=checker)
    def handle(message: Message) -> None:
        handled.append(message.body["id"])

    app.publish(topic, {"id": "a"})
    app.run(burst=True)
    app.publish_many(topic, [{"id": "a"}, {"id": "a"}, {"id": "a"}])
    app.run(burst=True)
    app.publish_many(topic, [{"id": "a"}, {"id": "b"}])
    app.run(burst=True)
    assert handled == ["a", "b"]


def test_each_instance_of_a_broadcast_consumer_has_a_limit_of_its_own(tmp_path: Path) -> None:
    topic = Topic("events", slots=1)
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with QFrame(url, instance="a") as a, QFrame(url, instance="b") as b:
        handled: dict[str, list[int]] = {"a": [], "b": []}
        for name, app in (("a", a), ("b", b)):

            @app.consumer(
                topic, "g", broadcast=True, start="earliest",
                rate_limit=RateLimit("1/h", burst=3, over="group"),
            )  # fmt: skip
            def handle(message: Message, name: str = name) -> None:
                handled[name].append(message.body)

        a.publish_many(topic, range(2))
        a.run(burst=True)
        b.run(burst=True)
        assert handled == {"a": [0, 1], "b": [0, 1]}


def test_bodies_of_a_consumer_are_bounded_by_its_own_option(app: QFrame) -> None:
    topic = Topic("events", slots=1)
    most = 0
    go_on = threading.Event()

    @app.consumer(topic, "g", max_in_flight_bytes=65_536, threads=1)
    def handle(_: Message) -> None:
        go_on.wait(60)

    app.publish_many(topic, ["x" * 20_000 for _ in range(40)])
    with running(app) as flow:
        eventually(lambda: in_doing(app, topic) >= 2)
        assert flow.limit is None
        for _ in range(5):
            most = max(most, in_doing(app, topic))
        assert most <= 4
        go_on.set()
        eventually(lambda: sum(each.settled for each in app.store.stats(topic, "g")) == 40)
