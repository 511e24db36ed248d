"""A key's numbered messages that waited for one of them: they go on in steps, in their order."""

from __future__ import annotations

import pytest

from qframe import Message, Outgoing, QFrame, Topic


@pytest.mark.promise(3)
def test_a_long_run_is_let_go_in_steps_and_handled_in_order(each_app: QFrame) -> None:
    number = 1300
    topic = Topic("t", kind="ordered", slots=1)
    seen: list[int] = []

    @each_app.consumer(topic, "g")
    def handle(message: Message) -> None:
        seen.append(message.body)

    each_app.declare(topic)
    each_app.store.subscribe(topic, "g")
    each_app.publish_many(topic, [Outgoing(n, key="k", sequence=n) for n in range(2, number + 1)])
    each_app.publish(topic, 1, key="k", sequence=1)
    [stats] = each_app.store.stats(topic, "g")
    assert stats.waiting == number - 500  # held still, and overdue at once
    each_app.run(burst=True)
    assert seen == list(range(1, number + 1))
    assert each_app.store.verify(topic) == []
