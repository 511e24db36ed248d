"""Limits and breakers in a harness: by its clock, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qframe import Backoff, Breaker, Message, NeedRetry, QFrame, RateLimit, Topic
from qframe.testing import Harness

EVENTS = Topic("events", slots=2)


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame(store="sqlite:////nowhere/at/all.db") as app:
        yield app


@pytest.mark.parametrize("over", ["worker", "group"])
def test_a_limited_consumer_handles_what_its_tokens_allow_and_the_rest_as_time_passes(
    app: QFrame, over: Any
) -> None:
    handled: list[int] = []

    @app.consumer(EVENTS, "g", rate_limit=RateLimit("10/s", burst=3, over=over))
    def handle(message: Message) -> None:
        handled.append(message.body)

    burst = 3 if over == "worker" else 2  # the store's bucket is smaller by what 100 ms bring
    with Harness(app) as harness:
        for number in range(30):
            harness.publish(EVENTS, number)
        assert harness.run_until_idle().acked == burst
        assert harness.run_until_idle().acked == 0
        assert 9 <= harness.advance(seconds=1).acked <= 10
        before = harness.now
        harness.drain()
        assert len(handled) == 30
        assert 1.5 <= (harness.now - before).total_seconds() <= 2.0
        harness.assert_all_done()


def test_a_breaker_pauses_until_the_test_lets_time_pass(app: QFrame) -> None:
    calls: list[int] = []
    away = True

    @app.consumer(EVENTS, "g", breaker=Breaker(3, pause="30s"), backoff=Backoff(first=1, cap=1))
    def handle(message: Message) -> None:
        calls.append(message.body)
        if away:
            raise ConnectionError("away")

    with Harness(app) as harness:
        for number in range(10):
            harness.publish(EVENTS, number)
        assert harness.run_until_idle().retried == 3
        assert harness.advance(seconds=29).handed_out == 0
        assert harness.advance(seconds=2).retried == 1
        away = False
        assert harness.advance(seconds=58).handed_out == 0
        assert harness.advance(seconds=60).acked == 10
        harness.assert_all_done()


def test_in_place_a_retry_waits_for_its_token_too(app: QFrame) -> None:
    @app.consumer(EVENTS, "g", rate_limit=RateLimit("1/s", burst=1))
    def handle(message: Message) -> None:
        if not message.local_retries:
            raise NeedRetry()

    with Harness(app) as harness:
        harness.publish(EVENTS, 1)
        assert harness.run_until_idle().acked == 0
        assert harness.drain().acked == 1
