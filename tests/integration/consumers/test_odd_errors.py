"""An error that is hard to tell of costs its own message, and neither a thread nor the worker."""

from __future__ import annotations

import os
from typing import Any

import pytest
from apps import batched, handler

from qframe import Backoff, Batch, Message, Outgoing, QFrame, Topic

GOOD = 40


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Noted(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise LookupError("no notes")


def odd_errors() -> list[BaseException]:
    return [
        SyntaxError("m", ("f", 1, 1, 123)),  # type: ignore[arg-type]
        Exiting(),
        Noted("bad"),
        OSError("cannot read " + os.fsdecode(b"report-\xff.pdf")),
        OSError("\0 \x1b]0;title\x07 \r\n"),
    ]


@pytest.mark.promise(6, 7)
@pytest.mark.parametrize("how", ["sync", "async", "batch"])
@pytest.mark.parametrize("max_attempts", [1, 2])
def test_an_error_that_cannot_be_told_as_it_is_ends_its_own_message_and_the_worker_goes_on(
    each_app: QFrame, how: str, max_attempts: int
) -> None:
    topic = Topic("jobs", slots=2)
    errors = odd_errors()
    done: list[Any] = []

    def work(message: Message) -> None:
        if message.body < 0:
            raise errors[-1 - message.body]
        done.append(message.body)

    options: dict[str, Any] = {"max_attempts": max_attempts}
    if max_attempts > 1:
        options["backoff"] = Backoff(first=0.01, cap=0.01)
    if how == "batch":
        options["batch"] = Batch(size=8, within=0.01)
    make = batched if how == "batch" else handler
    each_app.consumer(topic, "g", **options)(make(how == "async", work))
    bodies = [*range(GOOD), *(-1 - number for number in range(len(errors)))]
    each_app.publish_many(topic, [Outgoing(body, key=f"k{body}") for body in bodies])
    each_app.run(burst=True)
    assert set(range(GOOD)) <= set(done)
    dead = each_app.admin.dead(topic, "g")
    told = sorted((letter.error or "").split(":")[0] for letter in dead)
    assert told == sorted(type(error).__name__ for error in errors)
    assert all(letter.attempts == max_attempts for letter in dead)


@pytest.mark.promise(7)
def test_a_listener_that_raises_at_every_event_stops_and_delays_no_message(
    each_app: QFrame,
) -> None:
    topic = Topic("heard", slots=2)
    done: list[Any] = []

    def fail(name: str, facts: dict[str, Any]) -> None:
        raise KeyError(name)

    @each_app.consumer(topic, group="g", max_attempts=2, backoff=Backoff(first=0.01, cap=0.01))
    def work(body: int) -> None:
        if body == 0:
            raise ValueError("the handler's own")
        done.append(body)

    each_app.events.listen(fail)
    each_app.publish_many(topic, range(GOOD))
    each_app.run(burst=True)
    assert sorted(done) == list(range(1, GOOD))
    [letter] = each_app.admin.dead(topic, "g")
    assert letter.error == "ValueError: the handler's own"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
def test_a_message_that_is_handled_at_most_once_is_mourned_whatever_was_raised(
    each_app: QFrame, error: BaseException
) -> None:
    topic = Topic("once", slots=1)
    mourned: list[BaseException] = []

    @each_app.consumer(
        topic, group="g", at_most_once=True, on_dead=lambda _, error: mourned.append(error)
    )
    def work(message: Message) -> None:
        raise error

    each_app.publish(topic, 1)
    each_app.run(burst=True)
    assert mourned == [error]


def test_an_on_dead_that_returns_what_nobody_awaits_is_told_of(each_app: QFrame) -> None:
    topic = Topic("alarms", slots=1)
    told: list[str] = []

    async def alarm(message: Message, error: BaseException) -> None: ...

    @each_app.consumer(
        topic, group="g", max_attempts=1, on_dead=lambda message, error: alarm(message, error)
    )
    def work(message: Message) -> None:
        raise ValueError("bad")

    each_app.events.listen(
        lambda name, facts: told.append(str(facts["error"])) if name == "on_dead.failed" else None
    )
    each_app.publish(topic, 1)
    each_app.run(burst=True)
    assert len(each_app.admin.dead(topic, "g")) == 1
    [error] = told
    assert "nobody awaits it" in error
