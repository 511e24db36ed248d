"""Turns of a relay, one by one: what is sent, what stays marked, and what waits behind what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from late import Late, loses
from seated import Seated
from sqlalchemy import create_engine, text

from qframe import Outbox, Topic
from qframe.clock import VirtualClock
from qframe.errors import PublishUnknown, StoreUnavailable
from qframe.events import Events
from qframe.outbox import relay as module
from qframe.outbox.blocked_lines import FIRST_S
from qframe.outbox.relay import LONG_TROUBLE_S, TROUBLE_S, Relay
from qframe.outbox.rows import SLOTS
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.stores.model.store import ModelStore


class Uncertain(Seated):
    """A membership that may not be certain."""

    is_certain = True

    def certain(self) -> bool:
        return self.is_certain


class Bench:
    """A relay that owns all slots of an outbox in a file."""

    def __init__(self, url: str) -> None:
        self.outbox = Outbox(create_engine(url))
        self.outbox.create()
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.seat = Uncertain()
        catalog: Any = TopicCatalog(self.store)
        producer = Producer(self.store, catalog=catalog, max_body=1000, batch=500, clock=self.clock)
        self.producer: Any = Late(producer)
        self.told: list[str] = []
        events = Events()
        events.listen(lambda name, _: self.told.append(name))
        store: Any = self.store
        self.relay = Relay(
            self.outbox, store=store, producer=self.producer, catalog=catalog,
            coordinator=self.seat, events=events, clock=self.clock, on_failure=lambda *_: None,
        )  # fmt: skip
        self.relay._joined()
        self.seat.owns(**{f"s{slot}": "e" for slot in range(SLOTS)})

    def topic(self, name: str = "t", **options: Any) -> Topic:
        topic = self.store.declare(Topic(name, slots=1, **options))
        self.store.subscribe(topic, "g")
        return topic

    def put(self, topic: Topic, *bodies: Any, key: str = "k") -> None:
        with self.outbox.engine.begin() as connection:
            for body in bodies:
                self.outbox.publish(connection, topic, body, key=key)

    def stored(self, topic: Topic) -> list[bytes]:
        return [one.body for one in self.store.read_log(topic, 0, 0, 1000)]

    def marked(self) -> list[bool]:
        with self.outbox.engine.connect() as connection:
            return [row.sent_at is not None for row in self.outbox.rows.page(connection, limit=99)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(f"sqlite:///{tmp_path}/business.db")
    yield bench
    bench.outbox.engine.dispose()


def test_who_is_not_certain_of_its_slots_sends_nothing(bench: Bench) -> None:
    topic = bench.topic()
    bench.put(topic, 1)
    bench.seat.is_certain = False
    assert not bench.relay.turn()
    assert bench.stored(topic) == []
    bench.seat.is_certain = True
    assert bench.relay.turn()
    assert bench.stored(topic) == [b"1"]
    assert not bench.relay.turn()
    assert bench.relay.is_done()


def test_batches_are_as_large_as_their_bodies_allow_and_never_empty(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_BATCH", 2)
    monkeypatch.setattr(module, "BATCH_BYTES", 100)
    topic = bench.topic()
    bench.put(topic, *["x" * 200] * 20)
    sizes, before = [], 0
    while bench.relay.turn():
        sizes.append(len(bench.stored(topic)) - before)
        before += sizes[-1]
    assert sizes[1:] == [1] * (20 - sizes[0])


def test_a_full_topic_holds_back_the_line_that_was_refused_alone_and_not_for_long(
    bench: Bench,
) -> None:
    topic = bench.topic(max_length=1)
    bench.put(topic, 1, key="a")
    bench.put(topic, 2, key="b")
    assert bench.relay.turn()
    lines = {line for _, line in bench.relay._blocked._until_s}
    assert len(lines) == 1
    assert None not in lines
    for _ in range(3):
        bench.clock.advance(60_000)
        assert not bench.relay.turn()
    bench.store.seek(topic, "g", {0: 1})
    bench.clock.advance(60_000)
    assert bench.relay.turn()
    bench.put(topic, 3, key="b")
    assert not bench.relay.turn()
    assert bench.relay._blocked.at_most(60) <= FIRST_S


def test_what_may_have_been_sent_stays_marked_though_the_store_is_away_then(bench: Bench) -> None:
    topic = bench.topic()
    bench.put(topic, 1)
    bench.producer.before(
        "send", loses(PublishUnknown("t", ["x"])), loses(StoreUnavailable("store", "away"))
    )
    for error in (PublishUnknown, StoreUnavailable):
        with pytest.raises(error):
            bench.relay.turn()
    assert bench.marked() == [True]
    assert not bench.relay._untaken  # whose marks are taken back


def test_pauses_in_trouble_grow_and_begin_anew_once_that_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(bench.relay._stopping, "wait", waits.append)
    topic = bench.topic()
    bench.put(topic, 1)
    away = loses(StoreUnavailable("store", "away"))
    bench.producer.before("send", *[away] * 9)
    for _ in range(10):
        bench.relay._turn_or_trouble()
    assert waits[:3] == [TROUBLE_S, 2 * TROUBLE_S, 4 * TROUBLE_S]
    assert waits[-1] == LONG_TROUBLE_S
    bench.put(topic, 2)
    bench.producer.before("send", away)
    bench.relay._turn_or_trouble()
    assert waits[-1] == TROUBLE_S


def test_an_outbox_whose_database_is_away_is_not_done(tmp_path: Path) -> None:
    bench = Bench(f"sqlite:///{tmp_path}/business.db")
    assert bench.relay.is_done()
    with bench.outbox.engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {bench.outbox._tables.outbox.name}"))
    assert not bench.relay.is_done()
    bench.outbox.engine.dispose()
