"""Messages that a handler has taken over are settled with their batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from qframe import Backoff, Flusher, Message, QFrame, Topic

TOPIC = Topic("orders", slots=4)
SOON = Backoff(0.01, cap=0.01)


class Shop:
    """An app whose handler puts its messages into a Flusher."""

    def __init__(self, app: QFrame) -> None:
        self.app = app
        self.events: Counter[str] = Counter()
        app.events.listen(lambda name, facts: self.events.update({name: facts.get("count", 1)}))

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

    @property
    def settled(self) -> int:
        return self.app.admin.topic(TOPIC).settled


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


def test_they_are_retried_when_process_raises_and_end_as_dead_with_its_error(shop: Shop) -> None:
    attempts: Counter[int] = Counter()

    def process(messages: list[Message]) -> None:
        attempts.update(message.body for message in messages)
        raise OSError("the database is away")

    shop.run(process, on_error=lambda messages, error: None)
    assert attempts == dict.fromkeys(range(20), 2)
    assert shop.dead == dict.fromkeys(range(20), "OSError: the database is away")


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


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_process_that_wants_to_end_its_thread_fails_them_as_any_error_does(
    shop: Shop, error: BaseException
) -> None:
    def process(messages: list[Message]) -> None:
        raise error

    shop.run(process, on_error=lambda messages, error: None)
    assert set(shop.dead) == set(range(20))


def test_those_that_their_handler_did_not_take_over_are_left_to_it(shop: Shop) -> None:
    def process(messages: list[Message]) -> None:
        raise OSError("too late: their handler has returned")

    shop.run(process, auto_ack=True, on_error=lambda messages, error: None)
    assert not shop.dead
    assert shop.app.admin.lag(TOPIC, "g") == 0
