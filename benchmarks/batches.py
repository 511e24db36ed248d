"""`python -m benchmarks.batches`: handlers that write rows, one by one and in batches.

The messages lie on a Redis server of the benchmark's own; the rows go into an SQLite file or a
PostgreSQL server of its own. Under a TransactionalChecker a handler of one message writes its row
into the transaction of that message, a handler of batches all rows into one. Without a checker
each call has a transaction of its own. Both pairs are measured in turn, in one run, and each pair's
ratio is printed: it is to be 5 or more.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, text

from benchmarks import checkers, drive, report
from benchmarks.checkers import INSERT, MAKE, Turn, by_connection, by_own_connection, row_of
from benchmarks.redis_server import RedisServer
from benchmarks.report import Row
from benchmarks.workload import THREADS
from qframe import Batch, Message, QFrame, TransactionalChecker

COUNT = 20_000
SINGLES = 5_000
SIZE = 500
WITHIN = "50ms"
BAR = "5"

Make = Callable[[Engine, Turn], Callable[..., None]]


def many_by_connection(messages: list[Message], connection: Connection) -> None:
    """Writes the rows of a batch by a connection that is given."""
    connection.execute(INSERT, [row_of(message) for message in messages])


def many_by_own_connection(engine: Engine, turn: Turn) -> Callable[..., None]:
    """Writes the rows of a batch in a transaction of its own."""

    def handle(messages: list[Message]) -> None:
        with turn, engine.begin() as connection:
            connection.execute(INSERT, [row_of(message) for message in messages])

    return handle


PAIRS: dict[str, tuple[Make, Make]] = {
    "TransactionalChecker": (lambda _e, _t: by_connection, lambda _e, _t: many_by_connection),
    "no checker": (by_own_connection, many_by_own_connection),
}


class Writing(drive.Drain):
    """A consumer whose handler writes, of one message or of a batch."""

    def __init__(
        self, app: QFrame, count: int, handler: Callable[..., None], **options: Any
    ) -> None:
        self._handler, self._options = handler, options
        super().__init__(app, drive.topic_of("stream"), count)

    def register(self) -> None:
        """Registers the handler as it is."""
        self.app.consumer(self.topic, group="g", threads=THREADS, **self._options)(self._handler)


def main() -> None:
    """Measures, prints, and writes the figures to benchmarks/results/batches.json."""
    options = parser().parse_args()
    rows: list[Row] = []
    with RedisServer() as redis:
        facts = {
            "count": options.count, "singles": options.singles, "size": SIZE,
            "rounds": options.rounds, "fsync": options.fsync, "synchronous": options.synchronous,
            "machine": report.machine() | {"redis": redis.version},
        }  # fmt: skip
        for name in options.databases:
            with checkers.database(name, options) as engine:
                rounds = [one_round(redis, engine, options) for _ in range(options.rounds)]
            found = [
                Row(
                    "batches", f"{name}, {pair}, batches of {SIZE}", "/s",
                    [each[pair, True] for each in rounds],
                    [each[pair, False] for each in rounds], ratio_bar=BAR,
                )
                for pair in PAIRS
            ]  # fmt: skip
            report.show(f"Batches: a row each into {name}; bare is one message at a time", found)
            rows += found
    print(f"written: {report.dump(facts | {'rows': report.facts_of(rows)}, 'batches.json')}")


def one_round(
    redis: RedisServer, engine: Engine, options: argparse.Namespace
) -> dict[tuple[str, bool], float]:
    """Messages a second, by the pair and by whether they came in batches."""
    turn: Turn = threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
    rates = {}
    for pair, makes in PAIRS.items():
        for is_batch, make in zip((False, True), makes, strict=True):
            count = options.count if is_batch else options.singles
            redis.empty()
            with engine.begin() as connection:
                connection.execute(text("DROP TABLE IF EXISTS paid"))
                connection.execute(text("DROP TABLE IF EXISTS qframe_effects"))
                connection.execute(text(MAKE))
            checker = TransactionalChecker(engine) if pair == "TransactionalChecker" else None
            batch = Batch(SIZE, within=WITHIN) if is_batch else None
            with QFrame(store=redis.url) as app:
                writing = Writing(
                    app, count, make(engine, turn), idempotent_checker=checker, batch=batch
                )
                drive.publish(app, writing.topic, count)
                rates[pair, is_batch] = count / writing.run()
            with engine.connect() as connection:
                written = connection.execute(text("SELECT count(*) FROM paid")).scalar_one()
            if written != count:
                raise SystemExit(f"{pair}: {written} rows of {count}")
    return rates


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    add = made.add_argument
    add("--count", type=int, default=COUNT, help="messages in batches")
    add("--singles", type=int, default=SINGLES, help="messages one by one")
    add("--rounds", type=int, default=3)
    add("--databases", nargs="+", choices=checkers.DATABASES, default=checkers.DATABASES)
    add("--synchronous", choices=("full", "normal"), default="full", help="of SQLite")
    add("--fsync", choices=("on", "off"), default="on", help="of PostgreSQL")
    add("--dir", help="where the databases are put; by default a temporary place")
    return made


if __name__ == "__main__":
    main()
