"""Middleware in a worker: what it sees of retries, checkers, timeouts, and what it may refuse."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any

import pytest
from apps import handler, running
from eventually import eventually
from sqlalchemy import Connection, create_engine, text

from qframe import (
    BadOption,
    DatabaseChecker,
    Message,
    Middleware,
    NeedRetry,
    Outgoing,
    QFrame,
    Reject,
    Topic,
    TransactionalChecker,
)
from qframe.testing import Harness

pytestmark = pytest.mark.gate

TOPIC = Topic("t", kind="ordered", slots=2)
SOON = 0.02
CURRENT: ContextVar[str | None] = ContextVar("current", default=None)


class Noting(Middleware):
    """Notes each hook with the message's body."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def before(self, message: Message) -> None:
        self.calls.append(("before", message.body, message.attempt, message.local_retries))

    def after(self, message: Message, elapsed: float) -> None:
        assert elapsed >= 0
        self.calls.append(("after", message.body))

    def on_failure(self, message: Message, error: BaseException) -> None:
        self.calls.append(("on_failure", message.body, type(error).__name__))


class Refusing(Middleware):
    """Lets nothing negative through."""

    def before(self, message: Message) -> None:
        if message.body < 0:
            raise Reject("it is negative")


class Bound(Middleware):
    """Makes the message's id known to all that its handler calls."""

    def __init__(self) -> None:
        self.tokens: dict[Message, Token[str | None]] = {}

    def before(self, message: Message) -> None:
        self.tokens[message] = CURRENT.set(message.id)

    def after(self, message: Message, elapsed: float) -> None:
        CURRENT.reset(self.tokens.pop(message))

    def on_failure(self, message: Message, error: BaseException) -> None:
        CURRENT.reset(self.tokens.pop(message))


@pytest.mark.parametrize("is_async", [False, True])
def test_every_call_of_a_handler_is_told_with_its_end(each_app: QFrame, is_async: bool) -> None:
    noting = Noting()
    each_app.middleware(noting)

    def work(message: Message) -> None:
        if message.body == "in place" and not message.local_retries:
            raise NeedRetry
        if message.body == "later" and message.attempt == 1:
            raise ValueError

    each_app.consumer(TOPIC, "g", backoff=SOON, threads=1)(handler(is_async, work))
    each_app.publish_many(TOPIC, [Outgoing(body, key="k") for body in ("in place", "later")])
    each_app.run(burst=True)
    assert noting.calls == [
        ("before", "in place", 1, 0),
        ("on_failure", "in place", "NeedRetry"),
        ("before", "in place", 1, 1),
        ("after", "in place"),
        ("before", "later", 1, 0),
        ("on_failure", "later", "ValueError"),
        ("before", "later", 2, 0),
        ("after", "later"),
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_before_may_refuse_a_message_for_its_handler(each_app: QFrame, is_async: bool) -> None:
    seen: list[int] = []
    noting = Noting()
    each_app.middleware(noting)
    each_app.consumer(TOPIC, "g", middleware=[Refusing()])(
        handler(is_async, lambda message: seen.append(message.body))
    )
    each_app.publish_many(TOPIC, [Outgoing(n, key="k") for n in (1, -1, 2)])
    each_app.run(burst=True)
    assert seen == [1, 2]
    assert [each.error for each in each_app.admin.dead(TOPIC, "g")] == ["Reject: it is negative"]
    assert ("on_failure", -1, "Reject") in noting.calls  # the app's is around the consumer's


@pytest.mark.parametrize("is_async", [False, True])
def test_a_context_variable_of_before_is_the_handler_s_own(
    each_app: QFrame, is_async: bool
) -> None:
    wrong: list[Message] = []

    def work(message: Message) -> None:
        if CURRENT.get() != message.id:
            wrong.append(message)
        if message.body % 7 == 0 and message.attempt == 1:
            raise ValueError

    bound = Bound()
    each_app.consumer(TOPIC, "g", middleware=[bound], backoff=SOON)(handler(is_async, work))
    each_app.publish_many(TOPIC, [Outgoing(n, key=f"k{n}") for n in range(100)])
    each_app.run(burst=True)
    assert (wrong, bound.tokens) == ([], {})


def test_what_was_done_before_is_told_to_no_hook(each_app: QFrame, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'marks.db'}")
    noting = Noting()
    each_app.consumer(
        TOPIC, "g", middleware=noting,
        idempotent_checker=DatabaseChecker(engine, key=lambda message: str(message.body)),
    )(handler(False, lambda message: None))  # fmt: skip
    each_app.publish_many(TOPIC, [Outgoing("same", key="k") for _ in range(3)])
    each_app.run(burst=True)
    assert noting.calls == [("before", "same", 1, 0), ("after", "same")]
    engine.dispose()


def test_a_before_that_raises_rolls_back_the_transaction(each_app: QFrame, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sums (amount INTEGER)"))
    noting = Noting()

    @each_app.consumer(
        TOPIC, "g", middleware=[noting, Refusing()],
        idempotent_checker=TransactionalChecker(engine),
    )  # fmt: skip
    def add(amount: int, connection: Connection) -> None:
        connection.execute(text("INSERT INTO sums VALUES (:amount)"), {"amount": amount})

    each_app.publish_many(TOPIC, [Outgoing(n, key="k") for n in (1, -1, 2)])
    each_app.run(burst=True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT amount FROM sums")).scalars().all() == [1, 2]
    assert ("on_failure", -1, "Reject") in noting.calls
    engine.dispose()


def test_a_cancelled_async_handler_is_told_as_a_failure(each_app: QFrame) -> None:
    noting = Noting()

    @each_app.consumer(TOPIC, "g", middleware=noting, timeout="50ms", max_attempts=1)
    async def hangs(message: Message) -> None:
        await asyncio.Event().wait()

    each_app.publish(TOPIC, "x", key="k")
    each_app.run(burst=True)
    assert noting.calls == [("before", "x", 1, 0), ("on_failure", "x", "CancelledError")]
    assert len(each_app.admin.dead(TOPIC, "g")) == 1


def test_after_says_that_the_handler_has_returned_whoever_settles(each_app: QFrame) -> None:
    noting = Noting()
    opened: list[Message] = []
    each_app.consumer(TOPIC, "g", middleware=noting, auto_ack=False)(handler(False, opened.append))
    each_app.publish(TOPIC, "x", key="k")
    with running(each_app):
        eventually(lambda: ("after", "x") in noting.calls)
        assert sum(one.settled for one in each_app.store.stats(TOPIC, "g")) == 0
        opened.pop().ack()
        eventually(lambda: sum(one.settled for one in each_app.store.stats(TOPIC, "g")) == 1)
    assert noting.calls == [("before", "x", 1, 0), ("after", "x")]


def test_async_hooks_of_the_app_are_refused_where_a_handler_is_plain(each_app: QFrame) -> None:
    class Later(Middleware):
        async def after(self, message: Message, elapsed: float) -> None: ...

    each_app.middleware(Later)
    each_app.consumer(TOPIC, "g")(handler(False, lambda message: None))
    with pytest.raises(BadOption, match="its `after` is async"):
        each_app.run(burst=True)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_harness_calls_what_a_worker_calls(is_async: bool) -> None:
    app = QFrame()
    noting = Noting()
    app.middleware(noting)

    def work(message: Message) -> None:
        if message.attempt == 1:
            raise ValueError

    app.consumer(TOPIC, "g", backoff="10s", middleware=Refusing)(handler(is_async, work))
    with Harness(app) as harness:
        harness.publish(TOPIC, 1, key="k")
        harness.publish(TOPIC, -1, key="m")
        harness.drain()
        harness.assert_dead(TOPIC, "g", -1)
    assert sorted(noting.calls) == sorted([
        ("before", 1, 1, 0), ("on_failure", 1, "ValueError"),
        ("before", -1, 1, 0), ("on_failure", -1, "Reject"),
        ("before", 1, 2, 0), ("after", 1),
    ])  # fmt: skip


def test_no_hook_is_called_for_a_worker_that_is_lost() -> None:
    app = QFrame()
    noting = Noting()

    @app.consumer(TOPIC, "g", middleware=noting, auto_ack=False)
    def handle(message: Message) -> None:
        message.ack()

    with Harness(app) as harness:
        harness.crash_after("commit")
        harness.publish(TOPIC, "x", key="k")
        harness.drain()
        harness.assert_all_done()
    assert noting.calls == [("before", "x", 1, 0), ("before", "x", 2, 0), ("after", "x")]
