"""A cluster whose slots move, and one of whose nodes is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from redis.crc import key_slot
from servers import RedisCluster3
from serving import Publishing, Serving

from qframe import PublishUnknown, StoreUnavailable, Topic
from qframe.drivers import redis as driver

SLOTS = 4
NAMESPACE = "qframe"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster3]:
    with RedisCluster3(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def hash_slot(topic: Topic, slot: int) -> int:
    """The hash slot in which a topic's slot lies."""
    return key_slot(f"{NAMESPACE}:{topic.name}:{slot}".encode())


@pytest.mark.parametrize("kind", ["stream", "ordered", "priority"])
def test_a_slot_moves_under_load_and_nothing_is_lost_and_keys_keep_their_order(
    cluster: RedisCluster3, kind: str
) -> None:
    topic = Topic(f"moving-{kind}", kind=kind, slots=SLOTS)
    moving = hash_slot(topic, 1)
    node = cluster.node_of(moving)
    # Equal keys replace each other in `priority`, so there each has its own.
    keys = 10**6 if kind == "priority" else 32
    with Serving(cluster.url, topic) as serving:
        with Publishing(serving.app, topic, keys=keys) as publishing:
            publishing.await_more(100)
            for step in (1, 2):
                cluster.migrate_slot(moving, (node + step) % 3, pause_s=0.15, batch=2)
                publishing.await_more(100)
            publishing.finish()
        serving.await_bodies(set(publishing.done))
        serving.verify()
        assert publishing.unknown == publishing.unavailable == 0
        assert sorted(serving.bodies) == publishing.done
        if kind == "ordered":
            for bodies in serving.by_key.values():
                assert bodies == sorted(bodies)


def keys_of(topic: Topic) -> list[str]:
    """A key for each slot of a topic."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < topic.slots:
        found.setdefault(topic.slot_of(f"k{number}".encode()), f"k{number}")
        number += 1
    return [found[slot] for slot in range(topic.slots)]


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_dead_node_stops_its_own_slots_only_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(driver, "PATIENCE_S", 0.5)
    topic = Topic("t", kind=kind, slots=SLOTS)
    keys = keys_of(topic)
    with RedisCluster3(tmp_path, aof=True) as cluster:
        for server in cluster.servers:
            server.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
        nodes = [cluster.node_of(hash_slot(topic, slot)) for slot in range(SLOTS)]
        dead = nodes[0]
        on_dead = [keys[slot] for slot in range(SLOTS) if nodes[slot] == dead]
        others = [keys[slot] for slot in range(SLOTS) if nodes[slot] != dead]
        assert others
        with Serving(cluster.url, topic) as serving:
            publish = serving.app.publish
            for key in keys:
                publish(topic, f"{key} before", key=key)
            serving.await_bodies({f"{key} before" for key in keys})
            cluster.servers[dead].kill()
            for key in on_dead:
                with pytest.raises((StoreUnavailable, PublishUnknown)):
                    publish(topic, f"{key} refused", key=key)
            for round_ in range(20):
                for key in others:
                    publish(topic, f"{key} {round_}", key=key)
            meanwhile = {f"{key} {round_}" for key in others for round_ in range(20)}
            eventually(lambda: meanwhile <= set(serving.bodies), within=20)
            cluster.servers[dead].restart()

            def is_back() -> bool:
                try:
                    for key in on_dead:
                        publish(topic, f"{key} after", key=key)
                except (StoreUnavailable, PublishUnknown):
                    return False
                return True

            eventually(is_back, within=20)
            serving.await_bodies({f"{key} after" for key in on_dead} | meanwhile)
            serving.verify()
            assert len([body for body in serving.bodies if body in meanwhile]) == len(meanwhile)
