"""A cluster whose slots move, and one of whose nodes is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from redis.crc import key_slot
from serving import Publishing, Serving
from servers import RedisCluster3

from qframe import Outgoing, PublishUnknown, QFrame, StoreUnavailable, Topic
from qframe.drivers import redis as driver

SLOTS = 4
NAMESPACE = "qframe"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster3]:
    with RedisCluster3(tmp_path) as cluster:
        yield cluster


def hash_slot(topic: Topic, slot: int) -> int:
    """The hash slot in which a topic's slot lies."""
    return key_slot(f"{NAMESPACE}:{topic.name}:{slot}".encode())


@pytest.mark.parametrize("kind", ["stream", "ordered", "priority"])
def test_a_slot_moves_under_load_and_nothing_is_lost_and_keys_keep_their_order(
    cluster: RedisCluster3, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=SLOTS)
    moving = hash_slot(topic, 1)
    node = cluster.node_of(moving)
    with Serving(cluster.url, topic) as serving:
        with Publishing(serving.app, topic, keys=32) as publishing:
            publishing.await_more(100)
            for step in (1, 2):
                cluster.migrate_slot(moving, (node + step) % 3, pause_s=0.15, batch=2)
                publishing.await_more(100)
            publishing.finish()
        serving.await_bodies(set(publishing.done[-100:]))
        serving.verify()
        assert publishing.unknown == publishing.unavailable == 0
        if kind == "priority":
            return
        assert set(serving.bodies) == set(publishing.done)
        if kind == "ordered":
            for bodies in serving.by_key.values():
                assert bodies == sorted(set(bodies))
