"""Consumers of batches, in workers with threads and event loops, on real stores and databases."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apps
import pytest
from apps import audited, running
from checking import MARKING, TRANSACTIONAL, checker_of, database_url
from eventually import eventually
from servers import RedisServer
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from qframe import (
    Backoff,
    Batch,
    HandlerTimeout,
    Message,
    Outgoing,
    QFrame,
    Topic,
    TransactionalChecker,
)

SOON = Backoff(first=0.01, cap=0.05)
STREAM = Topic("stream", slots=4)


class Shop(apps.Shop):
    """An app whose handlers take batches, and their calls."""

    def __init__(self, store: str, **options: Any) -> None:
        super().__init__(store, **{"namespace": f"n{uuid.uuid4().hex}", **options})
        self.calls: list[list[Any]] = []

    @property
    def bodies(self) -> list[Any]:
        return [body for call in self.calls for body in call]

    def note(self, messages: list[Message]) -> None:
        self.calls.append([message.body for message in messages])

    def consume(self, handler: Any, batch: Batch, topic: Topic = STREAM, **options: Any) -> None:
        options = {"threads": 3, "backoff": SOON, **options}
        self.app.consumer(topic, "g", batch=batch, **options)(handler)

    def dead_bodies(self, topic: Topic = STREAM) -> list[Any]:
        return sorted(json.loads(each.body) for each in self.dead(topic))


@pytest.fixture(params=["sqlite", "redis"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path / 'queue.db'}?synchronous=normal"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        url = server.url
    with audited(Shop(url)) as shop:
        yield shop


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Shop]:
    with audited(Shop(f"sqlite:///{tmp_path / 'queue.db'}?synchronous=normal")) as shop:
        yield shop


@pytest.mark.promise(3, 4)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_serial_consumer_has_no_slot_in_two_batches_at_once_and_keeps_every_order(
    shop: Shop, kind: str
) -> None:
    topic = Topic(f"t-{kind}", kind=kind, slots=4)
    guard = threading.Lock()
    running: Counter[Any] = Counter()
    overlaps: list[Any] = []
    seen: list[tuple[str | None, int]] = []

    def handle(messages: list[Message]) -> None:
        lanes = {message.slot for message in messages}
        with guard:
            running.update(lanes)
            overlaps.extend(lane for lane in lanes if running[lane] > 1)
            seen.extend((message.key, message.body) for message in messages)
        threading.Event().wait(0.002)
        with guard:
            running.subtract(lanes)

    shop.consume(handle, Batch(16, "10ms"), topic, serial=True)
    keys = [f"k{number % 9}" for number in range(400)]
    shop.app.publish_many(topic, [Outgoing(i, key=key) for i, key in enumerate(keys)])
    shop.app.run(burst=True)
    assert sorted(body for _, body in seen) == list(range(400))
    assert overlaps == []
    for key in set(keys):
        own = [body for each, body in seen if each == key]
        assert own == sorted(own)
    assert shop.events["delivery.stale"] == 0


def test_a_batch_that_is_not_full_is_handed_out_when_its_time_has_come(shop: Shop) -> None:
    shop.consume(shop.note, Batch(1000, "50ms"))
    shop.app.declare(STREAM)
    shop.start()
    shop.app.publish_many(STREAM, range(3))
    assert eventually(lambda: sorted(shop.bodies) == [0, 1, 2])


def test_a_full_batch_waits_for_no_time_and_a_burst_for_no_batch(small: Shop) -> None:
    small.consume(small.note, Batch(10, "1h"))
    small.app.publish_many(STREAM, range(25))
    small.app.run(burst=True)
    assert sorted(small.bodies) == list(range(25))
    assert [len(call) for call in small.calls] == [10, 10, 5] or len(small.calls) > 3


@pytest.mark.gate
@pytest.mark.promise(9)
def test_what_was_gathered_is_given_back_uncounted_by_a_stop(shop: Shop) -> None:
    shop.consume(shop.note, Batch(40, "1h"))
    shop.app.publish_many(STREAM, range(100))  # a worker begins with little, and hands that out
    shop.start()
    eventually(lambda: len(shop.bodies) >= 60)
    left = 100 - len(shop.bodies)
    eventually(lambda: sum(each.doing for each in shop.app.store.stats(STREAM, "g")) == left)
    shop.stop()
    attempts: list[int] = []
    left = 100 - len(shop.bodies)
    with QFrame(shop.app.settings.store, namespace=shop.app.settings.namespace) as app:

        @app.consumer(STREAM, "g")
        def handle(message: Message) -> None:
            attempts.append(message.attempt)

        app.run(burst=True)
    assert attempts == [1] * left


def test_what_was_gathered_is_kept_for_longer_than_its_lease(small: Shop) -> None:
    small.consume(small.note, Batch(1000, "3s"), lease="2s")
    small.app.publish_many(STREAM, range(5))
    small.start()
    eventually(lambda: sorted(small.bodies) == list(range(5)))
    small.stop()
    assert small.events["delivery.lost"] == 0
    assert small.events["delivery.cancelled"] == 0


def test_a_batch_does_not_wait_for_messages_that_there_is_no_room_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queue.db'}?synchronous=normal"
    with QFrame(url, max_in_flight_bytes=65_536) as app:

        @app.consumer(STREAM, "g", batch=Batch(100, "1h"))
        def handle(messages: list[Message]) -> None: ...

        app.publish_many(STREAM, ["x" * 20_000] * 12)
        with running(app):
            eventually(lambda: app.admin.lag(STREAM, "g") < 3)
        assert app.store.verify(STREAM) == []


def engine_with_table(request: pytest.FixtureRequest, database: str, folder: Path) -> Engine:
    """An engine for a table that refuses what has no number; it keeps no connection."""
    engine = create_engine(database_url(request, database, folder), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE done (number INTEGER NOT NULL)"))
    return engine


@pytest.mark.promise(6, 7)
@pytest.mark.parametrize("name", [*MARKING, *TRANSACTIONAL])
def test_one_poison_message_dies_and_all_others_are_done_once(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    database = name.rpartition("-")[2] if "-" in name else "sqlite"
    engine = engine_with_table(request, database, tmp_path)
    insert = text("INSERT INTO done VALUES (:number)")

    def write(connection: Connection, messages: list[Message]) -> None:
        # The database itself refuses what is poison.
        rows = [{"number": None if one.body % 50 == 7 else one.body} for one in messages]
        connection.execute(insert, rows)

    def in_transaction(messages: list[Message], connection: Connection) -> None:
        small.note(messages)
        write(connection, messages)

    def alone(messages: list[Message]) -> None:
        small.note(messages)
        with engine.begin() as connection:
            write(connection, messages)

    def run(checker: Any, handler: Any) -> None:
        small.consume(handler, Batch(40, "20ms"), max_attempts=2, idempotent_checker=checker)
        items = [Outgoing(number, key=f"k{number % 7}") for number in range(200)]
        small.app.publish_many(STREAM, items)
        small.app.run(burst=True)

    if name in TRANSACTIONAL:
        run(TransactionalChecker(engine), in_transaction)
    else:
        with checker_of(request, name, tmp_path) as checker:
            run(checker, alone)
    poison = [7, 57, 107, 157]
    assert small.dead_bodies() == poison
    with engine.connect() as connection:
        done = sorted(connection.execute(text("SELECT number FROM done")).scalars())
    assert done == [number for number in range(200) if number not in poison]
    assert any(isinstance(error, IntegrityError) for error in small.errors)


@pytest.mark.parametrize("name", ["redis", "database-postgres", "transactional-postgres"])
def test_what_another_batch_has_in_hand_waits_and_the_others_go_on(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    gate = threading.Event()
    topic = Topic("one-slot", slots=1)

    def slow(messages: list[Message]) -> None:
        small.note(messages)
        eventually(gate.is_set)

    def in_transaction(messages: list[Message], connection: Connection) -> None:
        slow(messages)

    with checker_of(request, name, tmp_path, key=lambda message: message.body) as checker:
        small.consume(
            in_transaction if name in TRANSACTIONAL else slow, Batch(10, "20ms"), topic,
            threads=2, idempotent_checker=checker,
        )  # fmt: skip
        small.app.publish(topic, 1)
        small.start()
        eventually(lambda: small.calls == [[1]])
        small.app.publish_many(topic, [1, 2, 3])
        eventually(lambda: small.events["delivery.awaited"] > 0)
        eventually(lambda: sorted(small.bodies) == [1, 2, 3])
        gate.set()
        eventually(lambda: small.app.admin.lag(topic, "g") == 0)
        small.stop()
    assert sorted(small.bodies) == [1, 2, 3]
    assert small.events["delivery.duplicate"] == 1


def test_a_batch_that_takes_too_long_is_halved_and_what_takes_too_long_alone_is_retried(
    small: Shop,
) -> None:
    def handle(messages: list[Message]) -> None:
        small.note(messages)
        if any(message.body == 2 and message.attempt == 1 for message in messages):
            eventually(lambda: all(message.cancelled for message in messages))

    small.consume(handle, Batch(4, "1h"), timeout="100ms", threads=1)
    small.app.publish_many(STREAM, [Outgoing(number, key="k") for number in range(4)])
    small.app.run(burst=True)
    assert Counter(small.bodies)[2] >= 2
    assert small.app.admin.lag(STREAM, "g") == 0
    retried = [error for error in small.errors if isinstance(error, HandlerTimeout)]
    assert len(retried) == 1
    assert small.events["delivery.retried"] == 1


@pytest.mark.promise(9)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_gives_a_running_batch_its_grace_and_then_gives_it_back(
    tmp_path: Path, is_async: bool
) -> None:
    begun, gate = threading.Event(), threading.Event()
    ended: list[str] = []
    shop = Shop(f"sqlite:///{tmp_path / 'queue.db'}?synchronous=normal", grace=0.2)

    def handle(messages: list[Message]) -> None:
        begun.set()
        gate.wait(60)

    async def handle_async(messages: list[Message]) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    shop.consume(handle_async if is_async else handle, Batch(10, "10ms"), threads=1)
    with shop.app:
        shop.app.publish_many(STREAM, range(4))
        shop.start()
        begun.wait(60)
        shop.stop()
        assert ended == ["cancelled"] * is_async
        assert shop.app.admin.lag(STREAM, "g") == 4
        assert sum(each.doing for each in shop.app.store.stats(STREAM, "g")) == 0
        assert shop.dead_bodies() == []
        gate.set()
        assert shop.app.store.verify(STREAM) == []


def test_a_batch_whose_transaction_outlasts_the_grace_is_given_back_and_not_committed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    begun, gate, calls = threading.Event(), threading.Event(), []

    def handle(messages: list[Message], connection: Connection) -> None:
        calls.append([message.attempt for message in messages])
        begun.set()
        gate.wait(60)

    engine = engine_with_table(request, "sqlite", tmp_path)
    shop = Shop(f"sqlite:///{tmp_path / 'queue.db'}?synchronous=normal", grace=0.2)
    shop.consume(
        handle, Batch(1, "10ms"), threads=1, idempotent_checker=TransactionalChecker(engine)
    )
    with shop.app:
        shop.app.publish(STREAM, 1)
        shop.start()
        begun.wait(60)
        shop.stop()
        assert sum(each.doing for each in shop.app.store.stats(STREAM, "g")) == 0
        gate.set()
        shop.app.run(burst=True)
    assert calls == [[1], [1]]


# Async handlers.


def test_an_async_batch_that_takes_too_long_is_cancelled_and_halved(small: Shop) -> None:
    cancelled: list[int] = []

    async def handle(messages: list[Message]) -> None:
        small.note(messages)
        if any(message.body == 1 and message.attempt == 1 for message in messages):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(len(messages))
                raise

    small.consume(handle, Batch(2, "1h"), timeout="1s", threads=1)
    small.app.publish_many(STREAM, [Outgoing(number, key="k") for number in range(2)])
    small.app.run(burst=True)
    assert cancelled[-1] == 1
    assert small.app.admin.lag(STREAM, "g") == 0
    assert small.events["delivery.retried"] == 1


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_an_async_session_is_the_transaction_of_a_batch(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, database: str
) -> None:
    engine = engine_with_table(request, database, tmp_path)
    url = engine.url.render_as_string(False).replace("sqlite:", "sqlite+aiosqlite:")
    checker = TransactionalChecker(create_async_engine(url))

    async def handle(messages: list[Message], session: AsyncSession) -> None:
        small.note(messages)
        rows = [{"number": None if one.body == 7 else one.body} for one in messages]
        await session.execute(text("INSERT INTO done VALUES (:number)"), rows)

    small.consume(handle, Batch(8, "10ms"), max_attempts=2, idempotent_checker=checker)
    small.app.publish_many(STREAM, range(40))
    small.app.run(burst=True)
    assert small.dead_bodies() == [7]
    with engine.connect() as connection:
        done = sorted(connection.execute(text("SELECT number FROM done")).scalars())
    assert done == [number for number in range(40) if number != 7]
