"""Claiming takes a while: what another worker has by then reaches no handler here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from qframe import Batch, DatabaseChecker, Message, QFrame, Topic, TransactionalChecker

pytestmark = [pytest.mark.promise(2), pytest.mark.gate]

TOPIC = Topic("t", slots=1)
BATCH = Batch(4, "10ms")


class Shop:
    """A worker whose first claim is granted when its slot is another's already."""

    def __init__(self, folder: Path) -> None:
        self.app = QFrame(f"sqlite:///{folder / 'queue.db'}?synchronous=normal", grace=5)
        self.database = f"sqlite:///{folder / 'business.db'}"
        self.seen: list[tuple[int, bool]] = []
        self.failure: BaseException | None = None
        self._lost = threading.Event()
        self._is_late = False
        self._thread = threading.Thread(target=self._run)
        self.app.events.listen(lambda name, facts: self._listen(name))

    def note(self, *messages: Message) -> None:
        self.seen += [(message.body, message.cancelled) for message in messages]

    def consume(self, handler: Any, checker: Any, **options: Any) -> None:
        for name in ("claim_many", "claim_together"):
            if hasattr(checker, name):
                setattr(checker, name, self._late(getattr(checker, name)))
        self.app.consumer(TOPIC, "g", idempotent_checker=checker, **options)(handler)

    def serve(self) -> None:
        """Handles one message, and another one that tells of the loss."""
        self.app.publish(TOPIC, 1, key="k")
        self._thread.start()
        eventually(lambda: self.app.admin.lag(TOPIC, "g") == 0)
        self.app.stop()
        self._thread.join()
        assert self.failure is None

    def _run(self) -> None:
        try:
            self.app.run()
        except BaseException as error:
            self.failure = error

    def _late(self, claim: Any) -> Any:
        def claim_and_lose(*arguments: Any) -> None:
            claim(*arguments)
            # Before there is a message the checker has tried itself out.
            if not self._is_late and self.app.admin.stats(TOPIC)[0].doing:
                self._is_late = True
                self._lose()

        return claim_and_lose

    def _lose(self) -> None:
        """As a worker would that stood still between its claim and its handler."""
        store = self.app.store
        epoch = int(store.epochs(TOPIC, "g")[0], 16)
        assert store.take(TOPIC, "g", {0: f"{epoch + 1:016x}"}) == [0]
        self.app.publish(TOPIC, 2, key="other")  # which makes the worker pull, and be refused
        assert self._lost.wait(60)

    def _listen(self, name: str) -> None:
        if name == "delivery.cancelled":
            self._lost.set()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    with shop.app:
        yield shop
        assert shop.app.store.verify(TOPIC) == []


def once_and_in_time(shop: Shop) -> bool:
    """Whether each message came to a handler once, when it was this worker's."""
    return sorted(shop.seen) == [(1, False), (2, False)]


def test_a_handler_is_not_called_for_what_was_lost_while_it_was_claimed(shop: Shop) -> None:
    engine = create_engine(shop.database)

    def handle(message: Message) -> None:
        shop.note(message)

    shop.consume(handle, DatabaseChecker(engine))
    shop.serve()
    engine.dispose()
    assert once_and_in_time(shop)


def test_a_handler_gets_no_transaction_for_what_was_lost_while_it_was_claimed(shop: Shop) -> None:
    engine = create_engine(shop.database)

    def handle(message: Message, connection: Connection) -> None:
        shop.note(message)

    shop.consume(handle, TransactionalChecker(engine))
    shop.serve()
    engine.dispose()
    assert once_and_in_time(shop)


def test_an_async_handler_is_not_called_for_what_was_lost_while_it_was_claimed(shop: Shop) -> None:
    async def handle(message: Message, connection: AsyncConnection) -> None:
        shop.note(message)

    url = shop.database.replace("sqlite:", "sqlite+aiosqlite:")
    shop.consume(handle, TransactionalChecker(create_async_engine(url)))
    shop.serve()
    assert once_and_in_time(shop)


def test_a_batch_has_no_transaction_for_what_was_lost_while_it_was_claimed(shop: Shop) -> None:
    engine = create_engine(shop.database)

    def handle(messages: list[Message], connection: Connection) -> None:
        shop.note(*messages)

    shop.consume(handle, TransactionalChecker(engine), batch=BATCH)
    shop.serve()
    engine.dispose()
    assert once_and_in_time(shop)


def test_a_batch_has_nothing_that_was_lost_while_it_was_claimed(shop: Shop) -> None:
    engine = create_engine(shop.database)

    def handle(messages: list[Message]) -> None:
        shop.note(*messages)

    shop.consume(handle, DatabaseChecker(engine), batch=BATCH)
    shop.serve()
    engine.dispose()
    assert once_and_in_time(shop)
