"""The handler, as any team would write it, and the table that it keeps."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Engine, create_engine, event, text

from examples.flights_spark.flights import FLIGHTS, Flight
from qframe import Message, NeedRetry, QFrame, TransactionalChecker

GROUP = "statistics"
TABLE = text(
    "CREATE TABLE IF NOT EXISTS days (day VARCHAR(10), airport VARCHAR(3), departures INTEGER, "
    "cancelled INTEGER, delay INTEGER, miles INTEGER, PRIMARY KEY (day, airport))"
)
COUNT = text(
    "INSERT INTO days VALUES (:day, :airport, 1, :cancelled, :delay, :miles) "
    "ON CONFLICT (day, airport) DO UPDATE SET departures = days.departures + 1, "
    "cancelled = days.cancelled + :cancelled, delay = days.delay + :delay, "
    "miles = days.miles + :miles"
)
DAYS = text("SELECT day, airport, departures, cancelled, delay, miles FROM days")


def database(url: str) -> Engine:
    """The handlers' database; SQLite as a file that a commit appends to."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def on_connect(connection: sqlite3.Connection, _: object) -> None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")

    return engine


def register(app: QFrame, engine: Engine) -> None:
    """Makes the table, and registers the handler with an app."""
    with engine.begin() as connection:
        connection.execute(TABLE)
    app.checker("days", TransactionalChecker(engine))

    @app.consumer(FLIGHTS, group=GROUP, idempotent_checker="days")
    def count(flight: Flight, message: Message, connection: Connection) -> None:
        """Adds a departure to its day's totals, once, however often it is delivered."""
        connection.execute(
            COUNT,
            {
                "day": flight.day,
                "airport": flight.airport,
                "cancelled": int(flight.delay is None),
                "delay": flight.delay or 0,
                "miles": flight.miles,
            },
        )
        if message.attempt == 1 and hash_of(message.id) % 997 == 0:
            raise NeedRetry("on purpose, after the row was written", delay="100ms")


def hash_of(message_id: str) -> int:
    """A number that is the same in every process."""
    return int(message_id[-8:], 16)


def counted(engine: Engine) -> set[tuple[object, ...]]:
    """The table's rows."""
    with engine.begin() as connection:
        return {tuple(row) for row in connection.execute(DAYS)}
