"""A lone message of a quick handler has no way to another thread; a slow one holds nothing up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apps import running
from eventually import eventually
from servers import RedisServer
from sqlalchemy import create_engine

from qframe import DatabaseChecker, Message, QFrame, Topic


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


@pytest.mark.parametrize("guarantee", ["settled first", "marked"])
def test_a_handler_whose_effect_is_guarded_by_a_server_runs_in_threads_of_its_own(
    guarantee: str, tmp_path: Path
) -> None:
    topic = Topic("letters", "stream", slots=2)
    ran: list[str] = []
    with QFrame("model://", grace=5) as app:
        app.declare(topic)
        options: dict[str, Any] = {"at_most_once": True}
        if guarantee == "marked":
            engine = create_engine(f"sqlite:///{tmp_path / 'marks.db'}")
            options = {"idempotent_checker": DatabaseChecker(engine)}

        @app.consumer(topic, "g", **options)
        def handle(message: Message) -> None:
            ran.append(threading.current_thread().name)

        with running(app):
            for number in range(30):
                app.publish(topic, number)
                eventually(lambda number=number: len(ran) > number)
        assert app.admin.verify("letters") == []
    assert {name.rpartition(".")[0] for name in ran} == {"qframe.pool.letters.g"}
