"""The demo's own database: what the two handlers write."""

from __future__ import annotations

import os
import sqlite3
import threading
from functools import lru_cache

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
)
from sqlalchemy.dialects.sqlite import insert

metadata = MetaData()
airports = Table(
    "airports",
    metadata,
    Column("airport", String, primary_key=True),
    *[Column(name, Integer, default=0) for name in ("departures", "cancelled", "delay", "miles")],
)
planes = Table(
    "planes",
    metadata,
    Column("plane", String, primary_key=True),
    *[Column(name, Integer, default=0) for name in ("departures", "violations")],
    Column("last", String),
)
applied = Table(
    "applied",
    metadata,
    Column("group", String, primary_key=True),
    Column("message", String, primary_key=True),
)


_new_airport = insert(airports)
COUNT_DEPARTURE = _new_airport.on_conflict_do_update(
    index_elements=["airport"],
    set_={
        name: airports.c[name] + _new_airport.excluded[name]
        for name in ("departures", "cancelled", "delay", "miles")
    },
)
_new_plane = insert(planes)
FOLLOW_PLANE = _new_plane.on_conflict_do_update(
    index_elements=["plane"],
    set_={
        "departures": planes.c.departures + 1,
        "last": _new_plane.excluded.last,
        "violations": planes.c.violations + (planes.c.last > _new_plane.excluded.last),
    },
)
NOTE = insert(applied).on_conflict_do_nothing()


_opening = threading.Lock()


def database() -> Engine:
    """The database of `FLIGHTS_DATABASE`, its tables made if need be."""
    with _opening:  # all threads ask for it at once; a cache alone would make one for each
        return _open()


@lru_cache(maxsize=1)
def _open() -> Engine:
    """SQLite has one writer at a time, so a pool of one connection is the queue for it."""
    url = os.environ.get("FLIGHTS_DATABASE", "sqlite:///flights-statistics.db")
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=60)

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    metadata.create_all(engine)
    return engine


def is_new(connection: Connection, group: str, message_id: str) -> bool:
    """Whether a group has not applied a message yet; it is noted in the same transaction."""
    return connection.execute(NOTE, {"group": group, "message": message_id}).rowcount == 1
