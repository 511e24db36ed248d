"""The effects of handlers under a TransactionalChecker: one row for each, and what they must be.

The table has no unique constraint: whatever happens twice is seen there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

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
    select,
)
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from qframe import Message

# A worker that is frozen in its transaction holds the one lock that SQLite has.
PATIENT = {"timeout": 60}

metadata = MetaData()
effects = Table(
    "effects",
    metadata,
    Column("row", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("message", String(64), nullable=False),
    Column("key", String(16), nullable=False),
    Column("number", Integer, nullable=False),
)


class Effect(NamedTuple):
    """What a handler has written for a message; rows are in the order of writing."""

    message: str
    key: str
    number: int


def engine_for(url: str) -> Engine:
    """A worker's engine."""
    given = PATIENT if url.startswith("sqlite") else {}
    return create_engine(url, pool_size=32, connect_args=given)


def async_engine_for(url: str) -> AsyncEngine:
    """The engine of a worker whose handlers are async."""
    given = PATIENT if url.startswith("sqlite") else {}
    url = url.replace("sqlite:", "sqlite+aiosqlite:")
    return create_async_engine(url, pool_size=100, connect_args=given)


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """An engine for a look, disposed of afterwards."""
    engine = engine_for(url)
    try:
        yield engine
    finally:
        engine.dispose()


def prepare(url: str) -> None:
    """Makes the table."""
    with opened(url) as engine:
        metadata.create_all(engine)


def written(message: Message) -> Insert:
    """The statement that writes a message's effect."""
    return effects.insert().values(message=message.id, key=message.key, number=message.body)


def read(url: str) -> list[Effect]:
    """All effects, in the order of writing."""
    columns = (effects.c.message, effects.c.key, effects.c.number)
    with opened(url) as engine, engine.connect() as connection:
        rows = connection.execute(select(*columns).order_by(effects.c.row))
        return [Effect(*row) for row in rows]


def not_once(found: Sequence[Effect], expected: Collection[str]) -> list[str]:
    """Messages whose effect is missing, or is there twice or more."""
    counts = Counter(effect.message for effect in found)
    wrong = [f"{message} has no effect" for message in expected if not counts[message]]
    return wrong + [
        f"{message} has {count} effects" for message, count in counts.items() if count > 1
    ]


def disordered(found: Sequence[Effect]) -> list[str]:
    """Effects that were written behind that of a later message of their key."""
    last: dict[str, int] = {}
    wrong = []
    for effect in found:
        if effect.number < last.get(effect.key, -1):
            wrong.append(f"{effect.key}: {effect.number} was written after {last[effect.key]}")
        last[effect.key] = max(effect.number, last.get(effect.key, -1))
    return wrong
