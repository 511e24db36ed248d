"""A key is paused in the workers that run: it waits in its order, and all others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from servers import RedisServer

from qframe import Message, Outgoing, QFrame, Topic


@pytest.fixture(params=["sqlite", "redis"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QFrame]:
    store, namespace = f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal", "shop"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        store, namespace = server.url, tmp_path.name
    with QFrame(store, namespace=namespace, grace=5) as app:
        yield app
        assert app.admin.verify() == []


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_paused_key_waits_in_its_order_while_the_others_of_its_slot_go_on(
    app: QFrame, kind: str
) -> None:
    topic = Topic("work", kind, slots=1)  # type: ignore[call-overload]
    handled: list[tuple[str, int]] = []

    @app.consumer(topic, group="g", threads=4)
    def handle(body: int, message: Message) -> None:
        handled.append((message.key or "", body))

    app.declare(topic)
    app.store.subscribe(topic, "g")
    app.admin.pause("work", "g", key="a", why="its account is being mended")
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        numbers = [Outgoing(n, key="ab"[n % 2]) for n in range(40)]
        app.publish_many(topic, numbers)
        eventually(lambda: len(handled) == 20)
        assert [number for _, number in handled] == list(range(1, 40, 2))
        app.admin.resume("work", "g", key="a")
        eventually(lambda: len(handled) == 40)
        assert [number for key, number in handled if key == "a"] == list(range(0, 40, 2))
    finally:
        app.stop()
        thread.join(60)
    assert app.admin.stats("work", "g")[0].settled == 40


def test_a_burst_does_not_wait_for_a_paused_key_and_takes_no_attempt_of_it(app: QFrame) -> None:
    topic = Topic("work", "ordered", slots=1)
    attempts: list[tuple[str, int]] = []

    @app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        attempts.append((message.key or "", message.attempt))

    app.declare(topic)
    app.store.subscribe(topic, "g")
    app.admin.pause("work", key="a")
    app.publish(topic, 1, key="a")
    app.publish(topic, 2, key="b")
    app.run(burst=True)
    assert attempts == [("b", 1)]
    app.admin.resume("work", key="a")
    app.run(burst=True)
    assert attempts == [("b", 1), ("a", 1)]
