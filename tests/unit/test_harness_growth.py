"""A harness serves a topic that grows in the midst of a test."""

from __future__ import annotations

import pytest

from qframe import Message, QFrame, Topic
from qframe.stores.doubling import Doubling
from qframe.testing import Harness

KEYS = [f"k{number}" for number in range(7)]


@pytest.mark.promise(1, 3)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_messages_from_before_and_after_a_doubling_are_handled_in_the_order_of_their_keys(
    kind: str,
) -> None:
    app = QFrame("model://")
    topic = Topic("t", kind=kind, slots=2)
    seen: list[tuple[str | None, int]] = []
    events: list[list[int]] = []

    @app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        seen.append((message.key, message.body))

    def owned(grown: Topic, group: str) -> set[int]:
        coordinator = app.parts.opened.coordinator
        assert coordinator is not None
        return set(coordinator.roster(grown, group).owners)

    with Harness(app) as harness:
        app.events.listen(
            lambda name, facts: events.append(facts["slots"]) if name == "topic.grown" else None
        )
        for number in range(60):
            if number == 30:
                doubling = Doubling(app.store, "t", owned=owned, pause=lambda _: None)
                doubling.finish(doubling.begin(8))
            harness.publish(topic, number, key=KEYS[number % len(KEYS)])
            if number % 20 == 0:
                harness.run_until_idle()
        harness.drain()
        assert app.store.verify(topic) == []
    assert sorted(body for _, body in seen) == list(range(60))
    for key in KEYS:
        bodies = [body for each, body in seen if each == key]
        assert bodies == sorted(bodies)
    assert events == [list(range(6, 14))]
