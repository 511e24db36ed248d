"""A message whose mark comes late, since its checker was away, was handled all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apps import batched, handler
from eventually import eventually
from late import Late, loses
from sqlalchemy import create_engine

from qframe import Backoff, Batch, Breaker, DatabaseChecker, Message, QFrame, Topic
from qframe.errors import CheckerUnavailable
from qframe.runtime.consume.consumer import Consumer

TOPIC = Topic("orders", slots=1)
STYLES = ("message", "async", "batch", "async batch")


def handler_of(style: str, work: Callable[[Message], None]) -> Any:
    return (batched if "batch" in style else handler)("async" in style, work)


@pytest.mark.parametrize("lost", ["before", "after"])
@pytest.mark.parametrize("style", STYLES)
def test_the_breaker_is_told_of_a_success_whose_mark_alone_was_missing(
    tmp_path: Path, style: str, lost: str
) -> None:
    """A failure before it and one after it are not two in a row."""
    engine = create_engine(f"sqlite:///{tmp_path}/effects.db")
    checker: Any = Late(DatabaseChecker(engine))
    app, handled, told = QFrame("model://"), [], []
    app.events.listen(lambda name, _: told.append(name))

    def handle(message: Message) -> None:
        handled.append(message.body)
        if message.body == "fails":
            raise ConnectionError

    app.consumer(
        TOPIC, "g", idempotent_checker=checker, breaker=Breaker(2), backoff=Backoff("1h", cap="1h"),
        batch=Batch(1, within=1) if "batch" in style else None,
    )(handler_of(style, handle))  # fmt: skip
    thread = threading.Thread(target=app.run)
    thread.start()
    for number, body in enumerate(["fails", "works", "fails"]):
        if body == "works":
            getattr(checker, lost)("finish_many", loses(CheckerUnavailable("checker", "away")))
        app.publish(TOPIC, body, key=f"k{number}")
        eventually(lambda number=number: told.count("delivery.settled") > number)
    assert not checker.waits
    app.stop()
    thread.join(60)
    assert not thread.is_alive()
    app.close()
    engine.dispose()
    assert handled == ["fails", "works", "fails"]
    assert "checker.unavailable" in told
    assert "consumer.tripped" not in told


@pytest.mark.parametrize("timeout", [None, "0.1s"], ids=["taken over", "overran"])
def test_what_a_stop_took_back_is_not_marked_as_its_handler_returns(
    tmp_path: Path, timeout: str | None
) -> None:
    """Its user took it over, and nobody has said that it is done; or it has overrun its time."""
    engine = create_engine(f"sqlite:///{tmp_path}/effects.db")
    checker: Any = DatabaseChecker(engine)
    app, handled = QFrame(f"sqlite:///{tmp_path}/store.db", grace=0.05), []
    begun, goes_on, has_ended = threading.Event(), threading.Event(), threading.Event()

    @app.consumer(TOPIC, "g", idempotent_checker=checker, lease="1s", timeout=timeout)
    def handle(message: Message) -> None:
        handled.append(message.attempt)
        if len(handled) == 1:
            if timeout is None:
                message.auto_ack = False
            else:
                eventually(lambda: message.cancelled)
            begun.set()
            goes_on.wait(60)
            has_ended.set()

    thread = threading.Thread(target=app.run)
    thread.start()
    app.publish(TOPIC, 1, key="k")
    assert begun.wait(60)
    app.stop()
    thread.join(60)
    assert not thread.is_alive()
    goes_on.set()
    assert has_ended.wait(60)
    eventually(lambda: not any(one.name.startswith("qframe.pool") for one in threading.enumerate()))
    app.run(burst=True)
    app.close()
    engine.dispose()
    assert handled == [1, 1]


@pytest.mark.promise(6, 9)
@pytest.mark.parametrize("style", [*STYLES, "acknowledged"])
def test_an_effect_that_is_being_finished_when_the_grace_ends_is_finished_and_settled(
    tmp_path: Path, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is not left under a lease, to be counted, or be dead, when that has expired."""
    engine = create_engine(f"sqlite:///{tmp_path}/effects.db")
    begun, goes_on = threading.Event(), threading.Event()
    checker: Any = Late(DatabaseChecker(engine))
    checker.before("finish_many", lambda: (begun.set(), goes_on.wait(60)))
    abandon = Consumer.abandon

    def abandons(consumer: Consumer) -> None:
        if "async" in style:  # it waits for its tasks
            threading.Timer(0.1, goes_on.set).start()
        abandon(consumer)
        if "async" not in style:
            threading.Timer(0.1, goes_on.set).start()

    monkeypatch.setattr(Consumer, "abandon", abandons)
    app = QFrame("model://", grace=0.01)

    def handle(message: Message) -> None:
        if style == "acknowledged":
            message.auto_ack = False
            threading.Thread(target=message.ack).start()

    app.consumer(
        TOPIC,
        "g",
        idempotent_checker=checker,
        batch=Batch(1, within=1) if "batch" in style else None,
    )(handler_of(style if style in STYLES else "message", handle))
    thread = threading.Thread(target=app.run)
    thread.start()
    app.publish(TOPIC, 1, key="k")
    assert begun.wait(60)
    app.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert not app.store.peek(TOPIC, "g", states=["todo", "doing", "dead"], limit=9)
    app.close()
    engine.dispose()
