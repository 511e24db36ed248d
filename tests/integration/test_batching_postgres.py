"""Messages into PostgreSQL, many rows at a time, by a handler that puts them into a Flusher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from database_servers import PostgresServer

from qframe import Backoff, Flusher, Message, QFrame, Topic

TOPIC = Topic("orders", slots=4)
MESSAGES = 2_000


class Rows:
    """A table in a database of the test's own, and a `process` that fills it."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "")
        self.inserts = 0
        with psycopg.connect(self._url) as connection:
            connection.execute("CREATE TABLE orders (id text, number int CHECK (number >= 0))")

    def insert(self, messages: list[Message]) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(
                "INSERT INTO orders SELECT * FROM unnest(%s::text[], %s::int[])",
                ([message.id for message in messages], [message.body for message in messages]),
            )
        self.inserts += 1

    def numbers(self) -> list[int]:
        with psycopg.connect(self._url) as connection:
            rows = connection.execute("SELECT number FROM orders ORDER BY number").fetchall()
        return [number for (number,) in rows]


@pytest.fixture
def rows(postgres: PostgresServer) -> Rows:
    return Rows(postgres.new_database())


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path}/qframe.db") as app:
        yield app


def test_every_message_is_one_row_and_a_batch_is_one_insert(app: QFrame, rows: Rows) -> None:
    events: Counter[str] = Counter()
    app.events.listen(lambda name, facts: events.update([name]))
    with Flusher("orders", 500, "50ms", 3_000, 2, rows.insert) as flusher:

        @app.consumer(TOPIC, group="rows", auto_ack=False)
        def handle(message: Message) -> None:
            flusher.put(message)

        app.publish_many(TOPIC, range(MESSAGES))
        app.run(burst=True)
    assert rows.numbers() == list(range(MESSAGES))
    assert rows.inserts < MESSAGES / 10
    assert app.admin.lag(TOPIC, "rows") == 0
    assert not app.admin.verify(TOPIC)
    assert not events["delivery.leaked"]


@pytest.mark.gate
def test_a_row_that_the_database_refuses_ends_as_dead_and_the_others_are_written_once(
    app: QFrame, rows: Rows
) -> None:
    def one_by_one(messages: list[Message], error: BaseException) -> None:
        """What a batch that failed is retried as: the database says which row it was."""
        for message in messages:
            try:
                rows.insert([message])
            except psycopg.Error as refused:
                message.ack(error=refused)
            else:
                message.ack()

    with Flusher("orders", 100, "20ms", 3_000, 2, rows.insert, on_error=one_by_one) as flusher:

        @app.consumer(
            TOPIC, group="rows", auto_ack=False, max_attempts=2, backoff=Backoff("10ms", cap="10ms")
        )
        def handle(message: Message) -> None:
            flusher.put(message)

        app.publish_many(TOPIC, [-1 if number == 150 else number for number in range(400)])
        app.run(burst=True)
    assert rows.numbers() == [number for number in range(400) if number != 150]
    [dead] = app.admin.dead(TOPIC, "rows")
    assert "CheckViolation" in str(dead.error)
    assert app.admin.verify(TOPIC) == []
