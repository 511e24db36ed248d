"""A handler whose result has still to run has done none of its work: its message is no success."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qframe import Batch, Message, QFrame, Topic
from qframe.testing import Harness


async def forgets_to_await(message: Message) -> Any:
    return asyncio.sleep(0)


async def forgets_to_await_for_all(messages: list[Message]) -> Any:
    return asyncio.sleep(0)


def returns_a_generator(message: Message) -> Any:
    return (number for number in (1, 2))


def returns_a_coroutine(message: Message) -> Any:
    return forgets_to_await(message)


def returns_a_generator_for_all(messages: list[Message]) -> Any:
    return (number for number in (1, 2))


HANDLERS = [
    (forgets_to_await, {}),
    (forgets_to_await_for_all, {"batch": Batch(4, "10ms")}),
    (returns_a_generator, {}),
    (returns_a_coroutine, {}),
    (returns_a_generator_for_all, {"batch": Batch(4, "10ms")}),
]


@pytest.mark.parametrize(("handler", "options"), HANDLERS)
def test_what_has_still_to_run_is_no_success_in_a_worker(
    each_app: QFrame, handler: Any, options: dict[str, Any]
) -> None:
    topic = Topic("jobs", slots=1)
    each_app.consumer(topic, group="g", max_attempts=1, **options)(handler)
    each_app.publish(topic, 1)
    each_app.run(burst=True)
    [letter] = each_app.admin.dead(topic, "g")
    assert letter.error.startswith("BadHandler: result <")


@pytest.mark.parametrize(("handler", "options"), HANDLERS)
def test_what_has_still_to_run_is_no_success_in_a_harness(
    handler: Any, options: dict[str, Any]
) -> None:
    app, topic = QFrame(), Topic("jobs", slots=1)
    app.consumer(topic, group="g", max_attempts=1, **options)(handler)
    with Harness(app) as harness:
        harness.publish(topic, 1)
        harness.run_until_idle()
        harness.assert_dead(topic, "g", 1)
