"""Redis forgets its scripts, as it does when it restarts: nobody notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from eventually import eventually
from servers import RedisServer
from serving import Publishing, Serving
from timer_acts import cancel, edit

from qframe import Outgoing, Topic
from qframe.clock import VirtualClock
from qframe.stores.records import ChosenDead
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import PullRequest


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


class Forgetful:
    """A store whose server has forgotten all scripts before every call."""

    def __init__(self, store: RedisStore, server: RedisServer) -> None:
        self._store = store
        self._server = server
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self._server.call("SCRIPT", "FLUSH")
        self.called.add(name)
        return getattr(self._store, name)


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority", "merge"])
def test_every_operation_works_on_a_server_that_has_forgotten_its_scripts(
    server: RedisServer, kind: str
) -> None:
    clock = VirtualClock()
    store = RedisStore(server.url, clock=clock)
    forgetful = Forgetful(store, server)
    bench = Bench(lambda _: forgetful, clock.advance, "t")  # type: ignore[arg-type,return-value]
    topic = bench.topic(kind, "g", slots=2)
    for number in range(10):
        bench.publish(topic, number, f"k{number}")
    first, second, third, fourth, *rest = bench.got(topic)
    assert forgetful.renew(topic, "g", bench.holds(topic, first), 400).gone == []
    bench.ack(topic, first)
    bench.retry(topic, second, delay_ms=50)
    bench.kill(topic, third, fourth)
    bench.release(topic, *rest)
    bench.advance(50)
    again = bench.got(topic, receipt="lost")
    assert len(again) == 7
    if topic.has_subjects:
        epochs = store.epochs(topic, "g")
        asks = [PullRequest(slot, each, 100) for slot, each in epochs.items()]
        assert forgetful.revoke(topic, "g", asks, "lost").count == 7
        again = bench.got(topic)
        bench.publish(topic, "later", "x", delay_ms=1000)
        assert edit(forgetful, topic, "x", due_ms=clock.now_ms() + 2000) == "done"
        assert edit(forgetful, topic, "x", body=b"1") == "done"
        assert cancel(forgetful, topic, "x") == "done"
    else:
        assert set(forgetful.offsets_at(topic, 0)) == {0, 1}
    bench.ack(topic, *again)
    dead = [one.id for one in forgetful.dead(topic, "g")]
    assert forgetful.retry_dead(topic, "g", ChosenDead(dead[:1])) == 1
    assert forgetful.drop_dead(topic, "g", ChosenDead(dead[1:])) == 1
    bench.ack(topic, *bench.got(topic))
    assert (bench.total(topic).settled, bench.total(topic).cancelled) == (9, 1 + topic.has_subjects)
    bench.advance(10**12)
    assert forgetful.sweep(topic) > 0
    if not topic.has_subjects:
        forgetful.seek(topic, "g", {0: 0, 1: 0})
    version = forgetful.heartbeat(topic, "g", "a", 400)
    assert forgetful.roster(topic, "g", version) is None
    assert forgetful.claim(topic, "g", "a", {0: "1", 1: "1"}) == [0, 1]
    forgetful.release_slots(topic, "g", "a", [0])
    assert list(forgetful.roster(topic, "g").owners) == [1]
    forgetful.leave(topic, "g", "a")
    assert forgetful.roster(topic, "g").members == []
    bench.check()
    assert forgetful.drop_group(topic, "g")
    bench.close()


@contextmanager
def forgetting(server: RedisServer) -> Iterator[None]:
    """The server forgets its scripts, again and again, as fast as it can be told."""
    ending = threading.Event()

    def run() -> None:
        with server.client() as client:
            while not ending.is_set():
                client.script_flush()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_nothing_is_lost_or_doubled_while_scripts_are_forgotten_all_the_time(
    server: RedisServer, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=4)
    with Serving(server.url, topic) as serving, forgetting(server):
        with Publishing(serving.app, topic, most=1000) as publishing:
            batch = [f"batch-{number}" for number in range(1000)]
            for start in range(0, 1000, 50):
                part = [Outgoing(body, key=body) for body in batch[start : start + 50]]
                serving.app.publish_many(topic, part)
            publishing.finish()
        serving.await_bodies({*range(1000), *batch})
        eventually(lambda: len(serving.seen) >= 2000)
        serving.verify()
        assert len(serving.seen) == 2000
        assert serving.attempts == {1: 2000}
        assert publishing.unknown == publishing.unavailable == 0
