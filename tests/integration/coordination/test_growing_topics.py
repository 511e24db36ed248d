"""A topic grows while several workers share its slots, on every coordinator there is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from eventually import eventually
from redis_servers import RedisServer
from sharing import GROUP, Shop

from qframe import Message, Outgoing, QFrame, Topic
from qframe.clock import VirtualClock
from qframe.errors import UnknownGroup
from qframe.runtime.process import sweeper
from qframe.stores.doubling import Doubling
from qframe.stores.open import open_store
from qframe.stores.redis import role

SLOTS = 4
KEYS = [f"k{number}" for number in range(64)]

Open = Callable[..., Shop]


def grow(shop: Shop, slots: int) -> Topic:
    """Doubles the topic of a worker's app until it has so many slots; returns it."""

    def owned(topic: Topic, group: str) -> set[int]:
        coordinator = shop.app.parts.opened.coordinator
        assert coordinator is not None
        return set(coordinator.roster(topic, group).owners)

    doubling = Doubling(shop.app.store, shop.topic.name, owned=owned, pause=time.sleep)
    return doubling.finish(doubling.begin(slots))


@pytest.mark.promise(1, 3, 4)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_workers_share_a_topics_slots_while_it_grows_and_keys_keep_their_order(
    shop: Open, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=SLOTS)
    seen: list[tuple[str, int]] = []
    running: set[str] = set()
    overlaps: list[str] = []

    def handle(message: Message) -> None:
        key = message.key or ""
        if key in running:
            overlaps.append(key)
        running.add(key)
        seen.append((key, message.body))
        running.discard(key)

    ended = threading.Event()
    published: list[int] = []

    def publish() -> None:
        while not ended.is_set():
            first = len(published)
            numbers = range(first, first + len(KEYS))
            first_app.publish_many(
                topic, [Outgoing(number, key=KEYS[number % len(KEYS)]) for number in numbers]
            )
            published.extend(numbers)
            ended.wait(0.02)

    with shop(topic, handle) as first, shop(topic, handle) as second:
        first_app = first.app
        eventually(lambda: first.shares == [SLOTS // 2] * 2)
        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            grown = grow(first, 2 * SLOTS)
        finally:
            ended.set()
            publisher.join(60)
        assert (grown.slots, grown.growth.first) == (2 * SLOTS, SLOTS)
        eventually(lambda: len(seen) == len(published))
        eventually(lambda: first.shares == [SLOTS] * 2)
        assert sorted(first.roster.owners) == list(grown.all_slots)
        assert first.app.store.verify(topic) == []
        for worker in (first, second):
            assert 1 <= worker.events["topic.grown"] <= SLOTS  # it may hear of several at once
            assert worker.events["delivery.stale"] == worker.events["slot.lost"] == 0
            assert worker.failure is None
    assert overlaps == []
    assert sorted(body for _, body in seen) == published
    for key in KEYS:
        bodies = [body for each, body in seen if each == key]
        assert bodies == sorted(bodies)


@pytest.mark.parametrize("shop", ["sqlite", "redis+zookeeper"], indirect=True)
def test_a_worker_that_starts_with_an_older_count_serves_all_slots_of_a_topic_that_has_grown(
    shop: Open,
) -> None:
    topic = Topic("t", kind="ordered", slots=SLOTS)
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.body)

    with shop(topic, handle) as first:
        grow(first, 4 * SLOTS)
        eventually(lambda: first.shares == [4 * SLOTS])
    with shop(Topic("t", kind="ordered", slots=SLOTS), handle) as again:
        eventually(lambda: again.shares == [4 * SLOTS])
        messages = [Outgoing(number, key=key) for number, key in enumerate(KEYS)]
        again.app.publish_many(again.topic, messages)
        eventually(lambda: sorted(seen) == list(range(len(KEYS))))
        assert again.events["slot.refused"] == 0
    assert GROUP in again.app.store.groups(topic)


def begin_to_split(app: QFrame) -> Doubling:
    """Closes the first slot of a topic, and leaves it at that; returns its growth."""
    doubling = Doubling(app.store, "t", owned=lambda *_: (), pause=lambda _: None)
    begun = doubling.begin(4)
    closing = begun.grown(2, begun.growth._replace(closing=True))
    assert app.store.grow(begun, closing)
    app.store.close_slot(closing, 0)
    return doubling


@pytest.mark.parametrize("shop", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize(
    ("group", "broadcast"), [("there", False), ("new", False), ("its own", True)]
)
def test_a_worker_that_starts_while_a_slot_is_closed_finishes_a_growth_whose_process_is_dead(
    shop: Open, monkeypatch: pytest.MonkeyPatch, group: str, *, broadcast: bool
) -> None:
    """After a restart there is no other one; a group that is new, or its own, waits for that."""
    monkeypatch.setattr(role, "CLOSED_PATIENCE_S", 0)
    monkeypatch.setattr(sweeper, "LOOK_EVERY_S", 0.1)
    topic = Topic("t", slots=2)
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.body)

    # Those of a process that only publishes are subscribed, but for a broadcast group.
    with shop(topic, handle, broadcast=group != "there").app as mover:
        mover.publish(topic, -1)
        begin_to_split(mover).leave()
    with shop(topic, handle, broadcast=broadcast) as worker:
        eventually(lambda: len(worker.epochs) == 4)
        messages = [Outgoing(number, key=key) for number, key in enumerate(KEYS)]
        worker.app.publish_many(topic, messages)
        eventually(lambda: {*range(len(KEYS))} <= {*seen})
        assert worker.failure is None
        assert worker.app.store.verify(topic) == []


@pytest.mark.parametrize("shop", ["redis"], indirect=True)
def test_a_worker_that_waits_for_the_split_of_a_slot_stops_when_it_is_told_to(
    shop: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "CLOSED_PATIENCE_S", 0)
    topic = Topic("t", slots=2)

    def handle(message: Message) -> None:
        pytest.fail(f"{message} is nobody's")

    with shop(topic, handle, broadcast=True).app as mover:
        mover.publish(topic, -1)
        begin_to_split(mover)
    with shop(topic, handle, broadcast=True) as worker:
        eventually(lambda: worker.events["store.unavailable"])
        assert worker.events["worker.ready"] == 0
    assert worker.failure is None


@pytest.mark.gate
@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
def test_a_group_that_is_to_expire_goes_from_the_slots_that_its_own_were_split_into(
    tmp_path: Path, redis_server: RedisServer, scheme: str
) -> None:
    clock = VirtualClock()
    url = redis_server.url if scheme == "redis" else f"sqlite:///{tmp_path / 'shop.db'}"
    store = open_store(url, namespace=tmp_path.name[-60:], clock=clock)
    with closing(store):
        topic = store.declare(Topic("t", kind="ordered", slots=1))
        store.subscribe(topic, "brief", expires_ms=1000)
        store.subscribe(topic, "lasting")
        doubling = Doubling(store, "t", owned=lambda *_: (), pause=lambda _: None)
        topic = doubling.finish(doubling.begin(2))
        clock.advance(2000)
        while store.sweep(topic):
            pass
        assert store.groups(topic) == ["lasting"]
        with suppress(UnknownGroup):
            assert store.positions(topic, "brief") == []
