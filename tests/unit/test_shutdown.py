"""The order in which a worker ends: what its settlers have still to send comes before its leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from qframe import Message, QFrame, Topic
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.executors.thread_executor import ThreadExecutor
from qframe.runtime.feed.lease_renewer import LeaseRenewer
from qframe.runtime.feed.pull_loop import PullLoop
from qframe.runtime.feed.settler import Settler
from qframe.stores.model.store import ModelStore

FIRST, SECOND = Topic("first", slots=1), Topic("second", slots=1)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which part was ended, in order; one that is ended again, or begins again, is told once."""
    found: list[str] = []

    def note(owner: type, name: str, step: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def noted(self: Any, *arguments: Any, **options: Any) -> Any:
            found.append(step)
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, name, noted)

    note(PullLoop, "stop", "pulling")
    note(Consumer, "abandon", "abandon")
    note(ThreadExecutor, "stop", "pool")
    note(Settler, "stop", "settler")
    note(LeaseRenewer, "stop", "renewal")
    note(Consumer, "leave", "leave")
    note(ModelStore, "leave", "left")
    note(Consumer, "close", "close")
    return found


def test_slots_are_left_when_all_that_was_in_hand_has_been_sent_and_leases_are_kept_till_then(
    steps: list[str],
) -> None:
    gate, begun = threading.Event(), threading.Barrier(3)
    app = QFrame(store="model://", grace=0)

    def hold(message: Message) -> None:
        begun.wait(60)
        gate.wait(60)

    for topic in (FIRST, SECOND):
        app.consumer(topic, "g")(hold)
        app.publish(topic, 1, key="k")
    store = app.store
    thread = threading.Thread(target=app.run)
    thread.start()
    begun.wait(60)
    app.stop()
    thread.join(60)
    assert not thread.is_alive()
    last_sent = max(place for place, step in enumerate(steps) if step == "settler")
    assert last_sent < steps.index("leave") < steps.index("left")
    assert list(dict.fromkeys(steps)) == [
        "pulling", "abandon", "pool", "settler", "renewal", "leave", "left", "close",
    ]  # fmt: skip
    for topic in (FIRST, SECOND):
        [record] = store.peek(topic, "g", states=["todo", "doing"], limit=9)
        assert (record.state, record.attempts) == ("todo", 0)
    gate.set()
    app.close()
