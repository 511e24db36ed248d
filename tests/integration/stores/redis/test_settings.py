"""What the settings of a Redis server do to messages, as docs/guarantees.md has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import RedisServer

from qframe import Outgoing, QFrame, Topic
from qframe.errors import BadUrl, StoreFull
from qframe.outcomes import Settled
from qframe.stores.types import PullRequest, PullTerms

COUNT = 2000
EPOCH = f"{1:016x}"
TOPICS = [Topic("stream", slots=4), Topic("ordered", "ordered", slots=4)]


@pytest.mark.promise(1)
def test_a_killed_server_comes_back_with_all_that_was_published_and_settled(
    tmp_path: Path,
) -> None:
    """With `appendfsync always`: one that flushes each second may hold back what a kill takes."""
    seen: list[int] = []

    def opened(url: str) -> QFrame:
        app = QFrame(store=url)
        for topic in TOPICS:

            @app.consumer(topic, group="g", threads=2)
            def handle(number: int) -> None:
                seen.append(number)

        return app

    with RedisServer(tmp_path / "server", aof=True) as server:
        with opened(server.url) as app:
            for topic in TOPICS:
                app.publish_many(topic, [Outgoing(n, key=str(n % 50)) for n in range(COUNT)])
            app.run(burst=True)
            for topic in TOPICS:
                app.publish_many(topic, [Outgoing(n, key="k") for n in range(COUNT, 2 * COUNT)])
            server.kill()
        server.restart()
        with opened(server.url) as app:
            app.run(burst=True)
            assert sorted(seen) == sorted([*range(2 * COUNT)] * 2)
            assert app.admin.verify() == []


@pytest.mark.promise(8)
@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_a_full_server_takes_nothing_more_and_gives_what_it_has(
    tmp_path: Path, topic: Topic
) -> None:
    with RedisServer(tmp_path / "server") as server, QFrame(store=server.url) as app:
        app.declare(topic)
        store = app.store
        store.subscribe(topic, "g")
        app.publish_many(topic, [Outgoing(f"{n}", key=str(n)) for n in range(COUNT)])
        server.call("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(StoreFull):
            app.publish(topic, "more", key="k")
        epochs = dict.fromkeys(range(topic.slots), EPOCH)
        assert store.take(topic, "g", epochs) == list(epochs)
        asks = [PullRequest(slot, EPOCH, COUNT) for slot in epochs]
        deliveries = store.pull(topic, "g", asks, PullTerms("r", 60_000, 16)).deliveries
        assert len(deliveries) == COUNT
        assert set(store.acknowledge(topic, "g", deliveries, epochs)) == {Settled.SETTLED}
        assert (app.admin.lag(topic, "g"), app.admin.verify()) == (0, [])
        server.call("CONFIG", "SET", "maxmemory", 0)
        assert app.publish(topic, "more", key="k").outcome == "stored"


def test_a_server_that_evicts_is_refused(tmp_path: Path) -> None:
    config = {"maxmemory-policy": "allkeys-lru"}
    with (
        RedisServer(tmp_path / "server", config=config) as server,
        QFrame(store=server.url) as app,
        pytest.raises(BadUrl, match="which evicts messages"),
    ):
        app.publish(TOPICS[0], 1)
