"""A subscription that breaks may have missed something, of any slot."""

from __future__ import annotations

from pathlib import Path

from servers import RedisServer

from qframe.stores.redis.store import RedisStore
from qframe.topic import Topic


def test_a_bell_that_was_cut_off_rings_for_any_slot(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    store = RedisStore(redis_server.url, namespace=tmp_path.name)
    topic = Topic("t", slots=4)
    store.declare(topic)
    bell = store.bell([topic])
    while bell.wait(0):
        pass
    bell.hints()
    with redis_server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    assert bell.wait(60)
    assert bell.hints() is None
    bell.close()
    store.close()
