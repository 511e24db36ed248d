"""A subscription that breaks may have missed something, of any slot."""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.mark.promise(8)
@pytest.mark.parametrize("payload", [b"", b"hello", b"1.5", b"\xff"])
def test_a_bell_rings_for_any_slot_where_another_program_publishes_what_is_no_slot(
    redis_server: RedisServer, tmp_path: Path, payload: bytes
) -> None:
    """It ended the pull loop of each idle worker, and so the workers."""
    store = RedisStore(redis_server.url, namespace=tmp_path.name)
    topic = Topic("t", slots=4)
    store.declare(topic)
    bell = store.bell([topic])
    for channel in (f"qf:bell:{tmp_path.name}:t", bell.address):
        while bell.wait(0):
            pass
        bell.hints()
        with redis_server.client() as client:
            assert client.publish(channel, payload) == 1
        assert bell.wait(60)
        assert bell.hints() is None
        assert bell.late() == []
    bell.close()
    store.close()
