"""A handler that asks to be called again at once finds its message as it was handed out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apps import batched, handler
from sqlalchemy import create_engine

from qframe import Batch, DatabaseChecker, Message, NeedRetry, QFrame, Topic
from qframe.retry import NeedTime

TOPIC = Topic("orders", slots=1)
STYLES = ("message", "batch", "async", "async batch")
CHECKERS: dict[str, Callable[..., Any]] = {
    "unchecked": lambda engine: None,
    "marked": DatabaseChecker,
}


def handler_of(style: str, work: Callable[[Message], None]) -> Any:
    return (batched if "batch" in style else handler)("async" in style, work)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_message_that_was_taken_over_is_the_workers_again_when_its_handler_asks_for_a_retry(
    tmp_path: Path, style: str, checker: str
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/effects.db")
    app, seen = QFrame("model://"), []

    def look(message: Message) -> None:
        """Takes the message over the first time, and means to return plainly the second time."""
        seen.append((message.attempt, message.local_retries, message.auto_ack))
        if len(seen) == 1:
            message.auto_ack = False
            raise NeedRetry

    app.consumer(
        TOPIC, "g", idempotent_checker=CHECKERS[checker](engine),
        batch=Batch(1, within=1) if "batch" in style else None,
    )(handler_of(style, look))  # fmt: skip
    with app:
        app.publish(TOPIC, 1, key="k")
        app.run(burst=True)
    engine.dispose()
    assert seen == [(1, 0, True), (1, 1, True)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_message_may_wait_in_its_worker_as_often_as_it_has_to_and_no_attempt_is_counted(
    tmp_path: Path, style: str, checker: str
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/effects.db")
    app, seen = QFrame("model://"), []

    def wait(message: Message) -> None:
        seen.append(message.attempt)
        if len(seen) <= 5:
            raise NeedTime("not yet", 0.01)

    app.consumer(
        TOPIC, "g", idempotent_checker=CHECKERS[checker](engine), max_attempts=1, local_retries=0,
        batch=Batch(1, within=1) if "batch" in style else None,
    )(handler_of(style, wait))  # fmt: skip
    with app:
        app.publish(TOPIC, 1, key="k")
        app.run(burst=True)
        assert app.admin.lag(TOPIC, "g") == 0
        assert list(app.admin.dead(TOPIC, "g")) == []
    engine.dispose()
    assert seen == [1] * 6
