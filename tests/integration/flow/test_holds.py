"""A key is paused in the workers that run: it waits in its order, and all others go on."""

from __future__ import annotations

import threading

import pytest
from eventually import eventually

from qframe import Message, Outgoing, QFrame, Topic


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_paused_key_waits_in_its_order_while_the_others_of_its_slot_go_on(
    each_app: QFrame, kind: str
) -> None:
    topic = Topic("work", kind, slots=1)  # type: ignore[call-overload]
    handled: list[tuple[str, int]] = []

    @each_app.consumer(topic, group="g", threads=4)
    def handle(body: int, message: Message) -> None:
        handled.append((message.key or "", body))

    each_app.declare(topic)
    each_app.store.subscribe(topic, "g")
    each_app.admin.pause("work", "g", key="a", why="its account is being mended")
    thread = threading.Thread(target=each_app.run)
    thread.start()
    try:
        numbers = [Outgoing(n, key="ab"[n % 2]) for n in range(40)]
        each_app.publish_many(topic, numbers)
        eventually(lambda: len(handled) == 20)
        assert [number for _, number in handled] == list(range(1, 40, 2))
        each_app.admin.resume("work", "g", key="a")
        eventually(lambda: len(handled) == 40)
        assert [number for key, number in handled if key == "a"] == list(range(0, 40, 2))
    finally:
        each_app.stop()
        thread.join(60)
    assert each_app.admin.stats("work", "g")[0].settled == 40


def test_a_burst_does_not_wait_for_a_paused_key_and_takes_no_attempt_of_it(
    each_app: QFrame,
) -> None:
    topic = Topic("work", "ordered", slots=1)
    attempts: list[tuple[str, int]] = []

    @each_app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        attempts.append((message.key or "", message.attempt))

    each_app.declare(topic)
    each_app.store.subscribe(topic, "g")
    each_app.admin.pause("work", key="a")
    each_app.publish(topic, 1, key="a")
    each_app.publish(topic, 2, key="b")
    each_app.run(burst=True)
    assert attempts == [("b", 1)]
    each_app.admin.resume("work", key="a")
    each_app.run(burst=True)
    assert attempts == [("b", 1), ("a", 1)]


@pytest.mark.gate
@pytest.mark.parametrize("taken_by", ["skip", "seek"])
def test_a_handler_whose_message_is_taken_away_sees_that_it_is_cancelled_long_before_it_renews(
    each_app: QFrame, taken_by: str
) -> None:
    topic = Topic("work", "ordered" if taken_by == "skip" else "stream", slots=1)
    begun, cancelled, over = threading.Event(), threading.Event(), threading.Event()

    @each_app.consumer(topic, group="g", lease="1h")
    def handle(body: int, message: Message) -> None:
        begun.set()
        eventually(lambda: message.cancelled or over.is_set())
        if message.cancelled:
            cancelled.set()

    each_app.declare(topic)
    each_app.store.subscribe(topic, "g")
    each_app.publish(topic, 1, key="a", id="m")
    thread = threading.Thread(target=each_app.run)
    thread.start()
    try:
        assert begun.wait(60)
        if taken_by == "skip":
            each_app.admin.skip(topic, "g", "a", force=True)
        else:
            each_app.admin.seek(topic, "g", to="latest")
        assert cancelled.wait(30)
    finally:
        over.set()
        each_app.stop()
        thread.join(60)
