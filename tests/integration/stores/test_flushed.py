"""A store is emptied under its workers: what is published afterwards is handled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from servers import RedisServer
from serving import Serving

from qframe import Message, Topic


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "server") as server:
        yield server


@pytest.mark.parametrize("how", ["everything", "a slot"])
@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_worker_whose_redis_is_flushed_declares_its_topic_again_and_goes_on(
    server: RedisServer, kind: str, how: str
) -> None:
    topic = Topic("orders", kind, slots=4)
    with Serving(server.url, topic) as serving, server.client() as client:
        for number in range(8):
            serving.app.publish(topic, number, key=f"k{number}")
        serving.await_bodies(set(range(8)))
        if how == "everything":
            client.flushall()
        else:
            client.delete(*client.keys("qf:{qframe:orders:2}:*"))
        # A worker that sleeps till its bell rings hears of it with the next message of a slot.
        for number in range(8, 40):
            serving.app.publish(topic, number, key=f"k{number}")
        eventually(lambda: serving.failure or set(serving.bodies) >= set(range(8, 40)))
        assert serving.failure is None
        assert serving.events["store.forgot"] >= 1
        assert serving.app.admin.groups("orders") == ["g"]
        eventually(lambda: serving.app.admin.verify("orders") == [])


def test_all_groups_of_a_worker_survive_though_one_of_them_declares_the_topic_for_all(
    server: RedisServer,
) -> None:
    topic = Topic("orders", slots=2)
    others: dict[str, set[object]] = {"h": set(), "i": set(), "j": set()}
    serving = Serving(server.url, topic)
    for group, seen in others.items():

        def handle(message: Message, seen: set[object] = seen) -> None:
            seen.add(message.body)

        serving.app.consumer(topic, group=group)(handle)
    with serving, server.client() as client:
        serving.app.publish(topic, 0)
        serving.await_bodies({0})
        for flush in range(1, 4):
            client.flushall()
            numbers = {flush * 100 + number for number in range(10)}
            for number in numbers:
                serving.app.publish(topic, number)
            serving.await_bodies(numbers)
            eventually(lambda sought=numbers: all(sought <= seen for seen in others.values()))
        assert serving.failure is None
        eventually(lambda: serving.app.admin.verify("orders") == [])


def test_a_group_that_somebody_has_dropped_still_ends_its_worker(server: RedisServer) -> None:
    topic = Topic("orders", slots=1)
    with Serving(server.url, topic) as serving:
        serving.app.publish(topic, 1)
        serving.await_bodies({1})
        serving.app.admin.drop_group("orders", "g", force=True)
        serving.app.publish(topic, 2)
        eventually(lambda: serving.failure)
        assert "it has never subscribed to topic 'orders'" in str(serving.failure)
