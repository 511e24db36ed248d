"""A topic that grows on a Redis server: what is in slot 0 alone, who waits, what is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench import Bench
from servers import RedisServer
from timer_acts import cancel, edit

from qframe.drivers.scripts import Refused
from qframe.errors import StoreDamaged, UnknownGroup
from qframe.outcomes import Moved
from qframe.stores.base import Store
from qframe.stores.doubling import Doubling
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("growing")) as server:
        yield server


@pytest.fixture
def bench(server: RedisServer, request: pytest.FixtureRequest) -> Iterator[Bench]:
    def opened(namespace: str) -> RedisStore:
        return RedisStore(server.url, namespace=f"{namespace}-{id(request)}")

    bench = Bench(opened, lambda ms: None, "topic")
    yield bench
    bench.check()
    bench.close()


def doubling(store: Store, topic: Topic) -> Doubling:
    return Doubling(store, topic.name, owned=lambda *_: (), pause=lambda _: None)


def grown(bench: Bench, topic: Topic, slots: int) -> Topic:
    one = doubling(bench.store, topic)
    return one.finish(one.begin(slots))


class Waiting:
    """In place of a role's pause: counts, and does something at the n-th."""

    def __init__(self, count: int, then: Callable[[], Any]) -> None:
        self.left = count
        self._then = then

    def wait(self, _: float) -> None:
        self.left -= 1
        if self.left == 0:
            self._then()


def waiting(store: Store, count: int, then: Callable[[], Any]) -> Waiting:
    """Has a store do something while it waits for a slot to be split."""
    found = Waiting(count, then)
    assert isinstance(store, RedisStore)
    store._pause = found  # type: ignore[assignment]
    return found


def all_keys(server: RedisServer, store: Store) -> set[str]:
    with server.client() as client:
        keys = client.scan_iter(f"qf:{{{store.namespace}*", count=1000)
        return {key.decode() for key in keys}


def test_what_a_group_has_in_slot_0_alone_stays_there_when_it_is_split(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=1)
    store = bench.store
    birth = store.birth(topic)
    version = store.heartbeat(topic, "g", "m", HOUR_MS)
    store.tune(topic, "g", {"threads": "4"})
    store.report(topic, "g", "w", "{}")
    store.draw(topic, "g", 3, rate=1, per_ms=HOUR_MS, burst=10)
    after = grown(bench, topic, 4)
    assert [*after.all_slots] == [3, 4, 5, 6]
    assert store.birth(after) == birth
    assert store.heartbeat(after, "g", "m", HOUR_MS) == version
    assert store.claim(after, "g", "m", {3: "e" * 16}) == [3]
    assert store.tunings([(after, "g")]) == [{"threads": "4"}]
    assert [each.worker for each in store.reports(after, "g")] == ["w"]
    assert store.draw(after, "g", 8, rate=1, per_ms=HOUR_MS, burst=10).granted == 7
    store.drop_group(after, "g")
    with pytest.raises(UnknownGroup):
        store.heartbeat(after, "g", "m", HOUR_MS)
    assert store.tunings([(after, "g")]) == [{}]


def closed(bench: Bench, kind: str) -> tuple[Topic, Callable[[], Topic]]:
    """A topic whose slot 0 is closed, and what splits it."""
    topic = bench.topic(kind, "g", slots=1)
    for number in range(4):
        bench.publish(topic, number, f"k{number}", delay_ms=HOUR_MS)
    one = doubling(bench.store, topic)
    begun = one.begin(2)
    bench.store.close_slot(topic, 0)
    return topic, lambda: one.finish(begun)


def subscribe_anew(store: Store, topic: Topic) -> bool:
    """On other terms: on those that it has, a group need not wait."""
    return store.subscribe(topic, "g", expires_ms=HOUR_MS)


def begin_to_keep_order(store: Store, topic: Topic) -> bool:
    return store.subscribe(topic, "g", max_parked=9)


def hasten(store: Store, topic: Topic) -> Moved:
    """The message is found where it stands once its slot was split."""
    [record] = store.first_of_key(topic, "g", "k1")
    return store.hasten(topic, "g", record.head_place)


def skip(store: Store, topic: Topic) -> Moved:
    [record] = store.first_of_key(topic, "g", "k1")
    return store.skip(topic, "g", record.head_place, "skipped")


ACTS: list[tuple[str, str, Callable[[Store, Topic], Any], Any]] = [
    ("edit", "delay", lambda store, topic: edit(store, topic, "k1", due_ms=5), Moved.DONE),
    ("cancel", "delay", lambda store, topic: cancel(store, topic, "k1"), Moved.DONE),
    ("hasten", "delay", hasten, Moved.DONE),
    ("skip", "delay", skip, Moved.DONE),
    ("subscribe", "delay", lambda store, topic: store.subscribe(topic, "new"), True),
    ("subscribe again", "delay", subscribe_anew, False),
    ("drop_group", "delay", lambda store, topic: store.drop_group(topic, "g"), True),
    ("drop_group of a stream", "stream", lambda store, topic: store.drop_group(topic, "g"), True),
    ("subscribe to a stream", "stream", lambda store, topic: store.subscribe(topic, "new"), True),
    ("keep order", "stream", begin_to_keep_order, False),
]


@pytest.mark.gate
@pytest.mark.parametrize(("name", "kind", "act", "said"), ACTS, ids=[each[0] for each in ACTS])
def test_what_meets_a_closed_slot_is_done_once_that_is_split(
    bench: Bench, name: str, kind: str, act: Callable[[Store, Topic], Any], said: Any
) -> None:
    topic, split = closed(bench, kind)
    other = bench.another()
    pause = waiting(other, 3, split)
    assert act(other, topic) == said, name
    assert pause.left == 0
    [after] = other.latest([topic])
    assert after is not None
    assert [*after.all_slots] == [1, 2]
    assert other.verify(after) == []
    assert len(other.groups(after)) == {"drop_group": 0, "subscribe": 2}.get(name.split()[0], 1) - (
        name == "subscribe again"
    )


def test_a_dead_letter_is_retried_once_where_some_slots_are_closed(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=2)
    for number in range(12):
        bench.publish(topic, number, f"k{number}")
    bench.kill(topic, *bench.got(topic))
    one = doubling(bench.store, topic)
    begun = one.begin(4)
    bench.store.close_slot(topic, 0)
    other = bench.another()
    waiting(other, 1, lambda: one.finish(begun))
    assert other.retry_dead(topic, "g") == 12
    [after] = other.latest([topic])
    assert after is not None
    bench.take(after)
    assert sorted(bench.bodies(after)) == list(range(12))


@pytest.mark.gate
def test_a_publish_is_told_of_the_slots_that_are_closed(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=2)
    bench.store.close_slot(topic, 0)
    entries = [bench.entry(topic, number, f"k{number}", id=f"m-{number}") for number in range(6)]
    entries += entries[:2]  # some ids come again
    with pytest.raises(SlotsClosed) as raised:
        bench.store.publish(topic, entries)
    assert raised.value.outcomes == [
        None if entry.slot == 0 else "stored" if place < 6 else "duplicate"
        for place, entry in enumerate(entries)
    ]
    [refused, *_] = [entry for entry in entries if entry.slot == 0]
    with pytest.raises(SlotsClosed) as raised:
        bench.store.publish(topic, [refused])
    assert raised.value.outcomes == [None]
    bench.topics.remove(topic)


def test_other_errors_come_before_a_refusal(server: RedisServer, bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    bench.store.close_slot(topic, 0)
    with server.client() as client:
        client.set(f"qf:{{{bench.store.namespace}:{topic.name}:1}}:log", "no log")
    entries = [bench.entry(topic, number, f"k{number}") for number in range(6)]
    assert {entry.slot for entry in entries} == {0, 1}
    with pytest.raises(StoreDamaged):
        bench.store.publish(topic, entries)
    bench.topics.remove(topic)


def test_a_slot_that_was_split_keeps_only_what_fences(server: RedisServer, bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=2, history="1h")
    for number in range(20):
        bench.publish(topic, number, f"k{number % 4}")
        bench.publish(topic, number, f"s{number % 4}", sequence=number // 4 + 1 + number // 16)
    bench.ack(topic, *bench.got(topic, limit=3))
    unclaimed = bench.topic("delay", slots=2)
    for number in range(4):
        bench.publish(unclaimed, number, f"k{number}")
    for each in (topic, unclaimed):
        grown(bench, each, 4)
    keys = all_keys(server, bench.store)
    prefix, other = (f"qf:{{{bench.store.namespace}:{each.name}:" for each in (topic, unclaimed))
    left = {key.removeprefix(prefix) for key in keys if key.startswith(prefix)}
    found = {key[3:] for key in left if key.startswith(("0", "1"))}
    assert found - {"claimed", "expiries"} == {
        "closed", "groups", "g:g:cursor", "g:g:history", "g:g:ended",
    }  # fmt: skip
    assert {key for key in keys if key.startswith((f"{other}0", f"{other}1"))} == {
        f"{other}{slot}}}:closed" for slot in (0, 1)
    }
    marked = [key for key in left if key.endswith("opened")]  # as in use: nobody opens them again
    assert sorted(marked) == [f"{slot}}}:opened" for slot in (2, 3, 4, 5)]


def test_however_many_keys_a_group_has_it_is_dropped_and_a_slot_is_discarded(
    server: RedisServer, bench: Bench
) -> None:
    topic = bench.topic("ordered", "g", "h", slots=1)
    many = [bench.entry(topic, number, f"k{number}") for number in range(9000)]
    bench.store.publish(topic, many)
    assert bench.store.drop_group(topic, "h")
    assert not any(":g:h:" in key for key in all_keys(server, bench.store))
    after = grown(bench, topic, 2)
    assert bench.total(after).todo == len(many)
    prefix = f"qf:{{{bench.store.namespace}:{topic.name}:0}}:g:g:"
    left = {key for key in all_keys(server, bench.store) if key.startswith(prefix)}
    assert left == {f"{prefix}cursor"}


@pytest.mark.parametrize("kind", ["stream", "ordered", "merge"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_deleted_topic_that_grew_leaves_no_key_that_stays(
    server: RedisServer, bench: Bench, kind: str, is_whole: bool
) -> None:
    topic = bench.topic(kind, "g", "h", slots=2)
    for number in range(20):
        bench.publish(topic, number, f"k{number % 8}")
    bench.got(topic, limit=3)
    one = doubling(bench.store, topic)
    begun = one.begin(8)
    after = one.finish(begun) if is_whole else one._split_next(begun)
    bench.store.drop_group(after, "h")
    if not is_whole:
        bench.store.close_slot(after, 1)
        bench.store.open_slot(after, 5, 1, "a token")
    while not bench.store.delete(after):
        pass
    bench.topics.remove(topic)
    left = all_keys(server, bench.store)
    assert {key.rpartition(":")[2] for key in left} == {"closed"}
    assert {server.call("GET", key) for key in left} == {b"gone"}
    assert all(server.call("TTL", key) > 0 for key in left)


@pytest.mark.gate
def test_who_is_frozen_as_it_puts_slots_into_use_keeps_nobody_from_splitting_them(
    bench: Bench, server: RedisServer
) -> None:
    topic = bench.topic("stream", "g", slots=2)
    store = bench.store
    assert isinstance(store, RedisStore)
    bench.publish(topic, 1, "k1")
    frozen = doubling(store, topic)
    begun = frozen.begin(4)
    half = topic.split_of(0)[0]
    opened = store._keys(topic).key(half, "opened")
    with server.client() as client:  # it has said so, and has not come to note how far it is
        client.set(opened, f"={begun.growth.until_ms - 1}")
        frozen.leave()
        later = doubling(store, topic)
        after = later.finish(later.go_on())
        assert after.slots == 4
        assert int(client.get(opened).removeprefix(b"=")) > begun.growth.until_ms
    for seen in (begun, after):
        with pytest.raises(SlotsClosed):
            store.discard(seen, half)


@pytest.mark.gate
def test_a_slot_whose_split_a_server_has_forgotten_is_not_emptied(
    bench: Bench, server: RedisServer
) -> None:
    topic = bench.topic("ordered", "g", slots=1)
    bench.publish(topic, 1, "k1")
    one = doubling(bench.store, topic)
    begun = one.begin(2)
    with server.client() as client:
        assert isinstance(bench.store, RedisStore)
        topics = f"qf:{{{bench.store.namespace}}}:topics"
        known = client.hget(topics, topic.name)
        after = one.finish(begun)
        client.hset(topics, topic.name, known)  # a server has taken over
        with pytest.raises(SlotsClosed):
            bench.store.discard(after, 0)
        with pytest.raises(SlotsClosed):
            bench.store.close_slot(after, 1)
    bench.topics.remove(topic)


@pytest.mark.gate
def test_a_slot_that_is_closed_takes_only_what_comes_under_its_token(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g", slots=1)
    redis = bench.store._redis
    keys = SlotKeys(bench.store.namespace, topic)
    redis.ask(keys.key(0, "closed"), "SET", 1)
    redis.ask(keys.key(0, "opened"), "SET", "first")

    for token in ("", "other"):
        with pytest.raises(Refused):
            redis.one(keys.call("restore", 0, "", "delay", "g", "heads", token, "next"))
    for token in ("first", "first"):  # the second time its reply had been lost
        assert redis.one(keys.call("restore", 0, "", "delay", "g", "heads", token, "next")) == 0
        assert redis.ask(keys.key(0, "opened"), "GET") == b"next"
    bench.topics.remove(topic)
