"""Messages that a handler has taken over are settled with their batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from apps import running, settled, told
from eventually import eventually
from sqlalchemy import create_engine

from qframe import Backoff, DatabaseChecker, Flusher, Message, Outgoing, QFrame, Topic
from qframe.errors import AlreadySettled

TOPIC = Topic("orders", slots=4)
SOON = Backoff(first=0.01, cap=0.01)


class Shop:
    """An app whose handler puts its messages into a Flusher."""

    def __init__(self, app: QFrame) -> None:
        self.app = app
        self.events = told(app)

    def run(self, process: Any, *, auto_ack: bool = False, **options: Any) -> None:
        """Publishes 0 to 19, and consumes until nothing is left, five to a batch."""
        with Flusher("rows", 5, "5ms", 100, 2, process, **options) as flusher:

            @self.app.consumer(TOPIC, group="g", max_attempts=2, backoff=SOON, auto_ack=auto_ack)
            def handle(message: Message) -> None:
                flusher.put(message)

            self.app.publish_many(TOPIC, range(20))
            self.app.run(burst=True)

    @property
    def dead(self) -> dict[int, str]:
        return {int(one.body): str(one.error) for one in self.app.admin.dead(TOPIC, "g")}


@pytest.fixture
def shop() -> Iterator[Shop]:
    with QFrame("model://") as app:
        yield Shop(app)


def test_they_are_acked_when_process_has_returned(shop: Shop) -> None:
    rows: list[int] = []
    shop.run(lambda messages: rows.extend(message.body for message in messages))
    assert sorted(rows) == list(range(20))
    assert shop.app.admin.lag(TOPIC, "g") == 0
    assert not shop.events["delivery.leaked"]
    assert not shop.events["delivery.stale"]


@pytest.mark.parametrize("error", [OSError("away"), SystemExit(3), KeyboardInterrupt()])
def test_they_are_retried_when_process_raises_and_end_as_dead_with_its_error(
    shop: Shop, error: BaseException
) -> None:
    attempts: Counter[int] = Counter()

    def process(messages: list[Message]) -> None:
        attempts.update(message.body for message in messages)
        raise error

    shop.run(process, on_error=lambda messages, error: None)
    assert attempts == dict.fromkeys(range(20), 2)
    assert shop.dead.keys() == set(range(20))
    assert all(dead.startswith(type(error).__name__) for dead in shop.dead.values())


def test_those_that_process_has_settled_itself_stay_as_it_said(shop: Shop) -> None:
    def process(messages: list[Message]) -> None:
        for message in messages:
            if message.body % 2:
                message.ack(error=ValueError("odd"))
            else:
                message.ack()
        raise OSError("after all were settled")

    shop.run(process, on_error=lambda messages, error: None)
    assert shop.dead == dict.fromkeys(range(1, 20, 2), "ValueError: odd")


def test_on_error_may_settle_them_and_what_it_leaves_is_failed(shop: Shop) -> None:
    def process(messages: list[Message]) -> None:
        raise OSError("the database is away")

    def on_error(messages: list[Message], error: BaseException) -> None:
        for message in messages:
            if message.body < 10:
                message.ack()  # written down elsewhere
        raise KeyError("and on_error fails too")

    shop.run(process, on_error=on_error)
    assert set(shop.dead) == set(range(10, 20))


def test_those_that_their_handler_did_not_take_over_are_left_to_it(shop: Shop) -> None:
    def process(messages: list[Message]) -> None:
        raise OSError("too late: their handler has returned")

    shop.run(process, auto_ack=True, on_error=lambda messages, error: None)
    assert not shop.dead
    assert shop.app.admin.lag(TOPIC, "g") == 0


def test_a_batch_may_have_some_twice_some_settled_and_some_of_another_consumer(shop: Shop) -> None:
    other = Topic("parcels", slots=4)
    taken: Counter[tuple[str, int]] = Counter()

    def process(messages: list[Message]) -> None:
        assert {message.topic for message in messages} == {TOPIC.name, other.name}
        for message in messages:
            taken[message.topic, message.body] += 1
            if message.body % 3 == 0:
                with suppress(AlreadySettled):
                    message.ack()

    with Flusher("rows", 60, "2s", 100, 1, process) as flusher:
        for topic in (TOPIC, other):

            @shop.app.consumer(topic, group="g", auto_ack=False)
            def handle(message: Message) -> None:
                for _ in range(1 + message.body % 2):
                    flusher.put(message)

            shop.app.publish_many(topic, range(20))
        shop.app.run(burst=True)
    names = (TOPIC.name, other.name)
    assert taken == {(name, body): 1 + body % 2 for name in names for body in range(20)}
    assert (settled(shop.app, TOPIC), settled(shop.app, other)) == (20, 20)
    assert not shop.events["delivery.stale"]
    assert not shop.events["delivery.leaked"]


def test_the_next_of_a_key_begins_when_the_batch_of_the_one_before_is_settled(shop: Shop) -> None:
    rows: list[int] = []
    begun: list[int] = []

    def process(messages: list[Message]) -> None:
        assert len({message.key for message in messages}) == len(messages)
        rows.extend(message.body for message in messages)

    with Flusher("rows", 2, "5ms", 100, 2, process) as flusher:

        @shop.app.consumer(TOPIC, group="g", auto_ack=False)
        def handle(message: Message) -> None:
            assert set(range(message.body % 2, message.body, 2)) <= set(rows)
            begun.append(message.body)
            flusher.put(message)

        shop.app.publish_many(TOPIC, [Outgoing(body, key=f"k{body % 2}") for body in range(20)])
        with running(shop.app):
            eventually(lambda: len(rows) == 20, within=20)
    assert sorted(begun) == sorted(rows) == list(range(20))
    assert not shop.dead


def test_under_a_checker_each_effect_is_marked_as_its_batch_ends(
    shop: Shop, tmp_path: Path
) -> None:
    rows: list[int] = []
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")

    def process(messages: list[Message]) -> None:
        rows.extend(message.body["row"] for message in messages)

    with Flusher("rows", 5, "5ms", 100, 2, process) as flusher:

        @shop.app.consumer(
            TOPIC, group="g", auto_ack=False, idempotent_checker=DatabaseChecker(engine, key="row")
        )
        def handle(message: Message) -> None:
            flusher.put(message)

        for _ in range(2):
            shop.app.publish_many(TOPIC, [{"row": row} for row in range(20)])
            shop.app.run(burst=True)
    engine.dispose()
    assert sorted(rows) == list(range(20))
    assert settled(shop.app, TOPIC) == 40
