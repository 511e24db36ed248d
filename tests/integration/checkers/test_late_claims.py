"""Claiming takes a while: what another worker has by then reaches no handler here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apps
import pytest
from eventually import eventually
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from qframe import Batch, DatabaseChecker, Message, Topic, TransactionalChecker
from qframe.runtime.feed.slots import Slots

pytestmark = [pytest.mark.promise(2), pytest.mark.gate]

TOPIC = Topic("t", slots=1)
BATCH = Batch(4, "10ms")


class Shop(apps.Shop):
    """A worker whose first claim is granted when its slot is another's already."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"sqlite:///{folder / 'queue.db'}?synchronous=normal")
        self.database = f"sqlite:///{folder / 'business.db'}"
        self._lost = threading.Event()
        self._is_late = False
        self.app.events.listen(lambda name, _: name == "delivery.cancelled" and self._lost.set())

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
        self.start()
        eventually(lambda: self.app.admin.lag(TOPIC, "g") == 0)

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


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with apps.audited(Shop(tmp_path)) as shop:
        yield shop


def plain(shop: Shop, message: Message) -> None:
    shop.note(message)


def changing(shop: Shop, message: Message, connection: Connection) -> None:
    shop.note(message)


async def awaited(shop: Shop, message: Message, connection: AsyncConnection) -> None:
    shop.note(message)


def batched(shop: Shop, messages: list[Message]) -> None:
    shop.note(*messages)


def changing_together(shop: Shop, messages: list[Message], connection: Connection) -> None:
    shop.note(*messages)


@pytest.mark.parametrize("handler", [plain, changing, awaited, batched, changing_together])
def test_no_handler_is_called_for_what_was_lost_while_it_was_claimed(
    shop: Shop, handler: Any
) -> None:
    if handler is awaited:
        url = shop.database.replace("sqlite:", "sqlite+aiosqlite:")
        checker: Any = TransactionalChecker(create_async_engine(url))
    else:
        kind = DatabaseChecker if handler in (plain, batched) else TransactionalChecker
        checker = kind(create_engine(shop.database))
    options = {"batch": BATCH} if handler in (batched, changing_together) else {}
    shop.consume(partial(handler, shop), checker, **options)
    shop.serve()
    # Each message came to a handler once, when it was this worker's.
    assert sorted(shop.seen) == [(1, False), (2, False)]


def test_who_is_not_certain_of_its_slot_when_its_handler_returns_does_not_commit(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was frozen, and commits before it has heard of its loss."""
    certain, in_doubt = Slots.certain, threading.Event()
    monkeypatch.setattr(Slots, "certain", lambda it: not in_doubt.is_set() and certain(it))
    shop.app.events.listen(lambda name, _: name == "effect.refused" and in_doubt.clear())

    def handle(message: Message, connection: Connection) -> None:
        if not shop.seen:
            in_doubt.set()
        shop.note(message)

    checker = TransactionalChecker(create_engine(shop.database))
    shop.app.consumer(TOPIC, "g", idempotent_checker=checker, lease="1s")(handle)
    shop.app.publish(TOPIC, 1, key="k")
    shop.start()
    eventually(lambda: shop.events["effect.committed"])
    assert (shop.events["effect.refused"], len(shop.seen)) == (1, 2)
