"""The manners in which a worker's messages are handled: one function for each.

One by one in threads, async, in batches, in batches of an async handler, in a loop of its own; each
but the last also under a TransactionalChecker, in whose transaction it writes a row.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from desk import ASYNC, ASYNC_BATCH, BATCH, OF_BATCHES, PLAIN, PULL, WANTED, Desk, Stumble
from history import ENDED, FAILED
from ledger import async_engine_for, engine_for, written
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from qframe import (
    AlreadySettled,
    Backoff,
    Batch,
    Message,
    QFrame,
    RateLimit,
    Topic,
    TransactionalChecker,
)

SIZE, WITHIN = 20, "50ms"
AT_ONCE = 8
AWAITED_AT_ONCE = 20
BACKOFF = Backoff(first=0.05, cap=0.2)
MAX_ATTEMPTS = 16
TAKING = "200ms"

Handler = Callable[..., Any]


def serve(app: QFrame, topic: Topic, group: str, desk: Desk, *, lease_s: float) -> None:
    """Handles a topic's messages in the manner that is asked for, until SIGTERM."""
    ways = desk.ways
    options: dict[str, Any] = {"lease": lease_s, "backoff": BACKOFF, "max_attempts": MAX_ATTEMPTS}
    if ways.is_tagged:
        options["tags"] = WANTED
    if ways.keeps_order:
        options["keep_order"] = True
    if ways.manner == PULL:
        loop_over(app, topic, group, desk, options)
        return
    options["threads"] = AWAITED_AT_ONCE if ways.manner == ASYNC else AT_ONCE
    if ways.manner in OF_BATCHES:
        options["batch"] = Batch(SIZE, within=WITHIN)
    if ways.rate:
        options["rate_limit"] = RateLimit(ways.rate, over="group")
    if ways.business:
        is_async = ways.manner in (ASYNC, ASYNC_BATCH)
        engine = (async_engine_for if is_async else engine_for)(ways.business)
        options["idempotent_checker"] = TransactionalChecker(engine)
    app.consumer(topic, group=group, **options)(_handler(desk))
    app.run()


def most_at_once(manner: str) -> int:
    """How many messages of a worker may have begun, or be about to, at the same time."""
    threads = AWAITED_AT_ONCE if manner == ASYNC else AT_ONCE
    return threads * (SIZE if manner in OF_BATCHES else 1)


def _handler(desk: Desk) -> Handler:
    makers: dict[str, tuple[Handler, Handler]] = {
        PLAIN: (plain, plain_with_effects),
        ASYNC: (awaited, awaited_with_effects),
        BATCH: (batched, batched_with_effects),
        ASYNC_BATCH: (awaited_batch, awaited_batch_with_effects),
    }
    without, with_effects = makers[desk.ways.manner]
    handler: Handler = (with_effects if desk.ways.business else without)(desk)
    return handler


# One by one.


def plain(desk: Desk) -> Handler:
    """A function of one message."""

    def handle(message: Message) -> None:
        with desk.in_hand([message]):
            _pause(desk.takes_s(message))
            desk.stumble(message)

    return handle


def plain_with_effects(desk: Desk) -> Handler:
    """The same, which writes."""

    def handle(message: Message, connection: Connection) -> None:
        with desk.in_hand([message]):
            connection.execute(written(message))
            _pause(desk.takes_s(message))
            desk.stumble(message)

    return handle


def awaited(desk: Desk) -> Handler:
    """A coroutine of one message."""

    async def handle(message: Message) -> None:
        with desk.in_hand([message]):
            await asyncio.sleep(desk.takes_s(message))
            desk.stumble(message)

    return handle


def awaited_with_effects(desk: Desk) -> Handler:
    """The same, which writes."""

    async def handle(message: Message, connection: AsyncConnection) -> None:
        with desk.in_hand([message]):
            await connection.execute(written(message))
            await asyncio.sleep(desk.takes_s(message))
            desk.stumble(message)

    return handle


# In batches.


def batched(desk: Desk) -> Handler:
    """A function of a list, which acknowledges some of it by itself."""

    def handle(messages: list[Message]) -> None:
        with desk.in_hand(messages) as call:
            for message in messages:
                _pause(desk.takes_s(message))
                desk.stumble(message, among=len(messages))
                if desk.is_early(message):
                    call.end(ENDED, message)
                    _acknowledge(message)

    return handle


def batched_with_effects(desk: Desk) -> Handler:
    """The same, which writes, and leaves it to its transaction to acknowledge."""

    def handle(messages: list[Message], connection: Connection) -> None:
        with desk.in_hand(messages):
            for message in messages:
                connection.execute(written(message))
                _pause(desk.takes_s(message))
                desk.stumble(message, among=len(messages))

    return handle


def awaited_batch(desk: Desk) -> Handler:
    """A coroutine of a list."""

    async def handle(messages: list[Message]) -> None:
        with desk.in_hand(messages):
            for message in messages:
                await asyncio.sleep(desk.takes_s(message))
                desk.stumble(message, among=len(messages))

    return handle


def awaited_batch_with_effects(desk: Desk) -> Handler:
    """The same, which writes."""

    async def handle(messages: list[Message], connection: AsyncConnection) -> None:
        with desk.in_hand(messages):
            for message in messages:
                await connection.execute(written(message))
                await asyncio.sleep(desk.takes_s(message))
                desk.stumble(message, among=len(messages))

    return handle


# In a loop of its own.


def loop_over(app: QFrame, topic: Topic, group: str, desk: Desk, options: dict[str, Any]) -> None:
    """Pulls in as many threads as a handler would have, each with one message in hand."""
    over = threading.Event()
    failures: list[BaseException] = []
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with app.pull(topic, group, timeout=TAKING, **options) as messages:

        def loop() -> None:
            try:
                while not over.is_set():
                    if (message := messages.take()) is not None:
                        deal_with(desk, message)
            except BaseException as error:
                failures.append(error)
                over.set()

        loops = [threading.Thread(target=loop) for _ in range(AT_ONCE)]
        for each in loops:
            each.start()
        for each in loops:
            each.join()
    if failures:
        raise failures[0]


def deal_with(desk: Desk, message: Message) -> None:
    """What a loop does with one message."""
    with desk.in_hand([message]) as call:
        _pause(desk.takes_s(message))
        try:
            desk.stumble(message)
        except Stumble as error:
            call.end(FAILED, message)
            _acknowledge(message, error)
        else:
            call.end(ENDED, message)
            _acknowledge(message)


def _pause(seconds: float) -> None:
    if seconds:
        threading.Event().wait(seconds)


def _acknowledge(message: Message, error: BaseException | None = None) -> None:
    """Settles a message; it may be another worker's by now, which is no fault of the handler's."""
    with suppress(AlreadySettled):
        message.ack(error=error)
