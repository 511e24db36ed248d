"""Connections that are reset, stall, or lose a reply."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest
import redis.utils
from bench import Bench, body_of
from eventually import eventually
from redis.exceptions import ResponseError
from servers import Proxy, RedisServer
from serving import Publishing, Serving

from qframe import PublishUnknown, QFrame, StoreUnavailable, Topic
from qframe.clock import VirtualClock
from qframe.drivers import redis as driver
from qframe.drivers.redis import Call, Command, Redis
from qframe.drivers.redis_connections import Wire
from qframe.drivers.scripts import Script
from qframe.errors import AnswerLost
from qframe.outcomes import Settled, Verdict
from qframe.stores.redis.keys import of
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import PullRequest, PullTerms, Settlement

KINDS = ("stream", "ordered")
SLOW = """#!lua
while tonumber(redis.call('TIME')[1]) * 1000 < tonumber(ARGV[1]) do end
redis.call('SET', KEYS[1], 'written')
return 'done'
"""
MANY = 320  # a pool of redis-py makes 100 by default, and on a cluster each server has one


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that knows all scripts, so that the first reply is the one that is meant."""
    scripts = (files("qframe.stores.redis") / "scripts").iterdir()
    with RedisServer(tmp_path) as server:
        for name in [each.name for each in scripts if each.name.endswith(".lua")]:
            server.call("SCRIPT", "LOAD", of(name.removesuffix(".lua")).text)
        yield server


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def bench(proxy: Proxy) -> Iterator[Bench]:
    clock = VirtualClock()
    bench = Bench(lambda _: RedisStore(proxy.url, clock=clock), clock.advance, "t")
    yield bench
    bench.check()
    bench.close()


@pytest.mark.promise(1)
def test_a_script_that_is_killed_is_tried_again(server: RedisServer, tmp_path: Path) -> None:
    """It can only be killed before it has written; its caller was told of damage."""
    (tmp_path / "slow.lua").write_text(SLOW, encoding="utf-8")
    server.call("CONFIG", "SET", "busy-reply-threshold", 1)
    ended: list[bytes] = []
    redis, until_ms = Redis(server.url), int(time.time() * 1000) + 1500
    call = Call(Script(tmp_path, "slow"), b"key", [until_ms])
    caller = threading.Thread(target=lambda: ended.append(redis.one(call)))
    caller.start()
    with server.client() as client:

        def is_killed() -> bool:
            with suppress(ResponseError):
                return bool(client.script_kill())
            return False

        eventually(is_killed)
    caller.join(60)
    redis.close()
    assert ended == [b"done"]
    assert server.call("GET", "key") == b"written"


# Single operations whose reply is dropped.


@pytest.mark.gate
@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_publish_whose_reply_was_dropped_is_repeated_and_stored_once(
    proxy: Proxy, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=1)
    with QFrame(store=proxy.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        proxy.drop_replies(1)
        assert app.publish(topic, 1, key="k").outcome == "duplicate"
        assert app.publish(topic, 2, key="k").outcome == "stored"
        assert [one.published for one in app.store.stats(topic, "g")] == [2]
        assert app.store.verify(topic) == []


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_publish_whose_answers_all_were_lost_is_unknown_and_its_repeat_a_duplicate(
    proxy: Proxy, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try is written and its answer lost; the others do not even reach the server."""
    monkeypatch.setattr(driver, "PATIENCE_S", 0.3)
    topic = Topic("t", kind=kind, slots=1)
    with QFrame(store=proxy.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        proxy.drop_replies(1)
        proxy.refuse()
        with pytest.raises(PublishUnknown) as unknown:
            app.publish(topic, 1, key="k")
        with pytest.raises(StoreUnavailable):
            app.publish(topic, 2, key="k", id="two")
        proxy.accept()
        assert app.publish(topic, 1, key="k", id=unknown.value.id).outcome == "duplicate"
        assert app.publish(topic, 2, key="k", id="two").outcome == "stored"
        assert [one.published for one in app.store.stats(topic, "g")] == [2]


@pytest.mark.gate
@pytest.mark.promise(1, 6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_whose_reply_was_dropped_loses_nothing_and_counts_no_attempt(
    bench: Bench, proxy: Proxy, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    for number in range(6):
        bench.publish(topic, number, "k")
    [first] = bench.got(topic, limit=1, run=1)
    bench.ack(topic, first)
    [epoch] = bench.store.epochs(topic, "g").values()
    proxy.drop_replies(1)
    asks = [PullRequest(0, epoch, 3, position=1)]
    with pytest.raises(AnswerLost):
        bench.store.pull(topic, "g", asks, PullTerms("lost", 400, 16))
    if topic.has_subjects:
        bench.store.revoke(topic, "g", asks, "lost")
    again = bench.got(topic, position=1)
    assert [body_of(one) for one in again] == [1, 2, 3, 4, 5]
    assert {(one.attempt, one.lost) for one in again} == {(1, 0)}
    bench.ack(topic, *again)
    assert bench.total(topic).settled == 6


@pytest.mark.gate
@pytest.mark.promise(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_settlement_whose_reply_was_dropped_is_stale_when_repeated_and_settled_once(
    bench: Bench, proxy: Proxy, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    for number in range(3):
        bench.publish(topic, number, f"k{number}")
    deliveries = bench.got(topic)
    [epoch] = bench.store.epochs(topic, "g").values()
    settlements = [
        Settlement(one.slot, one.subject, one.seq, one.receipt, one.attempt, epoch, Verdict.ACK)
        for one in deliveries
    ]
    proxy.drop_replies(1)
    with pytest.raises(AnswerLost):
        bench.store.settle(topic, "g", settlements)
    assert bench.ack(topic, *deliveries) == [Settled.STALE] * 3
    assert bench.total(topic).settled == 3


# Many operations at once, while connections break.


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["reset", "dropped"])
def test_nothing_is_lost_or_handled_twice_while_connections_break(
    proxy: Proxy, kind: str, fault: str
) -> None:
    topic = Topic("t", kind=kind, slots=4)
    breaks = proxy.reset_all if fault == "reset" else lambda: proxy.drop_replies(1)
    with Serving(proxy.url, topic) as serving:
        with Publishing(serving.app, topic, most=1500) as publishing:
            for goal in range(20, 1500, 20):
                breaks()
                eventually(lambda goal=goal: publishing.errors or len(publishing.done) >= goal)
            publishing.finish()
        proxy.drop_replies(0)
        serving.await_bodies(set(publishing.done))
        serving.verify()
        assert sorted(serving.bodies) == publishing.done
        assert serving.attempts == {1: 1500}
        assert publishing.unavailable == 0
        [totals] = serving.app.admin.topic(topic).groups
        assert totals.settled == 1500


# Connections that stall.


def test_a_stalled_call_ends_by_its_timeout_and_none_gets_anothers_answer(proxy: Proxy) -> None:
    redis = Redis(f"{proxy.url}?socket_timeout=0.5")
    wrong: list[object] = []
    right = lost = 0
    guard = threading.Lock()
    ending = threading.Event()

    def run(name: int) -> None:
        nonlocal right, lost
        number = 0
        while not ending.is_set():
            number += 1
            words = [f"{name}-{number}-{each}".encode() for each in range(3)]
            try:
                answers = redis.run([Command(b"k", ("ECHO", word)) for word in words])
            except StoreUnavailable:
                with guard:
                    lost += 1
                continue
            with guard:
                right += 1
            if answers != words:
                wrong.append(answers)

    threads = [threading.Thread(target=run, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        goal = right + 200
        eventually(lambda goal=goal: right > goal)
        before = lost
        proxy.stall()
        eventually(lambda before=before: lost > before)
        proxy.resume()
    ending.set()
    for thread in threads:
        thread.join(60)
    redis.close()
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_a_frozen_server_is_unavailable_within_patience_and_used_again_when_it_thaws(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("t", slots=1)
    with QFrame(store=f"{server.url}?socket_timeout=0.3") as app:
        app.publish(topic, 1)
        server.freeze()
        with monkeypatch.context() as only_now:
            only_now.setattr(driver, "PATIENCE_S", 0.5)
            with pytest.raises(PublishUnknown):
                app.publish(topic, 2, id="two")
        server.thaw()
        app.publish(topic, 2, id="two")
        assert [one.published for one in app.store.stats(topic)] == [2]


# What is opened and closed again and again, for as long as a worker lives.


@pytest.mark.parametrize("store", ["server", "redis_cluster"])
def test_neither_bells_nor_threads_use_connections_up(
    request: pytest.FixtureRequest, store: str
) -> None:
    topic = Topic("orders")
    with QFrame(store=request.getfixturevalue(store).url, namespace=f"{store}-bells") as app:
        app.declare(topic)
        for _ in range(MANY):
            app.store.bell([topic]).close()
        bell = app.store.bell([topic])
        assert not bell.wait(0)
        at_once = threading.Barrier(MANY)
        failures: list[BaseException] = []

        def publish() -> None:
            try:
                at_once.wait(60)
                for number in range(5):
                    app.publish(topic, number)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish) for _ in range(MANY)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert failures == []
        bell.close()


@pytest.mark.gate
@pytest.mark.parametrize("count", [1, 40])
def test_an_error_of_a_signals_handler_keeps_no_connection(
    server: RedisServer, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a time limit that strikes while a request is written."""

    class Late(Exception):
        pass

    send, topic = Wire.send, Topic("events", slots=16)

    def struck(wire: Wire, packed: bytes) -> None:
        send(wire, packed)
        raise Late

    with QFrame(server.url) as app, redis.Redis(port=server.port) as client:
        app.publish_many(topic, range(count))
        before = len(client.client_list())
        for _ in range(5):
            with monkeypatch.context() as once:
                once.setattr(Wire, "send", struck)
                with pytest.raises(Late):
                    app.publish_many(topic, range(count))
        app.publish_many(topic, range(count))
        eventually(lambda: len(client.client_list()) <= before)
