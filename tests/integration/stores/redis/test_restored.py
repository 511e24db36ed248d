"""Parts of a topic that are restored again: a copy may break off after any of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench
from servers import RedisServer

from qframe.drivers.scripts import Refused
from qframe.stores.base import Store
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.store import RedisStore


@pytest.fixture
def bench(redis_server: RedisServer, tmp_path: Path) -> Iterator[Bench]:
    def opened(namespace: str) -> Store:
        return RedisStore(redis_server.url, namespace=namespace)

    made = Bench(opened, lambda _: None, tmp_path.name)
    yield made
    made.store.close()


@pytest.mark.gate
def test_a_slot_that_is_closed_takes_only_what_comes_under_its_token(
    bench: Bench, redis_server: RedisServer
) -> None:
    topic = bench.topic("delay", "g", slots=1)
    redis = bench.store._redis  # type: ignore[attr-defined]
    keys = SlotKeys(bench.store.namespace, topic)
    redis.ask(keys.key(0, "closed"), "SET", 1)
    redis.ask(keys.key(0, "opened"), "SET", "first")

    for token in ("", "other"):
        with pytest.raises(Refused):
            redis.one(keys.call("restore", 0, "", "delay", "g", "heads", token, "next"))
    for token in ("first", "first"):  # the second time its reply had been lost
        assert redis.one(keys.call("restore", 0, "", "delay", "g", "heads", token, "next")) == 0
        assert redis.ask(keys.key(0, "opened"), "GET") == b"next"
