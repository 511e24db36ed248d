"""A lone message of a quick handler has no way to another thread; a slow one holds nothing up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from apps import running
from eventually import eventually
from servers import RedisServer

from qframe import Message, QFrame, Topic


@pytest.fixture(params=["model", "redis"])
def app(request: pytest.FixtureRequest) -> Iterator[QFrame]:
    url = "model://"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        url = server.url
    with QFrame(url, grace=5) as app:
        yield app
        for topic in app.store.topics():
            assert app.store.verify(topic) == []


@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.promise(3, 5)
def test_a_quick_handler_runs_where_its_message_was_pulled_and_a_slow_one_delays_nobody(
    app: QFrame, kind: str
) -> None:
    topic = Topic(kind, kind, slots=4)
    ran: dict[int, str] = {}
    opens = threading.Event()

    @app.consumer(topic, "g", threads=2)
    def handle(message: Message) -> None:
        if message.body == -1:
            assert opens.wait(60)
        ran[message.body] = threading.current_thread().name

    with running(app):
        number = 0

        def next_one() -> str:
            nonlocal number
            number += 1
            app.publish(topic, number, key=f"k{number % 7}")
            eventually(lambda: number in ran)
            return ran[number]

        eventually(lambda: next_one() == f"qframe.pull.{kind}.g")
        app.publish(topic, -1, key="slow")
        for _ in range(20):
            next_one()
        assert -1 not in ran
        opens.set()
        eventually(lambda: -1 in ran)
        eventually(lambda: next_one() == f"qframe.pull.{kind}.g")
