"""A server whose maxmemory is reached: it refuses what is new and gives out what it has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from bench import Bench
from eventually import eventually
from servers import RedisServer
from serving import Serving
from topic_kinds import of_kind

from qframe import Outgoing, QFrame, Topic
from qframe.clock import VirtualClock
from qframe.errors import PublishUnknown, StoreFull
from qframe.stores.redis.store import RedisStore

KINDS = ("stream", "ordered")
BODY = "x" * 10_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def limit(server: RedisServer, room: int) -> None:
    """Leaves so many bytes."""
    with server.client() as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + room)


def fill(app: QFrame, topic: Topic) -> tuple[int, str]:
    """Publishes till it is refused; answers how many were taken, and the id that was refused."""
    for number in count():
        name = f"id-{number}"
        try:
            app.publish(topic, [number, BODY], key=f"k{number}", id=name)
        except StoreFull:
            return number, name
    raise AssertionError


@pytest.mark.gate
@pytest.mark.promise(8)
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_server_refuses_a_publish_whole_and_drains_and_takes_it_then(
    server: RedisServer, kind: str
) -> None:
    """A worker that starts when it is full already can drain it."""
    topic = Topic("t", kind=kind, slots=2, **of_kind(kind, retain=0.001))
    with QFrame(store=server.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        limit(server, 2_000_000)
        taken, refused = fill(app, topic)
        assert taken > 50
        limit(server, -100_000)  # whatever it lets go of meanwhile, buffers say, it stays full
        assert app.store.verify(topic) == []
        assert sum(one.published for one in app.store.stats(topic, "g")) == taken
        with pytest.raises(StoreFull, match="maxmemory"):
            app.publish(topic, [taken, BODY], key="k", id=refused)
        with Serving(server.url, topic) as serving:
            eventually(lambda: serving.failure or len(serving.seen) == taken)
            assert serving.failure is None

            def has_room() -> bool:
                app.store.sweep(topic)  # what a stream has settled goes when it is swept
                try:
                    return app.publish(topic, [taken, BODY], key="k", id=refused) is not None
                except StoreFull:
                    return False

            eventually(has_room)
            eventually(lambda: len(serving.seen) == taken + 1)
            assert [body[0] for body in sorted(serving.bodies)] == list(range(taken + 1))
            eventually(lambda: sum(x.settled for x in app.store.stats(topic, "g")) == taken + 1)
            serving.verify()


@pytest.mark.gate
@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_stored_in_some_slots_only_is_unknown_and_can_be_repeated(
    server: RedisServer, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=8)
    items = [Outgoing([number, BODY], key=f"k{number}", id=f"{number}") for number in range(400)]
    with QFrame(store=server.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        limit(server, 1_500_000)
        with pytest.raises((PublishUnknown, StoreFull)) as refused:
            app.publish_many(topic, items)
        stored = sum(one.published for one in app.store.stats(topic, "g"))
        assert (stored > 0) == (refused.type is PublishUnknown)
        assert app.store.verify(topic) == []
        with server.client() as client:
            client.config_set("maxmemory", 0)
        outcomes = [one.outcome for one in app.publish_many(topic, items)]
        assert outcomes.count("duplicate") == stored
        assert sum(one.published for one in app.store.stats(topic, "g")) == len(items)
        assert app.store.verify(topic) == []


@pytest.mark.parametrize("kind", KINDS)
def test_pull_renew_and_every_settlement_go_on_when_it_is_full(
    server: RedisServer, kind: str
) -> None:
    clock = VirtualClock()
    bench = Bench(lambda _: RedisStore(server.url, clock=clock), clock.advance, "t")
    topic = bench.topic(kind, "g")
    for number in range(8):
        bench.publish(topic, number, f"k{number}")
    limit(server, -100_000)
    with pytest.raises(StoreFull):
        bench.publish(topic, "refused", "k")
    bench.store.declare(topic)
    bench.store.subscribe(topic, "g")
    bench.take(topic)
    first, second, third, fourth, *rest = bench.got(topic)
    assert bench.store.renew(topic, "g", bench.holds(topic, first), 400).gone == []
    bench.ack(topic, first)
    bench.retry(topic, second, delay_ms=50)
    bench.kill(topic, third)
    bench.release(topic, fourth)
    bench.ack(topic, *rest)
    bench.advance(50)
    bench.ack(topic, *bench.got(topic))
    assert bench.store.retry_dead(topic, "g") == 1
    bench.ack(topic, *bench.got(topic))
    assert bench.total(topic).settled == 8
    bench.check()
    bench.close()
