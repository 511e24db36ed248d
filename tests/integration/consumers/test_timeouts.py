"""`timeout=`: an async handler is cancelled, a plain one is told; both are tried again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apps import running
from eventually import eventually

from qframe import (
    Backoff,
    HandlerTimeout,
    Message,
    NeedRetry,
    Outgoing,
    QFrame,
    Reject,
    Topic,
)

SOON = Backoff(first=0.02, cap=0.02)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(store=f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal", grace=5) as app:
        yield app
        app.stop()
        for topic in app.store.topics():
            assert app.store.verify(topic) == []


@pytest.fixture
def overdue(app: QFrame) -> list[dict[str, Any]]:
    """What was told of handlers that ran too long."""
    told: list[dict[str, Any]] = []
    app.events.listen(lambda name, facts: told.append(facts) if name.endswith("overdue") else None)
    return told


@pytest.mark.gate
@pytest.mark.parametrize(
    ("ending", "errors"),
    [
        ("returns", ["HandlerTimeout", "HandlerTimeout"]),
        (OSError("gave up"), ["OSError", "OSError"]),
        (Reject("hopeless"), ["Reject"]),
        (NeedRetry(), ["NeedRetry", "NeedRetry"]),
        ("acknowledges", []),
    ],
    ids=["returns", "raises", "rejects", "defers", "acknowledges"],
)
@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_plain_handler_that_is_overdue_sees_it_and_a_mere_return_is_no_success(
    app: QFrame, overdue: list[dict[str, Any]], ending: str | Exception, errors: list[str],
    auto_ack: bool,
) -> None:  # fmt: skip
    topic = Topic("t", kind="ordered", slots=1)
    failed: list[str] = []

    def hear(name: str, facts: dict[str, Any]) -> None:
        if name in ("delivery.retried", "delivery.dead"):
            failed.append(type(facts["error"]).__name__)

    app.events.listen(hear)

    @app.consumer(topic, group="g", timeout="50ms", max_attempts=2, backoff=SOON, auto_ack=auto_ack)
    def handle(message: Message) -> None:
        eventually(lambda: message.cancelled)
        if isinstance(ending, Exception):
            raise ending
        if ending == "acknowledges":
            message.ack()

    app.publish(topic, 1, key="k", id="m")
    app.run(burst=True)
    assert failed == errors
    assert [(told["id"], told["timeout_s"]) for told in overdue] == [("m", 0.05)] * max(
        1, len(errors)
    )
    assert len(app.admin.dead(topic, "g")) == bool(errors)


def bodies(seen: list[tuple[Any, int]]) -> set[Any]:
    return {body for body, _ in list(seen)}


def test_a_plain_handler_that_is_overdue_keeps_its_lane_until_it_has_returned(
    app: QFrame, overdue: list[dict[str, Any]]
) -> None:
    topic = Topic("t", slots=1)
    gate = threading.Event()
    seen: list[tuple[Any, int]] = []

    @app.consumer(topic, group="g", timeout="30ms", threads=2, backoff=SOON)
    def handle(message: Message) -> None:
        if message.body == "stuck" and message.attempt == 1:
            gate.wait(60)
        seen.append((message.body, message.attempt))

    app.publish(topic, "stuck", key="k", id="m")
    app.publish(topic, "behind", key="k")
    app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(20)])
    with running(app):
        others = set(range(20))
        eventually(lambda: any(told["id"] == "m" for told in overdue) and others <= bodies(seen))
        assert bodies(seen) == others
        gate.set()
        eventually(lambda: app.admin.lag(topic, "g") == 0)
    # Any other may be overdue as well, and tried again, where the machine stands still.
    assert {("behind", 1), ("stuck", 1), ("stuck", 2)} <= set(seen)
    assert bodies(seen) == others | {"behind", "stuck"}


def test_handlers_that_come_after_one_another_have_each_their_own_time(
    app: QFrame, overdue: list[dict[str, Any]]
) -> None:
    topic = Topic("t", slots=1)

    @app.consumer(topic, group="g", timeout="5s", threads=1)
    def handle(message: Message) -> None:
        threading.Event().wait(0.05)

    app.publish_many(topic, range(110))  # together longer than what one may take
    app.run(burst=True)
    assert not overdue


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_an_async_handler_is_cancelled_and_its_message_tried_again_till_it_is_dead(
    app: QFrame, overdue: list[dict[str, Any]], kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=1)
    seen: list[tuple[int, bool, bool]] = []
    mourned: list[BaseException] = []

    @app.consumer(
        topic, group="g", timeout="30ms", max_attempts=3, backoff=SOON,
        on_dead=lambda _, error: mourned.append(error),
    )  # fmt: skip
    async def handle(message: Message) -> None:
        if message.key == "quick":
            return
        try:
            await asyncio.sleep(600)
        finally:
            seen.append((message.attempt, message.cancelled, message.overdue))

    app.publish(topic, 1, key="k", id="m")
    app.publish_many(topic, [Outgoing(n, key="quick") for n in range(20)])
    app.run(burst=True)
    assert seen == [(1, True, True), (2, True, True), (3, True, True)]
    [error] = mourned
    assert isinstance(error, HandlerTimeout)
    assert (error.message_id, error.timeout_s) == ("m", 0.03)
    [letter] = app.admin.dead(topic, "g")
    assert letter.error.startswith("HandlerTimeout: the handler of message m ran longer than")
    assert len(overdue) == 3


async def swallows(message: Message) -> None:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        return


async def cleans_up_slowly(message: Message) -> None:
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0.05)


async def asks_for_another_try(message: Message) -> None:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        raise NeedRetry(delay=0.01) from None


async def has_a_timeout_of_its_own(message: Message) -> None:
    async with asyncio.timeout(600), asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(600))


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (swallows, "HandlerTimeout"),
        (cleans_up_slowly, "HandlerTimeout"),
        (asks_for_another_try, "NeedRetry"),
        (has_a_timeout_of_its_own, "HandlerTimeout"),
    ],
)
def test_however_an_async_handler_takes_its_cancellation_it_is_no_success(
    app: QFrame, ending: Callable[[Message], Any], error: str
) -> None:
    topic = Topic("t", slots=1)
    app.consumer(topic, group="g", timeout="30ms", max_attempts=2, backoff=SOON)(ending)
    app.publish(topic, 1)
    app.run(burst=True)
    [letter] = app.admin.dead(topic, "g")
    assert (letter.error.split(":")[0], letter.attempts) == (error, 2)


def test_a_timeout_of_the_handlers_own_is_an_error_like_any_other(
    app: QFrame, overdue: list[dict[str, Any]]
) -> None:
    topic = Topic("t", slots=1)

    @app.consumer(topic, group="g", timeout="60s", max_attempts=1)
    async def handle(message: Message) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(600)

    app.publish(topic, 1)
    app.run(burst=True)
    [letter] = app.admin.dead(topic, "g")
    assert letter.error == "TimeoutError"
    assert not overdue


def test_an_async_handler_that_has_blocked_the_loop_for_too_long_is_late_as_well(
    app: QFrame, overdue: list[dict[str, Any]]
) -> None:
    topic = Topic("t", slots=1)

    @app.consumer(topic, group="g", timeout="30ms", max_attempts=2, backoff=SOON)
    async def handle(message: Message) -> None:
        if message.body == "long":
            threading.Event().wait(0.1)  # nothing can be called in the loop meanwhile

    app.publish_many(topic, ["short", "long", "short"])
    app.run(burst=True)
    [letter] = app.admin.dead(topic, "g")
    assert letter.error.startswith("HandlerTimeout: ")
    assert len(overdue) == 2
