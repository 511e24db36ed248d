"""What a pull whose answer was lost has handed out comes back before anything else is pulled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from eventually import eventually

from qframe import Message, Outgoing, QFrame, Topic
from qframe.errors import AnswerLost, StoreUnavailable
from qframe.stores.base import Ask


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_key_keeps_its_order_though_the_recall_fails_as_well(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("events", kind, slots=1)
    handled: list[int] = []
    calls: list[str] = []
    with QFrame("model://") as app:

        @app.consumer(topic, "g")
        def handle(message: Message) -> None:
            handled.append(message.body)

        app.publish_many(topic, [Outgoing(number, key="k") for number in range(5)])
        store = app.store
        # A worker has died with the first two in hand: they have left the line, and go first.
        store.take(topic, "g", {0: f"{1:016x}"})
        asks = [Ask(0, f"{1:016x}", 2)]
        store.pull(topic, "g", asks, receipt="r", lease_ms=60_000, max_attempts=16)
        pull, recall = store.pull, store.recall

        def lost_once(*arguments: Any, **options: Any) -> Any:
            answer = pull(*arguments, **options)
            calls.append("pull")
            if len(calls) == 1:
                raise AnswerLost("model://", "the connection was reset")
            return answer

        def away_twice(*arguments: Any) -> int:
            calls.append("recall")
            if calls.count("recall") <= 2:
                raise StoreUnavailable("model://", "it is away")
            return recall(*arguments)

        monkeypatch.setattr(store, "pull", lost_once)
        monkeypatch.setattr(store, "recall", away_twice)
        thread = threading.Thread(target=app.run)
        thread.start()
        eventually(lambda: len(handled) >= 5)
        app.stop()
        thread.join()
        assert app.admin.verify("events") == []
    assert calls[:5] == ["pull", "recall", "recall", "recall", "pull"]
    assert handled == [0, 1, 2, 3, 4]
