"""A batch that is much for one step, since its topic has many groups, is stored in parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from servers import RedisServer

from qframe import Outgoing, QFrame, Topic
from qframe.drivers.redis import Redis
from qframe.errors import AnswerLost, StoreForbidden
from qframe.outcomes import Outcome
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import Entry

pytestmark = pytest.mark.gate

GROUPS, SIZE = 64, 500
MOST = 20_000 // GROUPS
MADE_UP, OF_SPARK = "0" * 20, "job.0.1.abc"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def bench(server: RedisServer) -> Iterator[Bench]:
    bench = Bench(lambda name: RedisStore(server.url, namespace=name), lambda _: None, "topic")
    yield bench
    bench.check()


def batch(topic: Topic, token: str = MADE_UP) -> list[Entry]:
    """A batch as it is sent each time that it is sent, in one slot."""
    return [
        Entry(0, f"k{number}", f"{token}-{number}", f"{token}-*", f"k{number}", None, b"1")
        for number in range(SIZE)
    ]


def published(bench: Bench, topic: Topic) -> set[int]:
    return {each.published for each in bench.store.stats(topic)}


@pytest.mark.promise(1, 3)
@pytest.mark.parametrize("kind", ["ordered", "delay", "merge"])
def test_500_messages_for_many_groups_are_no_script_of_a_second(
    bench: Bench, server: RedisServer, kind: str
) -> None:
    """Other clients of the server waited for it; a batch is known again, whoever sends it."""
    groups = [f"g{number}" for number in range(GROUPS)]
    topic = bench.topic(kind, *groups, slots=1)
    with server.client() as client:
        before = int(client.info("commandstats")["cmdstat_evalsha"]["calls"])
        assert bench.store.publish(topic, batch(topic)) == [Outcome.STORED] * SIZE
        calls = int(client.info("commandstats")["cmdstat_evalsha"]["calls"]) - before
    assert calls == 1 + -(-SIZE // MOST)
    assert published(bench, topic) == {SIZE}
    assert bench.store.publish(topic, batch(topic)) == [Outcome.DUPLICATE] * SIZE
    for group in groups[1:]:
        bench.store.drop_group(topic, group)
    assert bench.store.publish(topic, batch(topic)) == [Outcome.DUPLICATE] * SIZE
    assert published(bench, topic) == {SIZE}


@pytest.mark.promise(3)
@pytest.mark.parametrize("token", [MADE_UP, OF_SPARK])
def test_a_batch_is_known_again_though_groups_have_come_or_gone(bench: Bench, token: str) -> None:
    """Its ids do not lead to its mark, if Spark has made them."""
    groups = [f"g{number}" for number in range(GROUPS)]
    few, many = bench.topic("ordered", "g", slots=1), bench.topic("ordered", *groups, slots=1)
    for topic in (few, many):
        assert bench.store.publish(topic, batch(topic, token)) == [Outcome.STORED] * SIZE
    for group in groups:
        bench.store.subscribe(few, group)
    for group in groups[1:]:
        bench.store.drop_group(many, group)
    for topic in (few, many):
        assert bench.store.publish(topic, batch(topic, token)) == [Outcome.DUPLICATE] * SIZE


@pytest.mark.promise(1, 3)
def test_a_batch_of_which_a_part_is_refused_is_in_doubt_and_is_finished_the_next_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.topic("ordered", *[f"g{number}" for number in range(GROUPS)], slots=1)
    one, calls = Redis.one, list[int]()

    def refused_once(self: Redis, *given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise StoreForbidden("redis://here", "NOPERM")
        return one(self, *given, **more)

    monkeypatch.setattr(Redis, "one", refused_once)
    entries = batch(topic)
    with pytest.raises(AnswerLost):
        bench.store.publish(topic, entries)
    assert published(bench, topic) == {MOST}
    outcomes = bench.store.publish(topic, entries)
    assert outcomes == [Outcome.DUPLICATE] * MOST + [Outcome.STORED] * (SIZE - MOST)
    assert published(bench, topic) == {SIZE}


def test_an_app_publishes_to_many_groups_as_to_one(server: RedisServer) -> None:
    topic = Topic("t", "ordered", slots=1)
    with QFrame(server.url) as app:
        app.declare(topic)
        for number in range(GROUPS):
            app.store.subscribe(topic, f"g{number}")
        items = [Outgoing(number, key=f"k{number}") for number in range(SIZE)]
        found = app.publish_many(topic, items)
        assert {one.outcome for one in found} == {"stored"}
        assert app.publish(topic, 1, key="k1", id=found[3].id).outcome == "duplicate"
        assert app.admin.verify() == []
