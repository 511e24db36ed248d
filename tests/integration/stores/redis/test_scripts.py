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
from script_heads import NAMES, head_of, named_in, repeated_in, text_of
from servers import RedisServer
from serving import Publishing, Serving
from timer_acts import cancel, edit
from whereabouts import whereabouts

from qframe import Outgoing, Topic
from qframe.clock import VirtualClock
from qframe.drivers.redis import Call
from qframe.stores.doubling import Doubling
from qframe.stores.records import ChosenDead
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import PullRequest

RARE = {"look", "mend"}  # for what somebody has damaged
OF_STREAMS = {
    "end_stream", "publish_stream", "pull_stream", "seek", "settle_stream",
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of scripts from now on."""
    calls: list[Call] = []
    packed = Call.packed

    def noted(call: Call, known: bool) -> bytes:
        calls.append(call)
        return packed(call, known)

    monkeypatch.setattr(Call, "packed", noted)
    return calls


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
    server: RedisServer, kind: str, sent: list[Call]
) -> None:
    """Each call has as many arguments as the head of its script lists."""
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
    forgetful.retire(topic, "g", "a")
    forgetful.leave(topic, "g", "a")
    assert forgetful.roster(topic, "g").members == []
    forgetful.tune(topic, "g", {"threads": "2"})
    forgetful.report(topic, "g", "w", "{}")
    assert forgetful.draw(topic, "g", 1, rate=1, per_ms=1000, burst=2).granted == 1
    assert forgetful.birth(topic) == forgetful.birth(topic)
    growing = Doubling(forgetful, topic.name, owned=lambda *_: (), pause=lambda _: None)  # type: ignore[arg-type]
    bench.publish(topic, "moved", "k")
    grown = growing.finish(growing.begin(4))
    bench.take(grown)
    [moved] = whereabouts(forgetful, grown, bench.got(grown)[0].id)
    state = "doing" if topic.has_subjects else "absent"
    assert forgetful.hasten(grown, "g", moved.head_place) == state
    assert forgetful.skip(grown, "g", moved.head_place, "no") == state
    assert forgetful.history(grown, moved.id) == []
    forgetful.subscribe(grown, "late")
    bench.check()
    assert forgetful.drop_group(grown, "g")
    for call in sent:
        head = head_of(text_of(call.script.name))
        fixed, each = len(named_in(head)) - 1, repeated_in(head)
        more = len(call.arguments) - fixed
        assert more >= 0 == (more % each if each else more), call.script.name
    for name in {*NAMES} - {call.script.name for call in sent} - RARE:
        assert (name in OF_STREAMS) is topic.has_subjects, name
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
