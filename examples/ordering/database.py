"""The database of those who handle payments: a table for each way."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Engine, MetaData, Table, create_engine, event, select

metadata = MetaData()


def open_database(folder: Path) -> Engine:
    """SQLite has one writer at a time, so a pool of one connection is the queue for it."""
    url = f"sqlite:///{folder / 'payments.db'}"
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=60)

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    metadata.create_all(engine)
    return engine


def column_of(engine: Engine, table: Table, name: str) -> dict[str, object]:
    """The value of a column for each payment."""
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(select(table.c.id, table.c[name]))}
