"""A worker whose handlers write one row for each message, and which ends itself at a named moment.

The rows' table has no unique constraint: whatever happens twice is seen there.
"""

from __future__ import annotations

import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import psycopg  # noqa: F401 - each worker would import it
import pymysql  # noqa: F401 - the same
from history import STARTED, History
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Insert,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
)
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import qframe.app.assembly
import qframe.stores.redis.store
import qframe.stores.sql.store  # noqa: F401 - the same
from qframe import (
    Batch,
    DatabaseChecker,
    Message,
    QFrame,
    RedisChecker,
    Topic,
    TransactionalChecker,
)

GROUP = "effectors"
TOPIC = Topic("effects", kind="stream", slots=8)
LEASE_S = 2.0
DUPLICATE = "delivery.duplicate"
CLAIMED = "delivery.claimed"
COMMITTING = "effect.committing"
COMMITTED = "effect.committed"
TOLD = (CLAIMED, COMMITTING, COMMITTED, DUPLICATE)

SINGLY, BATCH, ASYNC, ASYNC_BATCH = "singly", "batch", "async", "async batch"
SIZE, WITHIN = 16, "20ms"

PULLED = "pulled"
INSIDE = "inside"
MOMENTS = (PULLED, CLAIMED, INSIDE, COMMITTING, COMMITTED)
"""After the pull, the claim, the handler's write; before the commit, and between it and the ack."""

metadata = MetaData()
happened = Table(
    "happened",
    metadata,
    Column("row", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("worker", String(40), nullable=False),
)


class Fate:
    """Ends the process when a moment has come so many times."""

    def __init__(self, moment: str, times: int) -> None:
        self._moment = moment
        self._left = count(1)
        self._times = times

    def at(self, moment: str) -> None:
        """That moment is now."""
        if moment == self._moment and next(self._left) == self._times:
            os.kill(os.getpid(), signal.SIGKILL)


def checker_of(kind: str, engine: Any, redis: str) -> Any:
    """The checker of a kind; the effect is that of the body's number, whatever the message's id."""
    if kind == "redis":
        return RedisChecker(redis, key="number", ttl="14d")
    made = TransactionalChecker if kind == "transactional" else DatabaseChecker
    return made(engine, key="number")


def engine_of(database: str, manner: str) -> Any:
    """What a handler's session is of."""
    if manner in (ASYNC, ASYNC_BATCH):
        url = database.replace("sqlite:", "sqlite+aiosqlite:")
        return create_async_engine(url, pool_size=100, pool_pre_ping=True)
    return create_engine(database, pool_size=16, pool_pre_ping=True)


def tell_of_claims(checker: Any, fate: Fate) -> None:
    """Has a moment come whenever something is about to be claimed."""
    for name in ("claim_many", "claim_together"):
        if hasattr(checker, name):
            claim = getattr(checker, name)

            def told(*arguments: Any, claim: Any = claim) -> None:
                fate.at(PULLED)
                claim(*arguments)

            setattr(checker, name, told)


def handler_of(manner: str, kind: str, write: Any, engine: Engine) -> Any:
    """A handler that writes for each of its messages: in the checker's transaction, or beside."""

    def within(message: Message, session: Session) -> None:
        session.execute(write(message))

    def beside(message: Message) -> None:
        with engine.begin() as connection:
            connection.execute(write(message))

    async def awaited(message: Message, session: AsyncSession) -> None:
        await session.execute(write(message))

    def batch_within(messages: list[Message], session: Session) -> None:
        for message in messages:
            session.execute(write(message))

    def batch_beside(messages: list[Message]) -> None:
        for message in messages:
            beside(message)

    async def batch_awaited(messages: list[Message], session: AsyncSession) -> None:
        for message in messages:
            await session.execute(write(message))

    is_within = kind == "transactional"
    return {
        SINGLY: within if is_within else beside, ASYNC: awaited, ASYNC_BATCH: batch_awaited,
        BATCH: batch_within if is_within else batch_beside,
    }[manner]  # fmt: skip


def work(
    store: str, database: str, redis: str, kind: str, manner: str, path: str, name: str,
    moment: str, times: str,
) -> None:  # fmt: skip
    """Serves until its moment has come, or until all is done where there is none."""
    fate = Fate(moment, int(times))
    engine = engine_of(database, manner)
    checker = checker_of(kind, engine, redis)
    tell_of_claims(checker, fate)
    batch = None
    if manner in (BATCH, ASYNC_BATCH):
        batch = Batch(SIZE, within=WITHIN)
    with History(Path(path), name) as history, QFrame(store=store, session_timeout=1) as app:

        def listen(event: str, facts: dict[str, Any]) -> None:
            if event in TOLD:
                history.note(event, id=facts["id"])
            fate.at(event)

        app.events.listen(listen)

        def write(message: Message) -> Insert:
            history.note(STARTED, id=message.id)
            fate.at(INSIDE)
            return happened.insert().values(number=message.body["number"], worker=name)

        app.consumer(
            TOPIC, group=GROUP, idempotent_checker=checker, lease=LEASE_S, backoff=0.1,
            max_attempts=1000, batch=batch,
        )(handler_of(manner, kind, write, engine))  # fmt: skip
        app.run(burst=not moment)
    if manner not in (ASYNC, ASYNC_BATCH):
        engine.dispose()  # an async one's connections the worker has closed, in their own loop
