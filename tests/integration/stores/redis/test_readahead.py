"""A log that is read ahead of its pulls: what could not be read is not taken for missing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from databases import entry
from redis import Redis
from servers import RedisServer

from qframe.errors import StoreUnavailable
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import PullRequest, PullResult, PullTerms
from qframe.topic import Topic

pytestmark = pytest.mark.gate

TOPIC = Topic("log", "stream", slots=1)
EPOCH = f"{1:016x}"


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RedisStore]:
    with Redis.from_url(redis_server.url) as client:
        client.flushall()
    store = RedisStore(redis_server.url)
    store.declare(TOPIC)
    store.subscribe(TOPIC, "g")
    store.take(TOPIC, "g", {0: EPOCH})
    entries = [entry(TOPIC, n, f"k{n}", f"m{n}") for n in range(10)]
    store.publish(TOPIC, entries[:6])
    store.publish(TOPIC, entries[6:])
    yield store
    store.close()


def pull(store: RedisStore, position: int, limit: int = 2) -> PullResult:
    asks = [PullRequest(0, EPOCH, limit, position)]
    return store.pull(TOPIC, "g", asks, PullTerms("r", 60_000, 9))


def bodies(pulled: PullResult) -> list[int]:
    return [int(one.body) for one in pulled.deliveries]


@pytest.mark.promise(1)
def test_where_the_entry_of_an_offset_could_not_be_read_it_is_read_the_next_time(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what stands there behind its first message would be passed over, and lost."""
    first = pull(store, 0)
    store.acknowledge(TOPIC, "g", first.deliveries, {0: EPOCH})
    store._readahead.forget(TOPIC.name, "g")
    ask = store._redis.ask

    def away(key: Any, command: str, *words: Any) -> Any:
        if command == "XREVRANGE":
            monkeypatch.setattr(store._redis, "ask", ask)
            raise StoreUnavailable(store.url, "it is loading its data set")
        return ask(key, command, *words)

    monkeypatch.setattr(store._redis, "ask", away)
    assert pull(store, 2).in_doubt == [0]
    store.revoke(TOPIC, "g", [PullRequest(0, EPOCH, 2, 2)], "r")
    pulled = pull(store, 2, limit=20)
    assert (bodies(pulled), pulled.missing) == (list(range(2, 10)), 0)
    assert store.verify(TOPIC) == []


@pytest.mark.promise(1)
def test_a_caller_that_has_received_the_first_of_an_entry_is_handed_out_the_rest_of_it(
    store: RedisStore,
) -> None:
    assert bodies(pull(store, 0)) == [0, 1]
    [tail] = store._readahead._slots[TOPIC.name, "g"].values()
    tail.at = tail.end = 0
    tail.rest = []
    pulled = pull(store, 2, limit=20)
    assert (bodies(pulled), pulled.missing) == (list(range(2, 10)), 0)


def test_what_is_not_there_counts_as_missing(store: RedisStore) -> None:
    assert bodies(pull(store, 0)) == [0, 1]
    store._redis.ask("qf:{qframe:log:0}:log", "XDEL", "6-4")
    pulled = pull(store, 2, limit=20)
    assert (bodies(pulled), pulled.missing) == ([2, 3, 4, 5], 4)


def test_a_group_is_forgotten_while_others_pull_for_the_first_time(store: RedisStore) -> None:
    """It ended a `subscribe` or `seek` with an error of Python's: the dictionary had changed."""
    names = [f"g{number}" for number in range(300)]
    store.subscribe(TOPIC, names[0], beside=names[1:])
    for name in names:
        store.take(TOPIC, name, {0: EPOCH})

    def pull_all() -> None:
        for name in names:
            asks = [PullRequest(0, EPOCH, 2, 0)]
            store.pull(TOPIC, name, asks, PullTerms("r", 60_000, 9))

    pulling = threading.Thread(target=pull_all)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        pulling.start()
        while pulling.is_alive():
            store._readahead.forget("another", "g")
    finally:
        sys.setswitchinterval(before)
        pulling.join()
    assert {name for _, name in store._readahead._slots} == set(names)


@pytest.mark.promise(6)
def test_what_is_read_beyond_a_pull_is_bounded_in_bytes_and_told(store: RedisStore) -> None:
    """8,000 messages of 250 kB, published by the hundred, took 1.7 GB at a limit of 64 MiB."""
    topic = Topic("large", "stream", slots=4)
    store.declare(topic)
    store.subscribe(topic, "g")
    store.take(topic, "g", dict.fromkeys(range(4), EPOCH))
    for batch in range(6):
        entries = [entry(topic, 32 * batch + n, f"k{n}", f"m{batch}-{n}") for n in range(32)]
        for number, one in enumerate(entries):
            one.slot, one.body, one.mark = number % 4, b"x" * 50_000, entries[0].mark
        store.publish(topic, entries)
    positions = [0] * 4
    received, most = list[str](), 1_000_000  # of each slot there is more, after the first message
    for _ in range(48):
        asks = [PullRequest(slot, EPOCH, 1, positions[slot]) for slot in range(4)]
        before = sent(store)
        pulled = store.pull(topic, "g", asks, PullTerms("r", 60_000, 9, ahead_bytes=most))
        assert sent(store) - before < 4 * 500_000, "of each slot one entry, and no more"
        kept = store._readahead._slots[topic.name, "g"].values()
        size = sum(len(one.body) for each in kept for one in each.rest)
        assert size <= pulled.ahead_bytes <= most
        for one in pulled.deliveries:
            positions[one.slot] = one.seq + 1
            received.append(one.id)
    assert len(received) == len(set(received)) == 192
    store.subscribe(topic, "h")
    store.take(topic, "h", {0: EPOCH})
    before = sent(store)
    ten = store.pull(topic, "h", [PullRequest(0, EPOCH, 10, 0)], PullTerms("r", 60_000, 9))
    assert len(ten.deliveries) == 10
    assert sent(store) - before < 3 * 500_000, "two entries of eight messages, of six"


def sent(store: RedisStore) -> int:
    """How many bytes the server has sent."""
    with Redis.from_url(store.url) as client:
        return int(client.info("stats")["total_net_output_bytes"])
