"""Publishing while a slot of the topic is closed, since it is being split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from whereabouts import whereabouts

from qframe.clock import VirtualClock
from qframe.errors import AnswerLost, PublishUnknown, StoreUnavailable, UnknownTopic
from qframe.outcomes import Outcome
from qframe.producing.catalog import TopicCatalog
from qframe.producing.entry_sender import CLOSED_S, TRIES
from qframe.producing.outgoing import Outgoing
from qframe.producing.producer import Producer
from qframe.stores.doubling import Doubling
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry
from qframe.topic import Topic

pytestmark = pytest.mark.promise(1)

KEYS = [f"k{number}" for number in range(16)]


class Away(ModelStore):
    """A store that may be away for whoever looks how far a topic has grown, or lose a reply."""

    is_away = False
    loses = 0

    def topic(self, name: str) -> Topic | None:
        if self.is_away:
            raise StoreUnavailable("model://", "away")
        return super().topic(name)

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        outcomes = super().publish(topic, entries)
        if self.loses:
            self.loses -= 1
            raise AnswerLost("model://", "cut")
        return outcomes


class Bench:
    """A producer, and a topic whose first slot is closed."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.begun_s = self.clock.monotonic_s()
        self.store = Away(clock=self.clock)
        self.topic = Topic("t", slots=2)
        self.producer = Producer(
            self.store, catalog=TopicCatalog(self.store), max_body=1000, batch=100,
            clock=self.clock, pause=lambda seconds: self.pass_time(seconds),
        )  # fmt: skip
        self.producer.publish(self.topic, "first", key="first")
        store: Any = self.store
        self.growing = Doubling(store, "t", owned=lambda *_: (), pause=lambda _: None)
        taken = self.growing.begin(4)
        now = taken.grown(2, taken.growth._replace(closing=True))
        assert self.store.grow(taken, now)
        self.store.close_slot(now, 0)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(max(1, int(seconds * 1000)))
        assert self.clock.monotonic_s() < self.begun_s + 10 * CLOSED_S, "it waits for ever"

    def publish(self, keys: list[str]) -> list[Outcome]:
        items = [Outgoing(key, key=key, id=key) for key in keys]
        return [one.outcome for one in self.producer.publish_many(self.topic, items)]

    def of_slot(self, slot: int) -> list[str]:
        return [key for key in KEYS if self.topic.slot_of(key.encode()) == slot]


def test_a_batch_of_which_a_part_is_stored_is_in_doubt_where_the_rest_cannot_be() -> None:
    """`StoreUnavailable` says that nothing was written."""
    bench = Bench()
    bench.store.is_away = True
    with pytest.raises(PublishUnknown) as raised:
        bench.publish(KEYS)
    assert raised.value.ids == KEYS
    bench.store.is_away = False
    assert whereabouts(bench.store, bench.topic, bench.of_slot(1)[0])
    assert not whereabouts(bench.store, bench.topic, bench.of_slot(0)[0])


def test_a_batch_of_which_a_part_is_stored_is_in_doubt_where_a_slot_stays_closed() -> None:
    bench = Bench()
    before_s = bench.clock.monotonic_s()
    with pytest.raises(PublishUnknown):
        bench.publish(KEYS)
    assert bench.clock.monotonic_s() - before_s >= CLOSED_S


def test_a_batch_for_closed_slots_alone_is_not_written_where_they_stay_closed() -> None:
    bench = Bench()
    with pytest.raises(StoreUnavailable):
        bench.publish(bench.of_slot(0))


def test_a_batch_in_doubt_is_stored_once_the_slot_is_split() -> None:
    bench = Bench()
    with pytest.raises(PublishUnknown):
        bench.publish(KEYS)
    bench.clock.advance(31_000)
    assert bench.growing.finish(bench.growing.go_on()).slots == 4
    outcomes = dict(zip(KEYS, bench.publish(KEYS), strict=True))
    assert {outcomes[key] for key in bench.of_slot(0)} == {Outcome.STORED}
    assert {outcomes[key] for key in bench.of_slot(1)} == {Outcome.DUPLICATE}


def test_a_reply_that_is_lost_for_the_rest_of_a_batch_makes_no_duplicates_of_what_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is known to be stored is not sent again."""
    bench = Bench()

    def split(_: float) -> None:
        bench.clock.advance(31_000)
        bench.growing.finish(bench.growing.go_on())
        bench.store.loses = 1

    monkeypatch.setattr(bench, "pass_time", split)
    outcomes = dict(zip(KEYS, bench.publish(KEYS), strict=True))
    assert {outcomes[key] for key in bench.of_slot(0)} == {Outcome.DUPLICATE}
    assert {outcomes[key] for key in bench.of_slot(1)} == {Outcome.STORED}


def test_a_topic_that_the_store_has_lost_is_declared_again_as_far_as_it_had_grown() -> None:
    """By who has its declaration: who knows its name alone is told that it is gone."""
    bench = Bench()
    bench.clock.advance(31_000)
    bench.growing.finish(bench.growing.go_on())
    bench.publish(KEYS)
    by_name = Producer(
        bench.store, catalog=TopicCatalog(bench.store), max_body=1000, batch=100, clock=bench.clock
    )
    by_name.publish("t", 1, key="a")
    while not bench.store.delete(bench.topic):
        pass
    with pytest.raises(UnknownTopic):
        by_name.publish("t", 2, key="b")
    assert set(bench.publish(KEYS)) == {Outcome.STORED}
    by_name.publish("t", 3, key="c")
    found = bench.store.topic("t")
    assert found is not None
    assert found.slots == 4


@pytest.mark.parametrize(
    "how", [{}, {"key": "k"}, {"slot_basis": "b"}, {"key": "k", "slot_basis": "b"}]
)
def test_a_message_comes_into_the_half_that_is_its_whatever_its_slot_goes_by(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    bench = Bench()
    items = [
        Outgoing(n, id=f"m{n}", headers={"n": "1"}, **{at: f"{of}{n}" for at, of in how.items()})
        for n in range(16)
    ]  # fmt: skip

    def split(_: float) -> None:
        bench.clock.advance(31_000)
        bench.growing.finish(bench.growing.go_on())

    monkeypatch.setattr(bench, "pass_time", split)
    bench.producer.publish_many(bench.topic, items)
    [now] = bench.store.latest([bench.topic])
    assert now is not None
    for item in items:
        basis = str(item.slot_basis or item.key or item.id)
        [found] = whereabouts(bench.store, now, f"m{item.body}")
        assert found.slot == now.slot_of(basis.encode())
        assert found.headers is not None
        assert found.headers["n"] == "1"


def test_replies_that_are_lost_again_and_again_leave_a_publish_in_doubt() -> None:
    bench = Bench()
    bench.store.loses = TRIES - 1
    assert bench.publish(bench.of_slot(1)[:1]) == [Outcome.DUPLICATE]
    bench.store.loses = TRIES
    with pytest.raises(PublishUnknown):
        bench.publish(bench.of_slot(1)[1:2])
    assert bench.store.loses == 0
