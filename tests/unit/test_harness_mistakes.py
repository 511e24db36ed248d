"""What a test that would pass or fail for the wrong reason is told by the harness."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from qframe import Batch, Message, NeedRetry, QFrame, Reject, Topic
from qframe.errors import BadOption, UnknownGroup, UnknownTopic
from qframe.testing import Harness, Tally

ORDERS = Topic("orders", slots=2)
BILLS = Topic("bills", slots=2)


@dataclass
class Order:
    number: int


class Bill(BaseModel):
    number: int


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame(store="sqlite:////nowhere/at/all.db") as app:
        yield app


@pytest.mark.parametrize(
    "run", [Harness.run_until_idle, Harness.drain, lambda it: it.advance("1s")]
)
def test_an_app_without_consumers_is_refused_with_the_fixture_to_override(
    app: QFrame, run: Any
) -> None:
    with Harness(app) as harness:
        harness.publish(ORDERS, 1)
        with pytest.raises(BadOption, match=r"has none.*override the fixture qframe_app"):
            run(harness)


def test_not_all_is_done_if_something_was_published_that_nobody_consumes(app: QFrame) -> None:
    @app.consumer(ORDERS, group="g")
    def handle(body: int) -> None:
        app.publish(BILLS, body)

    with Harness(app) as harness:
        harness.publish(ORDERS, 1)
        harness.run_until_idle()
        with pytest.raises(
            AssertionError, match="bills: 1 published, and this app has no consumer"
        ):
            harness.assert_all_done()
        harness.assert_all_done(elsewhere=[BILLS])


def test_nothing_is_handled_by_a_group_that_is_misspelt(app: QFrame) -> None:
    @app.consumer(ORDERS, group="billing")
    def handle(body: int) -> None: ...

    with Harness(app) as harness:
        assert harness.deliveries_of(ORDERS, "billing") == []
        harness.assert_handled(ORDERS, "billing")
        for look in (harness.deliveries_of, harness.assert_handled):
            with pytest.raises(UnknownGroup, match="name one of these: billing"):
                look(ORDERS, "biling")
            with pytest.raises(UnknownTopic, match="'oders'"):
                look("oders", "billing")


def test_in_an_async_test_an_async_handler_runs_in_the_tests_loop(app: QFrame) -> None:
    loops: list[object] = []

    @app.consumer(ORDERS, group="g")
    async def handle(body: int) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    @app.consumer(ORDERS, group="plain")
    def plain(body: int) -> None:
        loops.append(None)

    async def test(harness: Harness) -> object:
        await app.apublish(ORDERS, 1)
        assert await harness.arun_until_idle() == Tally(handed_out=2, acked=2)
        harness.assert_all_done()
        return asyncio.get_running_loop()

    with Harness(app) as harness:
        loop = asyncio.run(test(harness))
    assert set(loops) == {loop, None}


def test_in_an_async_test_a_run_that_would_block_its_loop_is_refused_with_what_to_await(
    app: QFrame,
) -> None:
    @app.consumer(ORDERS, group="g")
    async def handle(body: int) -> None: ...

    async def test(harness: Harness) -> None:
        harness.publish(ORDERS, 1)
        with pytest.raises(BadOption, match=r"await harness.arun_until_idle\(\)"):
            harness.run_until_idle()
        assert await asyncio.to_thread(harness.drain) == Tally(handed_out=1, acked=1)

    with Harness(app) as harness:
        asyncio.run(test(harness))


@pytest.mark.parametrize("batch", [None, Batch(2, "1ms")])
def test_a_failed_assertion_shows_where_a_handler_has_raised(
    app: QFrame, batch: Batch | None
) -> None:
    def one(message: Message) -> None:
        raise KeyError("customer")

    def many(messages: list[Message]) -> None:
        raise KeyError("customer")

    app.consumer(ORDERS, group="g", batch=batch)(many if batch else one)
    with Harness(app) as harness:
        harness.publish(ORDERS, 1)
        harness.run_until_idle()
        for check in (harness.assert_all_done, lambda: harness.assert_handled(ORDERS, "g", 1)):
            with pytest.raises(AssertionError) as failure:
                check()
            assert 'raise KeyError("customer")' in str(failure.value)
            assert "qframe/runtime" not in str(failure.value)


def test_a_handlers_error_is_raised_where_that_is_asked_for_and_its_signals_are_not(
    app: QFrame,
) -> None:
    @app.consumer(ORDERS, group="g")
    def handle(body: str) -> None:
        if body == "retry":
            raise NeedRetry(delay=5)
        if body == "reject":
            raise Reject("no")
        raise LookupError(body)

    with Harness(app, raise_errors=True) as harness:
        harness.publish(ORDERS, "retry")
        harness.publish(ORDERS, "reject")
        harness.run_until_idle()
        harness.publish(ORDERS, "bug")
        with pytest.raises(LookupError, match="bug"):
            harness.run_until_idle()
        harness.publish(ORDERS, {"no": "text"})
        with pytest.raises(Exception, match="cannot be decoded as str"):
            harness.run_until_idle()


def test_bodies_are_compared_as_they_are_handled(app: QFrame) -> None:
    @app.consumer(ORDERS, group="g")
    def handle(order: Order) -> None:
        app.publish(BILLS, Bill(number=order.number))
        if order.number < 0:
            raise Reject("below zero")

    with Harness(app) as harness:
        harness.publish(ORDERS, Order(1))
        harness.publish(ORDERS, Order(-1))
        harness.run_until_idle()
        harness.assert_handled(ORDERS, "g", Order(1))
        harness.assert_dead(ORDERS, "g", Order(-1))
        harness.assert_published(BILLS, Bill(number=1), Bill(number=-1))


def test_pytest_shows_the_test_and_not_the_harness_where_an_assertion_fails(
    app: QFrame,
) -> None:
    with Harness(app) as harness, pytest.raises(AssertionError) as failure:
        harness.assert_published(ORDERS, 2)
    shown = [entry.path for entry in failure.traceback.filter(failure)]
    assert [str(path) for path in shown] == [__file__]


def test_an_app_that_was_closed_goes_on_with_the_harnesss_store() -> None:
    app, topic = QFrame(), Topic("t", slots=2)
    seen: list[int] = []

    @app.consumer(topic, group="g")
    def handle(body: int) -> None:
        seen.append(body)

    with Harness(app) as harness:
        app.publish(topic, 1)
        with app:  # as a command, or the end of a web service, closes it
            app.publish(topic, 2)
        app.publish(topic, 3)
        harness.run_until_idle()
        harness.assert_published(topic, 1, 2, 3)
        harness.assert_handled(topic, "g", 1, 2, 3)
    assert sorted(seen) == [1, 2, 3]


def test_an_app_in_a_harness_is_refused_to_another_one(app: QFrame) -> None:
    with Harness(app), pytest.raises(BadOption, match="or leave the harness that has it"):
        Harness(app).__enter__()
