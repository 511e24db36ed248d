"""`python -m benchmarks.capacity`: the bytes that a waiting message takes in each store.

It publishes messages with bodies of about 100 bytes, each with a key of its own unless --keys says
otherwise, and reads the size of the store before and after, and again at each further count. On
Redis that is `used_memory`; on databases the size of the tables and indexes, from their catalogues,
or of the file. Then it reads how long `admin.topics` takes, which an operator looks at first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from benchmarks.mariadb_server import MariaDbServer
from benchmarks.postgres_server import PostgresServer
from benchmarks.redis_server import RedisServer
from benchmarks.report import machine
from benchmarks.workload import PUBLISH, body
from qframe import Message, Outgoing, QFrame, Topic
from qframe.drivers.sql import Database, Statement

STORES = ("redis", "sqlite", "postgres")
CHUNK = 10_000
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
_SIZES = {
    "postgresql": "SELECT pg_database_size(current_database())",
    "mariadb": "SELECT SUM(data_length + index_length) FROM information_schema.tables"
    " WHERE table_schema = DATABASE()",
}


def main() -> None:
    """Measures what the command line asks for, and prints one JSON object for each count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--stores", nargs="+", default=STORES, help="of " + ", ".join(STORES))
    parser.add_argument("--store", help="the URL of an empty store instead, such as a MariaDB's")
    parser.add_argument("--kinds", nargs="+", default=("stream", "ordered"))
    parser.add_argument("--counts", nargs="+", type=int, default=(100_000, 1_000_000))
    parser.add_argument("--slots", type=int, default=16)
    options = parser.parse_args()
    print(json.dumps({"machine": machine()}))
    for kind in options.kinds:
        if options.store:
            measure(options.store, kind, options)
            continue
        for name in options.stores:
            with opened(name) as url:
                measure(url, kind, options)


@contextmanager
def opened(name: str) -> Iterator[str]:
    """The URL of an empty store of a sort."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "sqlite":
            yield f"sqlite:///{folder}/capacity.db?synchronous=normal"
        elif name == "postgres":
            with PostgresServer() as postgres:
                yield postgres.new_database()
        elif name == "mariadb":
            with MariaDbServer() as mariadb:
                yield mariadb.new_database()
        else:
            with RedisServer() as redis:
                yield redis.url


def measure(url: str, kind: str, options: argparse.Namespace) -> None:
    """Publishes up to each count, and prints what a message has cost by then."""
    topic = Topic(f"capacity-{kind}", kind=kind, slots=options.slots)
    with QFrame(url) as app:

        @app.consumer(topic, group="g")
        def handle(message: Message) -> None:
            """Nobody handles anything: the messages wait."""

        app.declare(topic)
        size_of = meter(url)
        before, done = size_of(), 0
        for count in sorted(options.counts):
            publish(app, topic, done, count)
            done = count
            began = time.perf_counter()
            topics = app.admin.topics()
            took_s = time.perf_counter() - began
            [found] = [each for each in topics if each.name == topic.name]
            assert found.groups[0].todo == count
            each = (size_of() - before) / count
            print(json.dumps({
                "store": url.partition(":")[0], "kind": kind, "slots": options.slots,
                "waiting": count, "bytes_each": round(each, 1),
                "topics_ms": round(took_s * 1000, 1),
            }), flush=True)  # fmt: skip


def publish(app: QFrame, topic: Topic, first: int, end: int) -> None:
    """Publishes the messages of these numbers, each with a key of its own."""
    for start in range(first, end, CHUNK):
        messages = [
            Outgoing(body(number), key=f"k{number}")
            for number in range(start, min(end, start + CHUNK))
        ]
        app.publish_many(topic, messages, batch=PUBLISH)


def meter(url: str) -> Callable[[], int]:
    """Reads the bytes that the store takes now."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme == "sqlite":
        path = Path(url.removeprefix("sqlite:///").partition("?")[0])
        return lambda: sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    if scheme == "redis":
        import redis

        client = redis.Redis.from_url(url)
        return lambda: int(client.info("memory")["used_memory"])
    database = Database(url)

    def size() -> int:
        name = database.backend.dialect.name
        if name != "postgresql":
            tables = (
                "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
            )
            for (table,) in rows(database, tables):
                rows(database, f"ANALYZE TABLE {table}")
        return int(
            rows(database, _SIZES["postgresql" if name == "postgresql" else "mariadb"])[0][0]
        )

    return size


def rows(database: Database, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    return database.read_autocommit(
        lambda transaction: transaction.rows(Statement(text(query), ""))
    )


if __name__ == "__main__":
    main()
