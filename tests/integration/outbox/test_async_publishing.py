"""Publishing in the transactions of async sessions and connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from qframe import BadOption, Outbox, Topic

orders = Topic("orders", kind="ordered", slots=4)
DRIVERS = ("sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg")
AT_ONCE = 20  # more than a pool of the default size has connections


@pytest.fixture(params=DRIVERS)
def async_url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """An empty database's URL, with an async driver."""
    if request.param.startswith("sqlite"):
        return f"{request.param}:///{tmp_path}/business.db"
    url = make_url(request.getfixturevalue("postgres").new_database())
    return url.set(drivername=request.param).render_as_string(hide_password=False)


@asynccontextmanager
async def outbox_of(url: str) -> AsyncIterator[tuple[AsyncEngine, Outbox]]:
    """An engine and its outbox."""
    engine = create_async_engine(url)
    try:
        yield engine, Outbox(engine)
    finally:
        await engine.dispose()


async def pending(engine: AsyncEngine, outbox: Outbox) -> int:
    """How many wait, as an async program asks for it."""
    async with AsyncSession(engine) as session:
        return await session.run_sync(outbox.pending)


def scoped(engine: AsyncEngine) -> Any:
    return async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)


@pytest.mark.parametrize("shape", [AsyncSession, scoped, AsyncEngine.connect])
def test_what_an_async_transaction_commits_waits_and_what_it_rolls_back_does_not(
    async_url: str, shape: Callable[[AsyncEngine], Any]
) -> None:
    async def publish() -> int:
        async with outbox_of(async_url) as (engine, outbox):
            session = shape(engine)
            if isinstance(session, AsyncConnection):
                await session.start()
            await outbox.apublish(session, orders, 1, key="k")
            nested = await session.begin_nested()
            await outbox.apublish(session, orders, "never", key="k")
            await nested.rollback()
            await session.commit()
            await outbox.apublish(session, orders, "never", key="k")
            await session.rollback()
            await session.close()
            return await pending(engine, outbox)

    assert asyncio.run(publish()) == 1


def test_the_first_transactions_of_a_loop_may_publish_at_once(postgres: Any) -> None:
    """Each finds no tables, and all have the pool's connections."""
    url = make_url(postgres.new_database()).set(drivername="postgresql+asyncpg")

    async def publish() -> int:
        async with outbox_of(url.render_as_string(hide_password=False)) as (engine, outbox):

            async def one(number: int) -> None:
                async with AsyncSession(engine) as session:
                    await session.execute(text("SELECT 1"))
                    await outbox.apublish(session, orders, number, key=f"key-{number}")
                    await session.commit()

            await asyncio.gather(*map(one, range(AT_ONCE)))
            return await pending(engine, outbox)

    assert asyncio.run(publish()) == AT_ONCE


def test_the_first_publish_needs_one_connection_of_the_pool(postgres: Any) -> None:
    engine = create_engine(postgres.new_database(), pool_size=1, max_overflow=0, pool_timeout=0)
    outbox = Outbox(engine)
    with Session(engine) as session:
        outbox.publish(session, orders, 1, key="k")
        session.commit()
    assert outbox.pending() == 1
    engine.dispose()


def test_what_nobody_awaits_is_refused(async_url: str) -> None:
    async def ask() -> None:
        async with outbox_of(async_url) as (engine, outbox), AsyncSession(engine) as session:
            for wrong in (outbox.pending, outbox.create):
                with pytest.raises(BadOption, match="it is async"):
                    wrong()
            for wrong in (session, await session.connection()):
                with pytest.raises(BadOption, match="it is async"):
                    outbox.pending(wrong)
            with pytest.raises(BadOption, match="it is not async"):
                await outbox.apublish(session.sync_session, orders, 1, key="k")
            await session.run_sync(lambda _: outbox.create())
            assert await pending(engine, outbox) == 0

    asyncio.run(ask())
