"""`python -m benchmarks.flusher`: messages into PostgreSQL, by a Flusher and one by one.

The same messages, from a Redis server of the benchmark's own, go into a table of a PostgreSQL
server of its own: once with an insert and a commit for each, by 8 threads with a connection each,
and once through `Flusher(500 rows, 50 ms)`, by one thread. PostgreSQL has each commit on its disk
before it answers, as it comes; `--fsync off` spares both ways that, and one by one the most. Each
way is measured from the start of the worker until nothing is left, in turns, and the ratio is
printed: it is to be 5 or more.
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from benchmarks import drive
from benchmarks.postgres_server import PostgresServer
from benchmarks.redis_server import RedisServer
from qframe import Flusher, Message, QFrame

COUNT = 100_000
ROWS = 500
INTERVAL = "50ms"
QUEUE = 3_000
BAR = 5.0

INSERT_ONE = "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
INSERT_MANY = (
    "INSERT INTO orders SELECT * FROM unnest(%s::text[], %s::int[], %s::text[])"
    " ON CONFLICT DO NOTHING"
)


class Orders:
    """A new table, and a connection to it for each thread that asks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._local = threading.local()
        self._made: list[psycopg.Connection] = []
        connection = self.connection
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id text PRIMARY KEY, number int, status text)")

    @property
    def connection(self) -> psycopg.Connection:
        """This thread's own; each statement is a transaction."""
        with suppress(AttributeError):
            return self._local.connection  # type: ignore[no-any-return]
        made = self._local.connection = psycopg.connect(self._url, autocommit=True)
        self._made.append(made)
        return made

    def insert(self, message: Message) -> None:
        """Writes one row."""
        body = message.body
        self.connection.execute(INSERT_ONE, (message.id, body["order"], body["status"]))

    def insert_many(self, messages: list[Message]) -> None:
        """Writes a row for each message, in one statement."""
        bodies = [message.body for message in messages]
        ids = [message.id for message in messages]
        numbers, states = [each["order"] for each in bodies], [each["status"] for each in bodies]
        self.connection.execute(INSERT_MANY, (ids, numbers, states))

    def count(self) -> int:
        """How many rows there are."""
        row = self.connection.execute("SELECT count(*) FROM orders").fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Closes all connections."""
        for each in self._made:
            each.close()


class Inserting(drive.Drain):
    """A consumer that does with each message what it is told to."""

    def __init__(self, app: QFrame, count: int, take: Callable[[Message], None]) -> None:
        self._take = take
        super().__init__(app, drive.topic_of("stream"), count)

    def handle(self, message: Message) -> None:
        """Hands the message on."""
        self._take(message)


def one_by_one(store: str, orders: Orders, count: int) -> float:
    """Messages a second with an insert and a commit for each."""
    with QFrame(store=store) as app:
        drain = Inserting(app, count, orders.insert)
        drive.publish(app, drain.topic, count)
        return count / drain.run()


def by_flusher(store: str, orders: Orders, count: int) -> float:
    """Messages a second through a Flusher."""
    with (
        QFrame(store=store) as app,
        Flusher("orders", ROWS, INTERVAL, QUEUE, 1, orders.insert_many) as flusher,
    ):

        def take(message: Message) -> None:
            message.auto_ack = False
            flusher.put(message)

        drain = Inserting(app, count, take)
        drive.publish(app, drain.topic, count)
        return count / drain.run()


WAYS = {"one by one": one_by_one, f"Flusher, {ROWS} rows or {INTERVAL}": by_flusher}


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flusher", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help=f"messages; {COUNT:,}")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--fsync", choices=("on", "off"), default="on")
    options = parser.parse_args()
    with RedisServer() as redis, PostgresServer(fsync=options.fsync) as postgres:
        url = postgres.new_database()
        rounds = [one_round(redis, url, options.count) for _ in range(options.rounds)]
    print(
        f"{options.count:,} messages from Redis into PostgreSQL, a row each, fsync {options.fsync}"
    )
    for way in WAYS:
        print(f"  {way:<28} {statistics.median(rates[way] for rates in rounds):>9,.0f}/s")
    slow, fast = WAYS
    ratio = statistics.median(rates[fast] / rates[slow] for rates in rounds)
    print(f"  ratio {ratio:.1f} (to be reached: {BAR:g})")


def one_round(redis: RedisServer, url: str, count: int) -> dict[str, float]:
    """Messages a second, by the way in which they went."""
    rates = {}
    for way, measure in WAYS.items():
        redis.empty()
        orders = Orders(url)
        rates[way] = measure(redis.url, orders, count)
        if orders.count() != count:
            raise SystemExit(f"{way}: {orders.count()} rows of {count}")
        orders.close()
    return rates


if __name__ == "__main__":
    main()
