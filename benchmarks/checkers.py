"""Measures the cost of an idempotent checker for a handler that writes one row, in one worker.

The messages lie on a Redis server of the benchmark's own; the rows go into an SQLite file or a
PostgreSQL server of its own. The bare writes are the same worker and the same insert in a
transaction of the handler's own, without a checker; with a mark of its own, too, the least that
somebody writes by hand who wants each effect once. On SQLite they take turns by a lock of the
process, as the TransactionalChecker does for its handlers: threads that find the file busy sleep,
and would look slower than they need be. All ways in turn, `--rounds` times; medians.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.orm import Session

from benchmarks import drive, report
from benchmarks.postgres_server import PostgresServer
from benchmarks.redis_server import RedisServer
from benchmarks.report import Row
from benchmarks.workload import THREADS
from qframe import DatabaseChecker, Message, QFrame, RedisChecker, TransactionalChecker

COUNT = 5_000
DATABASES = ("sqlite", "postgresql")
TRANSACTIONAL, DATABASE, REDIS = "0.8", "0.6", "0.7"  # of the bare writes, to be reached
MAKE = "CREATE TABLE IF NOT EXISTS paid (id VARCHAR(64) NOT NULL, number INTEGER NOT NULL)"
INSERT = text("INSERT INTO paid (id, number) VALUES (:id, :number)")
MAKE_MARKS = "CREATE TABLE IF NOT EXISTS marks (id VARCHAR(64) PRIMARY KEY)"
MARK = text("INSERT INTO marks (id) VALUES (:id) ON CONFLICT DO NOTHING")

Handler = Callable[..., None]
Turn = AbstractContextManager[Any]


def row_of(message: Message) -> dict[str, object]:
    """The row of a message."""
    return {"id": message.id, "number": message.body["order"]}


def by_connection(message: Message, connection: Connection) -> None:
    """Writes the row by a connection that is given."""
    connection.execute(INSERT, row_of(message))


def by_session(message: Message, session: Session) -> None:
    """Writes the row by a session that is given."""
    session.execute(INSERT, row_of(message))


def by_own_connection(engine: Engine, turn: Turn) -> Handler:
    """Writes the row in a transaction of its own."""

    def handle(message: Message) -> None:
        with turn, engine.begin() as connection:
            connection.execute(INSERT, row_of(message))

    return handle


def by_own_mark(engine: Engine, turn: Turn) -> Handler:
    """Writes the row and a mark in a transaction of its own: a checker by hand."""

    def handle(message: Message) -> None:
        with turn, engine.begin() as connection:
            if connection.execute(MARK, {"id": message.id}).rowcount:
                connection.execute(INSERT, row_of(message))

    return handle


def by_own_session(engine: Engine, turn: Turn) -> Handler:
    """Writes the row in a session of its own."""

    def handle(message: Message) -> None:
        with turn, Session(engine) as session, session.begin():
            session.execute(INSERT, row_of(message))

    return handle


class Way:
    """A handler and its checker, and what they are compared with."""

    def __init__(
        self,
        name: str,
        handler: Callable[[Engine, Turn], Handler],
        checker: Callable[[Engine, str], Any] = lambda _engine, _redis: None,
        beside: str = "",
        bar: str = "",
    ) -> None:
        self.name, self.handler, self.checker = name, handler, checker
        self.beside, self.bar = beside, bar


BARE, BARE_SESSION = "own transaction", "own session"
WAYS = (
    Way(BARE, by_own_connection),
    Way("own transaction, own mark", by_own_mark, beside=BARE),
    Way(
        "TransactionalChecker", lambda _engine, _turn: by_connection,
        lambda engine, _redis: TransactionalChecker(engine), BARE, TRANSACTIONAL,
    ),
    Way(BARE_SESSION, by_own_session),
    Way(
        "TransactionalChecker, Session", lambda _engine, _turn: by_session,
        lambda engine, _redis: TransactionalChecker(engine), BARE_SESSION, TRANSACTIONAL,
    ),
    Way(
        "DatabaseChecker", by_own_connection,
        lambda engine, _redis: DatabaseChecker(engine), BARE, DATABASE,
    ),
    Way(
        "RedisChecker", by_own_connection,
        lambda _engine, redis: RedisChecker(redis), BARE, REDIS,
    ),
)  # fmt: skip


class Writing(drive.Drain):
    """A consumer with a handler of one of the ways."""

    def __init__(self, app: QFrame, count: int, handler: Handler, checker: Any) -> None:
        self._handler, self._checker = handler, checker
        super().__init__(app, drive.topic_of("stream"), count)

    def register(self) -> None:
        """Registers the handler as it is, with its checker."""
        self.app.consumer(self.topic, group="g", threads=THREADS, idempotent_checker=self._checker)(
            self._handler
        )


def main(options: argparse.Namespace) -> None:
    """Measures, prints, and writes the figures to benchmarks/results/checkers.json."""
    count = options.count or COUNT
    rows: list[Row] = []
    with RedisServer() as redis:
        facts = {
            "count": count, "rounds": options.rounds, "fsync": options.fsync,
            "synchronous": options.synchronous,
            "machine": report.machine() | {"redis": redis.version},
        }  # fmt: skip
        for name in options.databases:
            with database(name, options) as engine:
                rounds = [one_round(redis, engine, count) for _ in range(options.rounds)]
            found = rows_of(name, rounds)
            report.show(f"Checkers: a row each into {name}, {count:,} messages", found)
            rows += found
    path = report.dump(facts | {"rows": report.facts_of(rows)}, "checkers.json")
    print(f"written: {path}")


def rows_of(database: str, rounds: list[dict[str, float]]) -> list[Row]:
    """A row for each way; the bare writes are the bare loop of the others."""
    return [
        Row(
            "checkers", f"{database}, {way.name}", "/s", [rates[way.name] for rates in rounds],
            [rates[way.beside] for rates in rounds] if way.beside else [], ratio_bar=way.bar,
        )
        for way in WAYS
    ]  # fmt: skip


def one_round(redis: RedisServer, engine: Engine, count: int) -> dict[str, float]:
    """Messages a second, by the way in which they were handled."""
    turn: Turn = threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
    rates = {}
    for way in WAYS:
        redis.empty()
        with engine.begin() as connection:
            for table in ("paid", "marks", "qframe_effects"):
                connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
            connection.execute(text(MAKE))
            connection.execute(text(MAKE_MARKS))
        checker = way.checker(engine, redis.url)
        with QFrame(store=redis.url) as app:
            writing = Writing(app, count, way.handler(engine, turn), checker)
            drive.publish(app, writing.topic, count)
            rates[way.name] = count / writing.run()
        with engine.connect() as connection:
            written = connection.execute(text("SELECT count(*) FROM paid")).scalar_one()
        if written != count:
            raise SystemExit(f"{way.name}: {written} rows of {count}")
        if isinstance(checker, RedisChecker):
            checker.close()
    return rates


@contextmanager
def database(name: str, options: argparse.Namespace) -> Iterator[Engine]:
    """An engine for an empty database, which ends with it."""
    if name == "sqlite":
        with (
            tempfile.TemporaryDirectory(dir=options.dir) as folder,
            engine_of(f"sqlite:///{folder}/shop.db", options.synchronous) as engine,
        ):
            yield engine
        return
    with PostgresServer(options.dir, options.fsync) as server:
        url = server.new_database().replace("postgresql:", "postgresql+psycopg:")
        with engine_of(url, "") as engine:
            yield engine


@contextmanager
def engine_of(url: str, synchronous: str) -> Iterator[Engine]:
    """An engine with a connection for each thread; SQLite as a shop would set it up."""
    engine = create_engine(url, pool_size=THREADS + 2)
    if synchronous:

        @event.listens_for(engine, "connect")
        def on_connect(connection: Any, _: object) -> None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute("PRAGMA busy_timeout=30000")

    try:
        yield engine
    finally:
        engine.dispose()
