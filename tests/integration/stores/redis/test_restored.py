"""Parts of a topic that are restored again: a copy may break off after any of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bench import Bench
from servers import RedisServer
from test_copying import filled

from qframe.admin.copying import copy_topic
from qframe.drivers.scripts import Refused
from qframe.stores.base import Store
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.store import RedisStore
from qframe.stores.searching import sections_of
from qframe.topic import Topic


@pytest.fixture
def bench(redis_server: RedisServer, tmp_path: Path) -> Iterator[Bench]:
    def opened(namespace: str) -> Store:
        return RedisStore(redis_server.url, namespace=namespace)

    made = Bench(opened, lambda _: None, tmp_path.name)
    yield made
    made.store.close()


def dumped(store: RedisStore, topic: Topic) -> dict[bytes, bytes | int]:
    """All that a topic's slots have; of a log its entries, whose form may differ."""
    redis = store._redis
    found: dict[bytes, bytes | int] = {}
    for slot in topic.all_slots:
        prefix = SlotKeys(store.namespace, topic).key(slot, "")
        for key in redis.ask(prefix + b"*", "KEYS"):
            is_log = key == prefix + b"log"
            found[key] = (
                str(redis.ask(key, "XRANGE", "-", "+")) if is_log else redis.ask(key, "DUMP")
            )  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority"])
def test_what_is_restored_again_changes_nothing(
    bench: Bench, redis_server: RedisServer, kind: str
) -> None:
    topic = filled(bench, kind)
    source = bench.store
    with closing(RedisStore(redis_server.url, namespace=f"copy-{topic.name}")) as target:
        copy_topic(source, target, topic, by="ada")
        assert target.verify(topic) == []
        before = dumped(target, topic)
        for section in sections_of(topic, source.groups(topic)):
            records = source.section(topic, section, limit=1000).records
            target.restore(topic, section, records)
        assert target.verify(topic) == []
        after = dumped(target, topic)
        assert after.keys() == before.keys()
        assert [key for key in after if after[key] != before[key]] == []


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
