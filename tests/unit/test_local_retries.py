"""A handler that asks to be called again at once finds its message as it was handed out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from qframe import Batch, DatabaseChecker, Message, NeedRetry, QFrame, Topic

TOPIC = Topic("orders", slots=1)
Seen = list[tuple[int, int, bool]]
STYLES = ("message", "batch", "async", "async batch")
CHECKERS: dict[str, Callable[..., Any]] = {
    "unchecked": lambda engine: None,
    "marked": DatabaseChecker,
}


def look(message: Message, seen: Seen) -> None:
    """Takes the message over the first time, and means to return plainly the second time."""
    seen.append((message.attempt, message.local_retries, message.auto_ack))
    if len(seen) == 1:
        message.auto_ack = False
        raise NeedRetry


def handler_of(style: str, seen: Seen) -> Callable[..., Any]:
    def handle(message: Message) -> None:
        look(message, seen)

    async def handle_soon(message: Message) -> None:
        look(message, seen)

    def handle_batch(messages: list[Message]) -> None:
        look(messages[0], seen)

    async def handle_batch_soon(messages: list[Message]) -> None:
        look(messages[0], seen)

    handlers = (handle, handle_batch, handle_soon, handle_batch_soon)
    return dict(zip(STYLES, handlers, strict=True))[style]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_message_that_was_taken_over_is_the_workers_again_when_its_handler_asks_for_a_retry(
    tmp_path: Path, style: str, checker: str
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/effects.db")
    app, seen = QFrame("model://"), []
    app.consumer(
        TOPIC, "g", idempotent_checker=CHECKERS[checker](engine),
        batch=Batch(1, 1) if "batch" in style else None,
    )(handler_of(style, seen))  # fmt: skip
    with app:
        app.publish(TOPIC, 1, key="k")
        app.run(burst=True)
    engine.dispose()
    assert seen == [(1, 0, True), (1, 1, True)]
