"""A consumer whose handler fails again and again pauses by itself, and goes on when it may."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apps import running
from database_servers import PostgresServer
from eventually import eventually
from servers import RedisServer
from sqlalchemy import create_engine

from qframe import (
    Backoff,
    Batch,
    Breaker,
    DatabaseChecker,
    Message,
    NeedRetry,
    Outgoing,
    QFrame,
    Topic,
)

SOON = Backoff(first=0.02, cap=0.02)
KEYS = 7


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QFrame]:
    """An app with a store of its own."""
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        app = QFrame(redis.url, namespace=tmp_path.name)
    elif request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        app = QFrame(postgres.new_database())
    else:
        app = QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal")
    with app:
        yield app
        for topic in app.store.topics():
            assert app.store.verify(topic) == []


class Downstream:
    """What a handler needs: it is away or there, and remembers who has called."""

    def __init__(self) -> None:
        self.away = threading.Event()
        self.refused: Counter[int] = Counter()
        self.done: dict[str | None, list[int]] = defaultdict(list)
        self.told: Counter[str] = Counter()
        self._guard = threading.Lock()

    def call(self, message: Message) -> None:
        if self.away.is_set():
            self.refused[message.body] += 1
            raise ConnectionError("nobody answers")
        self.done[message.key].append(message.body)

    def hear(self, name: str, _facts: dict[str, Any]) -> None:
        with self._guard:  # several threads tell
            self.told[name] += 1

    @property
    def handled(self) -> int:
        return sum(len(bodies) for bodies in list(self.done.values()))


@pytest.mark.promise(1, 3)
@pytest.mark.parametrize(
    "how", ["plain", "async", "checked", "ack", "batch", "async batch", "checked batch"]
)
def test_an_outage_costs_few_attempts_and_loses_nothing_and_keeps_the_order_of_keys(
    app: QFrame, how: str, tmp_path: Path
) -> None:
    topic = Topic("events", "ordered", slots=4)
    breaker = Breaker(5, pause="100ms", longest="200ms")
    downstream = Downstream()
    app.events.listen(downstream.hear)

    def handle(message: Message) -> None:
        if how == "ack":
            message.auto_ack = False
            try:
                downstream.call(message)
            except ConnectionError as error:
                message.ack(error=error)
            else:
                message.ack()
            return
        downstream.call(message)

    async def handle_async(message: Message) -> None:
        downstream.call(message)

    def handle_batch(messages: list[Message]) -> None:
        if downstream.away.is_set():
            downstream.refused.update([messages[0].body])
            raise ConnectionError("nobody answers")
        for message in messages:
            downstream.call(message)

    async def handle_async_batch(messages: list[Message]) -> None:
        handle_batch(messages)

    handlers: dict[str, Callable[..., Any]] = {
        "async": handle_async, "batch": handle_batch, "async batch": handle_async_batch,
        "checked batch": handle_batch,
    }  # fmt: skip
    options: dict[str, Any] = {"breaker": breaker, "backoff": SOON, "threads": 2}
    if "batch" in how:
        options["batch"] = Batch(8, within="20ms")
    if "checked" in how:
        engine = create_engine(f"sqlite:///{tmp_path / 'effects.db'}")
        options["idempotent_checker"] = DatabaseChecker(engine)
    app.consumer(topic, "g", **options)(handlers.get(how, handle))
    items = [Outgoing(number, key=f"k{number % KEYS}") for number in range(400)]
    downstream.away.set()
    app.publish_many(topic, items)
    with running(app):
        eventually(lambda: downstream.told["consumer.tripped"] >= 3)
        downstream.away.clear()
        eventually(lambda: downstream.handled >= len(items))
    # Each probe is one call, and what two threads had in hand when it opened may have failed too.
    trips = downstream.told["consumer.tripped"]
    # A batch that fails is called again in halves, until its messages have failed alone.
    each = 4 if "batch" in how else 1
    assert downstream.refused.total() <= each * (breaker.failures + 1 + (trips - 1))
    assert downstream.told["consumer.recovered"] == 1
    assert sorted(each for done in downstream.done.values() for each in done) == list(range(400))
    for done in downstream.done.values():
        assert done == sorted(done)
    assert app.admin.dead("events", "g") == []


def test_a_slow_handler_that_asks_for_a_retry_in_place_does_not_stand_before_the_probe(
    app: QFrame,
) -> None:
    topic = Topic("events", slots=1)
    downstream = Downstream()
    app.events.listen(downstream.hear)
    go_on, begun = threading.Event(), threading.Event()

    @app.consumer(topic, "g", breaker=Breaker(2, pause="50ms"), backoff=SOON, threads=4)
    def handle(message: Message) -> None:
        if message.key == "slow" and not go_on.is_set():
            begun.set()
            go_on.wait(60)
            raise NeedRetry()
        downstream.call(message)

    downstream.away.set()
    app.publish_many(topic, [Outgoing(number, key="slow") for number in range(20)])
    with running(app, go_on):
        assert begun.wait(60)
        app.publish_many(topic, [Outgoing(100 + number, key="k") for number in range(20)])
        eventually(lambda: downstream.told["consumer.probing"] >= 2)
        go_on.set()
        downstream.away.clear()
        eventually(lambda: downstream.handled >= 40)
    assert sorted(downstream.done["slow"]) == list(range(20))
    assert sorted(downstream.done["k"]) == list(range(100, 120))


def test_a_burst_waits_for_a_breaker_and_ends_when_all_is_done(app: QFrame) -> None:
    topic = Topic("events", slots=1)
    downstream = Downstream()
    downstream.away.set()

    def hear(name: str, _: dict[str, Any]) -> None:
        if name == "consumer.probing":
            downstream.away.clear()

    app.events.listen(hear)
    app.consumer(topic, "g", breaker=Breaker(1, pause="50ms"), backoff=SOON)(downstream.call)
    app.publish_many(topic, range(10))
    app.run(burst=True)
    assert downstream.handled == 10


def test_a_burst_ends_beside_an_open_breaker_where_nothing_is_left(app: QFrame) -> None:
    topic = Topic("events", slots=8)
    seen: list[int] = []

    # Fewer in flight than there are slots: a probe's pull cannot ask all of them.
    @app.consumer(topic, "g", at_most_once=True, max_in_flight=3, breaker=Breaker(1, pause="10ms"))
    def fail(message: Message) -> None:
        seen.append(message.body)
        raise ConnectionError("the other side is away")

    app.publish_many(topic, range(5))
    worker = threading.Thread(target=lambda: app.run(burst=True), daemon=True)
    worker.start()
    eventually(lambda: not worker.is_alive())
    assert sorted(seen) == [0, 1, 2, 3, 4]
