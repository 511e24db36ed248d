"""A server that writes each change to its file before it answers is killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from servers import RedisServer
from serving import Serving

from qframe import Outgoing, QFrame, Topic
from qframe.drivers import redis as driver
from qframe.runtime.process import outage

pytestmark = pytest.mark.promise(1)

KINDS = ("stream", "ordered")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path, aof=True) as server:
        yield server


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_published_before_a_kill_is_handled_after_it(
    server: RedisServer, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=4)
    with QFrame(store=server.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(500)], batch=50)
        app.publish(topic, "later", key="later", delay=0.2)
        server.kill()
        server.restart()
        assert app.publish(topic, 500, key="k").outcome == "stored"
    with Serving(server.url, topic) as serving:
        serving.await_bodies({*range(501), "later"})
        serving.verify()
        assert len(serving.seen) == 502
        assert serving.attempts == {1: 502}


def test_a_worker_tells_that_the_server_is_away_and_that_it_is_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PATIENCE_S", 0.2)
    monkeypatch.setattr(outage, "QUIET_S", 4.0)
    with Serving(server.url, Topic("t", slots=4)) as serving:
        server.kill()
        eventually(lambda: serving.events["store.unavailable"] >= 2)
        assert not serving.events["store.back"]
        server.restart()
        eventually(lambda: serving.events["store.back"])
        assert serving.events["store.back"] == 1
