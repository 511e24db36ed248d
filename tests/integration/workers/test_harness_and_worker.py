"""What a harness shows is what a real worker does."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from qframe import Message, NeedRetry, QFrame, Reject, Topic
from qframe.testing import Harness

Calls = dict[str, list[tuple[Any, int, int]]]


def shop(store: str, topic: Topic) -> tuple[QFrame, Calls, list[Any]]:
    """An app whose handler does with each message what its body says."""
    app = QFrame(store=store)
    calls: Calls = defaultdict(list)
    mourned: list[Any] = []

    @app.consumer(
        topic, group="g", threads=1, max_attempts=3, backoff="5ms", auto_ack=False,
        on_dead=lambda message, error: mourned.append((message.body, str(error))),
    )  # fmt: skip
    def handle(message: Message) -> None:
        calls[message.key or ""].append((message.body, message.attempt, message.local_retries))
        match message.body:
            case ["fails", _]:
                raise ValueError("always")
            case ["fails once", _] if message.attempt == 1:
                raise ValueError("once")
            case ["in place", _] if message.local_retries < 2:
                raise NeedRetry
            case ["always in place", _]:
                raise NeedRetry
            case ["later", _] if message.attempt == 1:
                raise NeedRetry(delay="10ms")
            case ["rejected", _]:
                raise Reject("no")
            case ["forgotten", _] if message.attempt == 1:
                return
            case ["given an error", _]:
                message.ack(error=ValueError("given"))
                return
        message.ack()

    return app, calls, mourned


def publish_all(app: QFrame, topic: Topic) -> None:
    kinds = ("fine", "fails", "fails once", "in place", "always in place", "later", "rejected",
             "forgotten", "given an error", "fine")  # fmt: skip
    for key in ("a", "b"):
        for number, what in enumerate(kinds):
            app.publish(topic, [what, number], key=key)


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_worker_calls_a_keys_handlers_as_the_harness_does(tmp_path: Path, kind: str) -> None:
    topic = Topic(kind, kind=kind, slots=2)
    app, calls, mourned = shop(f"sqlite:///{tmp_path / 'q.db'}", topic)
    with Harness(app) as harness:
        publish_all(app, topic)
        harness.drain()
        seen = sorted(map(str, harness.dead(topic, "g")))
        harness_calls, harness_mourned = dict(calls), list(mourned)
    calls.clear()
    mourned.clear()
    with app:
        publish_all(app, topic)
        app.run(drain=True)
        dead = app.admin.dead(topic, "g")
    if kind == "stream":  # what has left its line comes back by its time, beside the others
        harness_calls = {key: sorted(each, key=str) for key, each in harness_calls.items()}
        calls = {key: sorted(each, key=str) for key, each in calls.items()}
    assert dict(calls) == harness_calls
    assert sorted(mourned, key=str) == sorted(harness_mourned, key=str)
    assert len(dead) == len(seen) == 8
