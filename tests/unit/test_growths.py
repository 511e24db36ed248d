"""Growths that wait for an owner, that end before they are done, and that a copy meets."""

from __future__ import annotations

from typing import Any

import pytest

from qframe import QFrame, Topic
from qframe.admin.copying import copy_topic
from qframe.clock import VirtualClock
from qframe.errors import BadOption
from qframe.events import Events
from qframe.runtime.process.sweeper import Sweeper
from qframe.stores import doubling
from qframe.stores.doubling import LEASE_MS, Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.stores.model.store import ModelStore


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_nobody_takes_over_a_growth_that_waits_long_for_an_owner(kind: Any) -> None:
    clock = VirtualClock()
    store: Any = ModelStore(clock=clock)
    topic = store.declare(Topic("t", kind=kind, slots=1))
    store.subscribe(topic, "g")
    looks = 100

    def owned(topic: Topic, _group: str) -> list[int]:
        nonlocal looks
        looks -= 1
        with pytest.raises(GrowthTaken):
            another.go_on()
        return [*topic.all_slots] if looks else []

    def pause(_: float) -> None:
        clock.advance(LEASE_MS // 10)

    another = Doubling(store, "t", owned=owned, pause=pause)
    growing = Doubling(store, "t", owned=owned, pause=pause, monotonic_s=clock.monotonic_s)
    assert growing.finish(growing.begin(2)).slots == 2
    assert not looks


def test_a_worker_finishes_the_growth_of_each_of_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doubling, "HEARD_S", 0.0)
    clock = VirtualClock()
    store: Any = ModelStore(clock=clock)
    topics = [store.declare(Topic(name, slots=1)) for name in ("rests", "gone", "grows")]
    Doubling(store, "grows", owned=lambda *_: (), pause=lambda _: None).begin(2)
    while not store.delete(topics[1]):
        pass
    clock.advance(LEASE_MS)
    Sweeper(
        topics=topics,
        store=store,
        owned=lambda *_: (),
        events=Events(),
        on_failure=lambda *_: None,
        clock=clock,
    ).finish_growths()
    assert [found and found.slots for found in store.latest(topics)] == [1, None, 2]


@pytest.mark.parametrize("error", [OSError(), KeyboardInterrupt()])
def test_a_resize_that_its_user_ends_leaves_the_growth_to_others_at_once(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(doubling, "HEARD_S", 0.0)

    def end(_: Topic) -> None:
        raise error

    with QFrame("model://") as app:
        topic = Topic("t", slots=2)
        app.declare(topic)
        with pytest.raises(type(error)):
            app.admin.resize(topic, 4, on_progress=end)
        assert app.admin.resize(topic, 4).slots == 4


def test_who_has_lost_a_growth_does_not_take_it_from_its_new_holder() -> None:
    clock = VirtualClock()
    store: Any = ModelStore(clock=clock)
    store.declare(Topic("t", slots=2))
    first, second, third = [
        Doubling(store, "t", owned=lambda *_: (), pause=lambda _: None) for _ in range(3)
    ]
    first.begin(4)
    clock.advance(LEASE_MS)
    second.go_on()
    first.leave()
    with pytest.raises(GrowthTaken):
        third.go_on()


@pytest.mark.parametrize("closing", [False, True])
def test_a_topic_that_grows_is_not_copied(closing: bool) -> None:
    source, target = ModelStore(), ModelStore(namespace="other")
    topic = source.declare(Topic("t", slots=2))
    growing = topic.growth._replace(target=4, closing=closing)
    assert source.grow(topic, topic.grown(2, growing))
    with pytest.raises(BadOption):
        copy_topic(source, target, topic.grown(2, growing), by="me")
    assert target.topics() == []
