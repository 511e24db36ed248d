"""Rows of many messages in one insert: a handler that gets batches, and one bad message among them.

    python -m examples.batch_consumer                    # SQLite, no other server
    python -m examples.batch_consumer redis://localhost  # or any store

It publishes 5,000 readings, one of which the table refuses, writes them 500 at a time or after
50 ms, whichever comes first, and then counts rows, calls of the handler and dead letters. Rows and
marks are committed together, so each reading is written once, whatever is killed.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Final

from sqlalchemy import Connection, create_engine, text

from examples import command_line
from qframe import Batch, Message, QFrame, Topic, TransactionalChecker

READINGS: Final = 5_000
BAD: Final = 3_333

readings = Topic("readings", slots=4)


def main(store: str | None) -> None:
    """Publishes, consumes, and tells what was written."""
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/readings.db")
        with engine.begin() as connection:
            connection.execute(
                text("CREATE TABLE readings (sensor INTEGER, celsius REAL NOT NULL)")
            )
        calls: list[int] = []
        with QFrame(store=store or f"sqlite:///{folder}/qframe.db") as app:

            @app.consumer(
                readings, group="table", batch=Batch(500, within="50ms"), max_attempts=1,
                idempotent_checker=TransactionalChecker(engine),
            )  # fmt: skip
            def write(messages: list[Message], connection: Connection) -> None:
                calls.append(len(messages))
                rows = [message.body for message in messages]
                connection.execute(text("INSERT INTO readings VALUES (:sensor, :celsius)"), rows)

            app.publish_many(
                readings,
                [
                    {"sensor": number, "celsius": None if number == BAD else number / 100}
                    for number in range(READINGS)
                ],
            )
            app.run(burst=True)
            dead = len(app.admin.dead(readings, "table"))
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT count(*) FROM readings")).scalar_one()
        engine.dispose()
    print(f"{rows} rows in {len(calls)} calls, {dead} dead")
    if (rows, dead) != (READINGS - 1, 1):
        sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, __doc__)
