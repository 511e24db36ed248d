"""Rows of many messages in one insert: a handler puts its messages into a Flusher.

`examples/batch_consumer.py` does the same with `batch=` on the consumer, in fewer lines.

    python -m examples.batching                    # SQLite, no other server
    python -m examples.batching redis://localhost  # or any store

It publishes 5,000 readings, writes them into a table 500 at a time or after 50 ms, whichever comes
first, and then counts rows and inserts. A message is acknowledged with its batch: what was not
committed comes again, and its id keeps it from being written twice.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

from examples import command_line
from qframe import Flusher, Message, QFrame, Topic

READINGS = 5_000

readings = Topic("readings", slots=4)


class Table:
    """A table of readings, and how many inserts have filled it."""

    def __init__(self, path: Path) -> None:
        self.inserts = 0
        # One thread of the Flusher writes, and the main thread reads when that has ended.
        self._rows = sqlite3.connect(path, check_same_thread=False)
        self._rows.execute("CREATE TABLE readings (id TEXT PRIMARY KEY, celsius REAL)")

    def insert(self, messages: list[Message]) -> None:
        """Writes a batch in one transaction; if it raises, all its messages are retried."""
        with self._rows:
            self._rows.executemany(
                "INSERT OR IGNORE INTO readings VALUES (?, ?)",
                [(message.id, message.body["celsius"]) for message in messages],
            )
        self.inserts += 1

    def count(self) -> int:
        """How many rows there are."""
        [count] = self._rows.execute("SELECT count(*) FROM readings").fetchone()
        return int(count)

    def close(self) -> None:
        """Lets the file go."""
        self._rows.close()


def main(store: str | None) -> None:
    """Publishes, consumes, and tells what was written."""
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder) / "readings.db")
        with (
            QFrame(store=store or f"sqlite:///{folder}/qframe.db") as app,
            Flusher("readings", 500, "50ms", 3_000, 1, table.insert) as flusher,
        ):

            @app.consumer(readings, group="table", auto_ack=False)
            def store_reading(message: Message) -> None:
                flusher.put(message)

            app.publish_many(readings, [{"celsius": number / 100} for number in range(READINGS)])
            app.run(burst=True)
            lag = app.admin.lag(readings, "table")
        print(f"{table.count()} rows in {table.inserts} inserts, {lag} messages left")
        is_whole = table.count() == READINGS and lag == 0
        table.close()
    if not is_whole:
        sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, __doc__)
