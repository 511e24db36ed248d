"""Async handlers with an idempotent checker: one effect for each message, and no blocked loop."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apps
import pytest
from apps import running
from checking import MARKING, checker_of, engine_of
from eventually import eventually
from sqlalchemy import create_engine

from qframe import (
    Backoff,
    CheckerUnavailable,
    DatabaseChecker,
    Message,
    NeedRetry,
    Topic,
)
from qframe.runtime.consume import consumer

TOPIC = Topic("payments", slots=2)
QUICK = Backoff(first=0.01, cap=0.05)


class Shop(apps.Shop):
    """A worker whose handlers pay, and what they have paid."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(
            f"sqlite:///{folder / 'queue.db'}", namespace=f"n{uuid.uuid4().hex}", **options
        )
        self.paid: Counter[str] = Counter()

    def consume(self, handler: Any, checker: Any, **options: Any) -> None:
        options = {"backoff": QUICK, "max_attempts": 4, **options}
        self.app.consumer(TOPIC, "g", idempotent_checker=checker, **options)(handler)

    def publish(self, *payments: str, key: str | None = None) -> None:
        for payment in payments:
            self.app.publish(TOPIC, {"payment": payment}, key=key)

    def lag(self) -> int:
        return self.app.admin.lag(TOPIC, "g")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with apps.audited(Shop(tmp_path)) as shop:
        yield shop


@pytest.fixture(params=MARKING)
def checker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A RedisChecker, and a DatabaseChecker on each database, by the body's `payment`."""
    with checker_of(request, request.param, tmp_path, key="payment") as made:
        yield made


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_fails_or_is_overdue_leaves_no_mark(
    shop: Shop, checker: Any, is_async: bool
) -> None:
    async def pay_async(message: Message) -> None:
        if message.attempt == 2:
            await asyncio.sleep(600)
        pay(message)

    def pay(message: Message) -> None:
        if message.attempt == 1:
            raise OSError
        if message.attempt == 2:
            eventually(lambda: message.cancelled)
            return
        if not message.local_retries:
            raise NeedRetry
        shop.paid[message.body["payment"]] += 1

    shop.consume(pay_async if is_async else pay, checker, timeout="100ms", max_attempts=9)
    shop.publish("a", "b", "a")
    shop.app.run(burst=True)
    assert shop.paid == {"a": 1, "b": 1}
    assert shop.events["delivery.overdue"] >= 2
    assert not shop.app.admin.dead(TOPIC, "g")


class Standing(DatabaseChecker):
    """A checker that answers when it is told to."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine, key="payment")
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.away = False

    def claim_many(self, *args: Any) -> None:
        if "slow" in args[1][0].key:
            self.asked.set()
            self.gate.wait(60)
        if self.away:
            raise CheckerUnavailable("standing", "told to be")
        super().claim_many(*args)


def test_a_checker_that_is_slow_or_away_holds_up_neither_the_loop_nor_other_keys(
    shop: Shop, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'marks.db'}")
    checker = Standing(engine)

    async def pay(message: Message) -> None:
        shop.paid[message.body["payment"]] += 1

    shop.consume(pay, checker)
    shop.publish("slow", key="k")
    with running(shop.app):
        assert checker.asked.wait(60)
        shop.publish("a", "b", "c")
        eventually(lambda: shop.paid == {"a": 1, "b": 1, "c": 1})
        checker.away = True
        checker.gate.set()
        shop.publish("d")
        eventually(lambda: shop.events["checker.unavailable"] >= 2)
        checker.away = False
        eventually(lambda: shop.lag() == 0)
        assert shop.paid == {"a": 1, "b": 1, "c": 1, "d": 1, "slow": 1}
    engine.dispose()


def test_what_outlasts_the_grace_is_cancelled_and_its_claim_released(
    shop: Shop, checker: Any
) -> None:
    shop.app.parts.opened.settings = replace(shop.app.settings, grace=0.1)
    begun = threading.Event()

    async def pay(message: Message) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(600)
        shop.paid[message.body["payment"]] += 1

    shop.consume(pay, checker, lease=60)
    shop.publish("a")
    with running(shop.app):
        assert begun.wait(60)
    assert (shop.paid, shop.lag()) == ({}, 1)
    shop.app.run(burst=True)  # no claim is in its way
    assert shop.paid == {"a": 1}


def test_a_handler_that_outlasts_its_cancellation_does_not_fail_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "LAST_WORDS_S", 1.0)
    begun = threading.Event()

    async def pay(message: Message) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)  # until the loop ends

    shop = Shop(tmp_path, grace=0.1)
    with engine_of(f"sqlite:///{tmp_path / 'shop.db'}") as engine, shop.app:
        shop.consume(pay, DatabaseChecker(engine))
        shop.publish("p")
        with running(shop.app):
            begun.wait(60)
        assert shop.lag() == 1
    assert shop.events["worker.stopped"] == 1
    assert not shop.events["part.failed"]
