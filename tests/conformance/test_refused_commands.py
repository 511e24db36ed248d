"""A script that may not run one of its commands, or finds memory full, is refused whole.

A right that was taken from a worker's user for half a second lost messages, and left others where
nobody looked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from bench import Bench
from refusing import USER, Refusing
from script_heads import NAMES
from servers import RedisServer
from store_machine import machine_of
from test_state_machine import drawing_of, lives_of
from timer_acts import cancel

from qframe.clock import VirtualClock
from qframe.errors import StoreForbidden
from qframe.idempotency.base import Claim, Scope
from qframe.idempotency.redis import RedisChecker
from qframe.stores.records import ChosenDead
from qframe.stores.redis.keys import of as script_of
from qframe.stores.redis.store import RedisStore
from qframe.topic import Kind

pytestmark = pytest.mark.promise(1, 2, 3, 8)

LIVES = 10
OF_CHECKERS = {"claim", "finish", "release", "renew"}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    settings = {"enable-debug-command": "yes"}
    with RedisServer(tmp_path_factory.mktemp("refusing"), config=settings) as server:
        refusing = Refusing(server)
        yield refusing
        refusing.close()


@pytest.fixture
def bench(refusing: Refusing, request: pytest.FixtureRequest) -> Iterator[Bench]:
    clock = VirtualClock()

    def opened(namespace: str) -> RedisStore:
        return RedisStore(refusing.url, namespace=f"{namespace}{id(request)}", clock=clock)

    bench = Bench(opened, clock.advance, "topic")
    with refusing.watching():
        yield bench
        bench.check()
    bench.close()


@pytest.mark.parametrize("kind", tuple(Kind))
def test_the_life_of_a_topic(kind: Kind, refusing: Refusing) -> None:
    clock, is_stream = VirtualClock(), kind is Kind.STREAM
    with closing(RedisStore(refusing.url, namespace=kind, clock=clock)) as store:
        machine = machine_of(kind, store, clock, Counter())
        with refusing.watching():
            drawing_of(is_stream).lead_once(machine, lives_of(is_stream)[:LIVES])


@pytest.mark.parametrize("kind", tuple(Kind))
def test_publishes_that_are_due_now(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for number in range(9):
        bench.publish(topic, number, f"k{number % 4}")
        if number in (3, 7):  # the next one meets keys that wait for a retry, and wakes a sleeper
            bench.retry(topic, *bench.got(topic), delay_ms=60_000)
            bench.got(topic)


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_dead_letters_and_what_is_done_by_hand(bench: Bench, kind: str) -> None:
    store, topic = bench.store, bench.topic(kind, "g", history="1d")
    for turn in range(3):
        for number in range(6):
            bench.publish(topic, number, f"k{number % 4}", id=f"{turn}-{number}")
        taken = bench.got(topic)
        bench.kill(topic, *taken[:2], error="no")
        bench.retry(topic, *taken[2:], delay_ms=60_000)
        for act in (store.hasten, store.skip):
            for record in store.first_of_key(topic, "g", "k3")[:1]:
                act(topic, "g", record.head_place, *(["no"] if act == store.skip else []))
        assert store.history(topic, taken[0].id)
        assert store.dead(topic, "g")
        store.retry_dead(topic, "g")
        bench.ack(topic, *bench.got(topic))
        bench.publish(topic, 9, "k9")
        bench.kill(topic, *bench.got(topic))
        store.drop_dead(topic, "g")
        if kind == "delay":
            bench.publish(topic, 1, "k", delay_ms=99)
            cancel(store, topic, "k")
        store.repair(topic)
        store.birth(topic)


def test_rosters_and_what_is_tuned(bench: Bench) -> None:
    store, topic = bench.store, bench.topic("stream", "g", slots=4)
    for number in range(3):
        store.heartbeat(topic, "g", "a", 60_000)
        store.heartbeat(topic, "g", "b", 100)
        assert store.claim(topic, "g", "a", {0: "1", 1: "1"}) == [0, 1]
        store.release_slots(topic, "g", "a", [0])
        bench.advance(number * 200)
        store.retire(topic, "g", "a")
        assert store.roster(topic, "g")
        store.leave(topic, "g", "a")
        store.tune(topic, "g", {"threads": str(number), "rate": None})
        store.report(topic, "g", f"w{number}", "well")
        assert store.draw(topic, "g", 2, rate=1, per_ms=1000, burst=5).granted == 2
        bench.advance(60_000)


def test_marks(refusing: Refusing) -> None:
    scope = Scope("shop", "orders", "g")
    with closing(RedisChecker(refusing.url)) as checker, refusing.watching():
        checker.open()
        for number in range(3):
            claims = [Claim(f"a{number}"), Claim(f"b{number}")]
            checker.claim_many(scope, claims, 60_000)
            assert checker.renew_many(scope, claims, 60_000) == [True, True]
            assert checker.finish_many(scope, claims[:1]) == [True]
            assert checker.release_many(scope, claims[1:]) == [True]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_what_is_damaged(bench: Bench, refusing: Refusing, kind: str) -> None:
    store, topic = bench.store, bench.topic(kind, "g")
    for turn in range(3):
        for number in range(4):
            bench.publish(topic, number, f"k{turn}{number}", id=f"{turn}-{number}")
        bench.retry(topic, *bench.got(topic, limit=3), delay_ms=60_000)
        group = f"qf:{{{store.namespace}:{topic.name}:0}}:g:g:"
        refusing.admin.delete(group + "retry", group + "named")
        assert store.verify(topic)
        assert store.repair(topic)
        bench.kill(topic, *bench.got(topic))
        assert store.dead(topic, "g", ChosenDead([f"{turn}-3"]))
        store.sweep(topic)


def test_whoever_may_write_some_keys_of_a_slot_writes_none(refusing: Refusing) -> None:
    user = refusing.admin.execute_command
    user("ACL", "SETUSER", "some", "on", ">secret", "&*", "+@all", "%R~*", "~*:topics", "~*}:")
    user("ACL", "SETUSER", "some", "~*:head", "~*:log")
    with closing(RedisStore(refusing.url.replace(USER, "some"), namespace="some")) as store:
        bench = Bench(lambda _: store, lambda _: None, "topic")
        topic = bench.topic("stream")
        before = refusing.admin.dbsize()
        with pytest.raises(StoreForbidden, match="may not run"):
            bench.publish(topic, 1)
        assert refusing.admin.dbsize() == before


def test_every_script_was_tried_without_each_of_its_commands(refusing: Refusing) -> None:
    """By the tests above."""
    tried = {name for name, _ in refusing.refused}
    assert tried == {*NAMES, *OF_CHECKERS}
    once = {(name, each) for name in NAMES for each in refusing.commands_of(script_of(name))}
    assert once <= refusing.refused.keys() | refusing.went.keys()
