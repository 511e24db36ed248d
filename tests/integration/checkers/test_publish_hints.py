"""What a handler publishes beside its transaction is said; under an id of its own it is once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from qframe import (
    Batch,
    DatabaseChecker,
    Message,
    Outbox,
    Outgoing,
    QFrame,
    Topic,
    TransactionalChecker,
)

ORDERS = Topic("orders", kind="ordered", slots=2)
RECEIPTS = Topic("receipts", kind="ordered", slots=2)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(store=f"sqlite:///{tmp_path / 'queue.db'}") as made:
        yield made


@pytest.fixture
def shop(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@contextmanager
def hints_of(app: QFrame) -> Iterator[list[dict[str, Any]]]:
    """What is said of handlers that publish beside their transactions."""
    told: list[dict[str, Any]] = []
    stop = app.events.listen(
        lambda name, facts: told.append(facts) if name == "publish.outside" else None
    )
    yield told
    stop()


def run(app: QFrame, *bodies: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Publishes orders and handles them; what was said, and the receipts that there are then."""
    receipts: list[int] = []
    app.consumer(RECEIPTS, group="readers")(_appends(receipts))
    for body in bodies:
        app.publish(ORDERS, body, key=f"{body}", id=f"order-{body}")
    with hints_of(app) as told:
        app.run(drain=True)
    return told, sorted(receipts)


def _appends(receipts: list[int]) -> Callable[[Message], None]:
    def read(message: Message) -> None:
        receipts.append(message.body)

    return read


@pytest.mark.gate
def test_a_handler_that_publishes_beside_its_transaction_is_named_once(
    app: QFrame, shop: str
) -> None:
    checker = TransactionalChecker(create_engine(shop))
    tries: list[int] = []

    @app.consumer(ORDERS, group="till", idempotent_checker=checker, backoff="1ms")
    def pay(message: Message, _connection: Connection) -> None:
        app.publish(RECEIPTS, message.body, key=message.key)
        tries.append(message.body)
        if len(tries) == 1:
            raise ValueError("it is rolled back")

    [told], receipts = run(app, 1, 2, 3)
    assert {name: told[name] for name in ("topic", "group", "into")} == {
        "topic": "orders", "group": "till", "into": "receipts",
    }  # fmt: skip
    assert "outbox.publish" in told["why"]
    assert receipts == sorted([*tries[:1], 1, 2, 3])


@pytest.mark.parametrize("way", ["publish_many", "buffered", "async", "batch"])
def test_each_way_of_publishing_beside_a_transaction_is_named(
    app: QFrame, shop: str, way: str
) -> None:
    options: dict[str, Any] = {"batch": Batch(10, within=0.01)} if way == "batch" else {}
    engine: Any = create_engine(shop)
    if way == "async":
        engine = create_async_engine(shop.replace("sqlite:", "sqlite+aiosqlite:"))
    register = app.consumer(
        ORDERS, group="till", idempotent_checker=TransactionalChecker(engine), **options
    )
    with app.buffered() as producer:
        if way == "async":

            @register
            async def apay(message: Message, _connection: AsyncConnection) -> None:
                await app.apublish(RECEIPTS, message.body, key=message.key)

        elif way == "batch":

            @register
            def pay_all(messages: list[Message], _connection: Connection) -> None:
                app.publish(RECEIPTS, messages[0].body, key="k")

        else:

            @register
            def pay(message: Message, _connection: Connection) -> None:
                if way == "buffered":
                    producer.publish(RECEIPTS, message.body, key=message.key)
                else:
                    app.publish_many(RECEIPTS, [Outgoing(message.body, key=message.key)])

        [told], _ = run(app, 1, 2)
    assert (told["group"], told["into"]) == ("till", "receipts")


@pytest.mark.parametrize("way", ["id", "outbox", "committed", "no transaction"])
def test_a_handler_that_publishes_so_that_it_may_be_repeated_is_not_named(
    app: QFrame, shop: str, way: str
) -> None:
    engine = create_engine(shop)
    outbox = app.relay(Outbox(engine))
    tries: list[int] = []

    def act(message: Message, connection: Any) -> None:
        if way == "id":
            app.publish(RECEIPTS, message.body, key=message.key, id=f"{message.id}-receipt")
        elif way == "outbox":
            outbox.publish(connection, RECEIPTS, message.body, key=message.key)
        else:
            if way == "committed":
                message.auto_ack = False
                message.ack()
            app.publish(RECEIPTS, message.body, key=message.key)
        tries.append(message.body)
        if len(tries) == 1 and way in ("id", "outbox"):
            raise ValueError("it is rolled back")

    if way == "no transaction":

        @app.consumer(ORDERS, group="till", idempotent_checker=DatabaseChecker(engine))
        def mark(message: Message) -> None:
            act(message, None)

    else:
        checker = TransactionalChecker(engine)

        @app.consumer(ORDERS, group="till", idempotent_checker=checker, backoff="1ms")
        def pay(message: Message, connection: Connection) -> None:
            act(message, connection)

    assert run(app, 1, 2, 3) == ([], [1, 2, 3])


def test_what_follows_a_message_is_published_once_if_its_id_is_made_of_the_messages(
    app: QFrame,
) -> None:
    """As the pages advise it; the handler ends before its message is acknowledged."""
    tries: list[int] = []

    @app.consumer(ORDERS, group="till", backoff="1ms")
    def pay(message: Message) -> None:
        app.publish(RECEIPTS, message.body, key=message.key, id=f"{message.id}-receipt")
        tries.append(message.body)
        if tries.count(message.body) == 1:
            raise ValueError("it dies before the acknowledgement")

    assert run(app, 1, 2) == ([], [1, 2])
    assert sorted(tries) == [1, 1, 2, 2]
