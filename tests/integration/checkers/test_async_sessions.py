"""An async handler's changes, in a TransactionalChecker's transaction: once, or not at all."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import apps
import pytest
from apps import running
from eventually import eventually
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from qframe import (
    Backoff,
    BadHandler,
    CommitRefused,
    Message,
    NotSupported,
    Topic,
    TransactionalChecker,
)

TOPIC = Topic("payments", slots=2)
QUICK = Backoff(first=0.01, cap=0.05)
PAY = text("INSERT INTO paid (payment) VALUES (:payment)")


class Shop(apps.Shop):
    """A worker whose handlers pay, in tasks, and what was committed."""

    def __init__(self, folder: Path, url: str, async_url: str) -> None:
        super().__init__(f"sqlite:///{folder / 'queue.db'}")
        self.engine = create_engine(url)
        with self.engine.begin() as connection:
            # No unique constraint: what is done twice is seen twice.
            connection.execute(text("CREATE TABLE paid (payment VARCHAR(64))"))
        self.checker = TransactionalChecker(create_async_engine(async_url), key="payment")

    def consume(self, handler: Any, **options: Any) -> None:
        options = {"threads": 4, "backoff": QUICK, "max_attempts": 3, **options}
        self.app.consumer(TOPIC, "g", idempotent_checker=self.checker, **options)(handler)

    def publish(self, *payments: str) -> None:
        for payment in payments:
            self.app.publish(TOPIC, {"payment": payment})

    def paid(self) -> Counter[str]:
        with self.engine.connect() as connection:
            return Counter(connection.execute(text("SELECT payment FROM paid")).scalars())


DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "psycopg": ("postgres", "postgresql+psycopg"),
    "asyncpg": ("postgres", "postgresql+asyncpg"),
    "aiomysql": ("mariadb", "mysql+aiomysql"),
}
GATED = (pytest.param("sqlite", marks=pytest.mark.gate), *list(DRIVERS)[1:])


@pytest.fixture(params=DRIVERS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    server, scheme = DRIVERS[request.param]
    url = f"sqlite:///{tmp_path / f'{uuid.uuid4().hex}.db'}"
    if server != "sqlite":
        url = request.getfixturevalue(server).new_database()
    made = Shop(tmp_path, url, f"{scheme}:{url.partition(':')[2]}")
    with apps.audited(made):
        yield made
    made.engine.dispose()


async def pay(message: Message, session: AsyncSession) -> None:
    await session.execute(PAY, message.body)


async def pay_by_connection(message: Message, connection: AsyncConnection) -> None:
    await connection.execute(PAY, message.body)


@pytest.mark.promise(2)
@pytest.mark.parametrize("shop", GATED, indirect=True)
@pytest.mark.parametrize("handler", [pay, pay_by_connection])
def test_what_comes_twice_is_changed_once(shop: Shop, handler: Any) -> None:
    shop.consume(handler)
    names = [f"p{number}" for number in range(20)]
    shop.publish(*names, *names)
    shop.app.run(burst=True)
    assert shop.paid() == dict.fromkeys(names, 1)
    assert not shop.errors


@pytest.mark.promise(2)
def test_what_raises_is_cancelled_or_is_not_settled_leaves_nothing_behind(shop: Shop) -> None:
    async def fails(message: Message, session: AsyncSession) -> None:
        await session.execute(PAY, message.body)
        match message.body["payment"], message.attempt:
            case "raises", 1:
                raise OSError
            case "hangs", 1:
                await asyncio.sleep(600)
            case "takes over", 1:
                message.auto_ack = False
            case "acknowledges", 1:
                message.ack()
            case "commits", 1:
                await session.commit()

    names = ["raises", "hangs", "takes over", "acknowledges", "commits"]
    shop.consume(fails, timeout="3s")  # in which all but one end, on a busy machine too
    shop.publish(*names)
    shop.app.run(burst=True)
    assert shop.paid() == dict.fromkeys(names, 1)
    kinds = Counter(type(error) for error in shop.errors)
    assert (kinds[NotSupported], kinds[CommitRefused], kinds[OSError]) == (2, 1, 1)


@pytest.mark.promise(2)
@pytest.mark.parametrize("statement", ["SELECT nothing FROM nowhere", "ROLLBACK"])
def test_a_transaction_that_was_rolled_back_unseen_is_refused_and_done_by_the_next_attempt(
    shop: Shop, statement: str
) -> None:
    """PostgreSQL makes a rollback of the commit behind an error, and no error."""

    async def swallows(message: Message, session: AsyncSession) -> None:
        await session.execute(PAY, message.body)
        if message.attempt == 1:
            with suppress(DBAPIError):
                await session.execute(text(statement))

    shop.consume(swallows)
    shop.publish("a", "b")
    shop.app.run(burst=True)
    assert shop.paid() == {"a": 1, "b": 1}
    if statement == "ROLLBACK":
        assert [type(error) for error in shop.errors] == [CommitRefused] * 2


@pytest.mark.promise(2, 9)
def test_what_outlasts_the_grace_is_rolled_back_and_done_by_the_next_worker(shop: Shop) -> None:
    shop.app.parts.opened.settings = replace(shop.app.settings, grace=0.1)
    begun = threading.Event()

    async def slow(message: Message, session: AsyncSession) -> None:
        await session.execute(PAY, message.body)
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(600)

    shop.consume(slow)
    shop.publish("a")
    with running(shop.app):
        assert begun.wait(60)
    assert shop.paid() == {}
    shop.app.run(burst=True)
    assert shop.paid() == {"a": 1}


def test_an_effect_that_runs_elsewhere_is_waited_for_without_blocking_the_loop(shop: Shop) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def slow(message: Message, session: AsyncSession) -> None:
        payment = message.body["payment"]
        running[payment] += 1
        most[payment] = max(most[payment], running[payment])
        await session.execute(PAY, message.body)
        await asyncio.sleep(0.05)
        running[payment] -= 1

    shop.consume(slow)
    shop.publish("a", "a", "a", "b")
    shop.app.run(burst=True)
    assert shop.paid() == {"a": 1, "b": 1}
    assert most == {"a": 1, "b": 1}


def test_handler_annotation_and_engine_must_be_async_together(shop: Shop) -> None:
    plain = TransactionalChecker(shop.engine)

    def plain_handler(message: Message, session: Session) -> None: ...
    def plain_connection(message: Message, connection: Connection) -> None: ...
    def plain_function(message: Message, session: AsyncSession) -> None: ...
    async def wrong_session(message: Message, session: Session) -> None: ...
    async def no_session(message: Message) -> None: ...

    for handler, checker in (
        (plain_handler, shop.checker), (plain_connection, shop.checker),
        (plain_function, shop.checker), (plain_function, plain), (wrong_session, shop.checker),
        (wrong_session, plain), (pay, plain), (pay_by_connection, plain), (pay, None),
        (no_session, shop.checker), (no_session, plain),
    ):  # fmt: skip
        with pytest.raises(BadHandler):
            shop.app.consumer(TOPIC, "g", idempotent_checker=checker)(handler)


def test_a_worker_sweeps_what_may_be_forgotten_in_its_loop(shop: Shop) -> None:
    shop.consume(pay)
    shop.publish("a")
    shop.app.run(burst=True)
    with shop.engine.begin() as connection:
        connection.execute(text("UPDATE qframe_effects SET expires_at = 1"))

    def marks() -> int:
        with shop.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM qframe_effects")).scalar_one())

    with running(shop.app):
        eventually(lambda: marks() == 0)
