"""A cluster whose slots move, and one of whose nodes is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from redis.crc import key_slot
from servers import RedisCluster3
from serving import GROUP, Publishing, Serving

from qframe import Message, PublishUnknown, QFrame, RateLimit, StoreUnavailable, Topic
from qframe.drivers import redis as driver
from qframe.drivers import redis_connections
from qframe.outcomes import Settled
from qframe.stores.types import PullRequest, PullTerms

SLOTS = 4
NAMESPACE = "qframe"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster3]:
    with RedisCluster3(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def hash_slot(topic: Topic, slot: int) -> int:
    """The hash slot in which a topic's slot lies."""
    return key_slot(f"{NAMESPACE}:{topic.name}:{slot}".encode())


@pytest.mark.promise(1, 3)
@pytest.mark.parametrize("kind", ["stream", "ordered", "priority"])
def test_a_slot_moves_under_load_and_nothing_is_lost_and_keys_keep_their_order(
    cluster: RedisCluster3, kind: str
) -> None:
    topic = Topic(f"moving-{kind}", kind=kind, slots=SLOTS)
    moving = hash_slot(topic, 1)
    node = cluster.node_of(moving)
    # Equal keys replace each other in `priority`, so there each has its own.
    keys = 10**6 if kind == "priority" else 32
    with Serving(cluster.url, topic) as serving:
        with Publishing(serving.app, topic, keys=keys) as publishing:
            publishing.await_more(100)
            for step in (1, 2):
                cluster.migrate_slot(moving, (node + step) % 3, pause_s=0.15, batch=2)
                assert cluster.node_of(moving) == (node + step) % 3
                publishing.await_more(100)
            publishing.finish()
        serving.await_bodies(set(publishing.done))
        serving.verify()
        assert publishing.unknown == publishing.unavailable == 0
        assert sorted(serving.bodies) == publishing.done
        if kind == "ordered":
            for bodies in serving.by_key.values():
                assert bodies == sorted(bodies)


def keys_of(topic: Topic) -> list[str]:
    """A key for each slot of a topic."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < topic.slots:
        found.setdefault(topic.slot_of(f"k{number}".encode()), f"k{number}")
        number += 1
    return [found[slot] for slot in range(topic.slots)]


def do_without_the_dead(cluster: RedisCluster3) -> None:
    """Has nodes serve their slots while one is dead, and none take a pause of another for death."""
    for server in cluster.servers:
        server.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
        server.call("CONFIG", "SET", "cluster-node-timeout", 5_000)


class OnANode:
    """A cluster that does without a dead node, and a topic with slots on that and on others.

    Attributes:
        node: the server that is to die.
        living: the other servers.
        on_it: a key for each of the topic's slots on it.
        others: a key for each of the other slots.
    """

    def __init__(self, cluster: RedisCluster3, topic: Topic) -> None:
        do_without_the_dead(cluster)
        nodes = [cluster.node_of(hash_slot(topic, slot)) for slot in range(SLOTS)]
        keys = keys_of(topic)
        self.url = cluster.url
        self._cluster = cluster
        self.node = cluster.servers[nodes[0]]
        self.living = [server for server in cluster.servers if server is not self.node]
        self.on_it = [key for key, node in zip(keys, nodes, strict=True) if node == nodes[0]]
        self.others = [key for key in keys if key not in self.on_it]
        assert self.others

    def restart(self) -> None:
        """Returns when the node is back and all slots are served."""
        self.node.restart()
        self._cluster.await_whole()


@pytest.fixture
def topic(kind: str) -> Topic:
    return Topic("t", kind=kind, slots=SLOTS)


@pytest.fixture
def mortal(tmp_path: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnANode]:
    monkeypatch.setattr(driver, "PATIENCE_S", 0.5)
    # The roster is on the node that dies: no worker is to lose its slots by that.
    monkeypatch.setenv("QFRAME_SESSION_TIMEOUT", "60")
    with RedisCluster3(tmp_path, aof=True) as cluster:
        yield OnANode(cluster, topic)


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_dead_node_stops_its_own_slots_only_and_holds_up_no_settlement_until_it_is_back(
    mortal: OnANode, topic: Topic
) -> None:
    is_dead = threading.Event()

    def handle(message: Message) -> None:
        if message.body == "held":
            is_dead.wait(60)

    with Serving(mortal.url, topic, handle=handle) as serving:
        publish = serving.app.publish
        publish(topic, "held", key=mortal.on_it[0])
        eventually(lambda: serving.bodies == ["held"])
        mortal.node.kill()
        is_dead.set()
        for key in mortal.on_it:
            with pytest.raises((StoreUnavailable, PublishUnknown)):
                publish(topic, f"{key} refused", key=key)
        meanwhile = publish_rounds(serving, mortal.others)
        eventually(lambda: serving.events["delivery.settled"] == len(meanwhile))
        assert sorted(serving.bodies) == sorted({"held", *meanwhile})
        mortal.restart()
        after = {f"{key} after" for key in mortal.on_it}
        for body in after:
            publish(topic, body, key=body.split()[0])
        serving.await_bodies({"held", *after, *meanwhile})
        serving.verify()
        assert serving.bodies.count("held") == 1
        assert len([body for body in serving.bodies if body in meanwhile]) == len(meanwhile)


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_pull_that_a_dying_node_leaves_in_doubt_holds_up_no_pull_elsewhere(
    mortal: OnANode, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Connections are taken for good, so that the pull goes out and its answer is lost.
    monkeypatch.setattr(redis_connections, "TRUSTED_S", 60)
    with QFrame(store=mortal.url) as app:
        app.declare(topic)
        app.store.subscribe(topic, GROUP)
        for key in mortal.on_it + mortal.others:
            app.publish(topic, key, key=key)
    serving = Serving(mortal.url, topic)
    store = serving.app.store
    pull = store.pull

    def first(*arguments: Any, **options: Any) -> Any:
        vars(store).pop("pull")
        mortal.node.kill()
        return pull(*arguments, **options)

    vars(store)["pull"] = first
    with serving:
        eventually(lambda: set(mortal.others) <= set(serving.bodies))
        meanwhile = publish_rounds(serving, mortal.others)
        eventually(lambda: meanwhile <= set(serving.bodies))
        mortal.restart()
        expected = {*mortal.on_it, *mortal.others, *meanwhile}
        serving.await_bodies(expected)
        serving.verify()
        assert sorted(serving.bodies) == sorted(expected)
        assert serving.attempts == {1: len(expected)}


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_leases_that_a_dead_node_cannot_renew_end_no_lease_elsewhere(
    mortal: OnANode, topic: Topic
) -> None:
    held = {mortal.on_it[0], mortal.others[0]}
    ending = threading.Event()
    cancelled: set[str] = set()

    def handle(message: Message) -> None:
        while not ending.wait(0.01):
            if message.cancelled:
                cancelled.add(message.body)

    with Serving(mortal.url, topic, handle=handle, lease=4) as serving:
        rounds: list[int] = []
        renew = serving.app.store.renew

        def counted(*arguments: Any) -> Any:
            rounds.append(len(rounds))
            return renew(*arguments)

        vars(serving.app.store)["renew"] = counted
        for key in held:
            serving.app.publish(topic, key, key=key)
        eventually(lambda: set(serving.bodies) == held)
        mortal.node.kill()
        eventually(lambda: mortal.on_it[0] in cancelled)
        later = len(rounds) + 4
        eventually(lambda: len(rounds) >= later)
        assert cancelled == {mortal.on_it[0]}
        ending.set()
        eventually(lambda: serving.events["delivery.settled"])
        assert serving.events["delivery.stale"] == 0
        mortal.restart()
        serving.await_bodies(held)
        serving.verify()


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_node_is_told_a_script_that_it_has_forgotten_and_tells_tunings_though_another_is_dead(
    mortal: OnANode, topic: Topic
) -> None:
    with QFrame(store=mortal.url) as app:
        asked = [(Topic(f"{topic.name}{number}", slots=1), GROUP) for number in range(12)]
        for each, group in asked:
            app.declare(each)
            app.store.subscribe(each, group)
            app.store.tune(each, group, {"threads": each.name})
        app.declare(topic)
        app.store.subscribe(topic, GROUP)
        for key in mortal.others:
            app.publish(topic, key, key=key)
        epochs = dict.fromkeys(range(SLOTS), "f" * 16)
        app.store.take(topic, GROUP, epochs)
        for server in mortal.living:
            server.call("SCRIPT", "FLUSH")
        mortal.node.kill()
        asks = [PullRequest(slot, epoch, 9) for slot, epoch in epochs.items()]
        pulled = app.store.pull(topic, GROUP, asks, PullTerms("r", 60_000, 16))
        assert sorted(one.key or "" for one in pulled.deliveries) == sorted(mortal.others)
        assert len(pulled.unreachable + pulled.in_doubt) == len(mortal.on_it)
        answers = app.store.acknowledge(topic, GROUP, pulled.deliveries, epochs)
        assert answers == [Settled.SETTLED] * len(mortal.others)
        revoked = app.store.revoke(topic, GROUP, asks, "r")
        assert (revoked.count, len(revoked.unreachable)) == (0, len(mortal.on_it))
        found = app.store.tunings(asked)
        known = [each for each, tuned in zip(asked, found, strict=True) if tuned is not None]
        assert 0 < len(known) < len(asked)
        assert app.store.tunings(known) == [{"threads": each.name} for each, _ in known]


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", ["stream"])
def test_slots_that_come_while_a_node_is_dead_are_taken_but_for_those_on_it(
    tmp_path: Path, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=8)
    with RedisCluster3(tmp_path, aof=True) as cluster:
        do_without_the_dead(cluster)
        nodes = [cluster.node_of(hash_slot(topic, slot)) for slot in range(topic.slots)]
        keys = keys_of(topic)
        with Serving(cluster.url, topic) as serving:
            store = serving.app.store
            store.heartbeat(topic, GROUP, "other", 60_000)

            def coming() -> set[int]:
                roster = store.roster(topic, GROUP)
                return set(range(topic.slots)) - set(roster.owners)

            eventually(lambda: len(coming()) == topic.slots // 2)
            # The roster lies where slot 0 does, and that node is to live.
            dead = next(nodes[slot] for slot in coming() if nodes[slot] != nodes[0])
            cluster.servers[dead].kill()
            store.leave(topic, GROUP, "other")
            there = [key for key, node in zip(keys, nodes, strict=True) if node == dead]
            meanwhile = publish_rounds(serving, [key for key in keys if key not in there])
            eventually(lambda: meanwhile <= set(serving.bodies))
            cluster.servers[dead].restart()
            cluster.await_whole()
            expected = meanwhile | publish_rounds(serving, there)
            serving.await_bodies(expected)
            serving.verify()
            assert sorted(serving.bodies) == sorted(expected)


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_worker_that_starts_while_a_node_is_dead_serves_the_slots_of_the_others(
    tmp_path: Path, topic: Topic
) -> None:
    with RedisCluster3(tmp_path, aof=True) as cluster:
        do_without_the_dead(cluster)
        topic = Topic("t", topic.kind, 8)
        nodes = [cluster.node_of(hash_slot(topic, slot)) for slot in range(topic.slots)]
        # The list of topics, and what a group has in its first slot, are to be there.
        needed = {nodes[0], cluster.node_of(key_slot(NAMESPACE.encode()))}
        [dead] = [node for node in range(3) if node not in needed][:1]
        keys = keys_of(topic)
        with QFrame(cluster.url) as app:
            app.declare(topic)
            app.store.subscribe(topic, GROUP)
        cluster.servers[dead].kill()
        with Serving(cluster.url, topic) as serving:
            there = [key for key, node in zip(keys, nodes, strict=True) if node == dead]
            assert there
            meanwhile = publish_rounds(serving, [key for key in keys if key not in there])
            eventually(lambda: meanwhile <= set(serving.bodies))
            cluster.servers[dead].restart()
            cluster.await_whole()
            expected = meanwhile | publish_rounds(serving, there)
            serving.await_bodies(expected)
            serving.verify()
            assert sorted(serving.bodies) == sorted(expected)


@pytest.mark.parametrize("kind", ["stream"])
def test_while_the_node_of_a_groups_limit_is_dead_nothing_begins_and_then_no_more_than_it_allows(
    mortal: OnANode, topic: Topic
) -> None:
    limit = RateLimit("20/s", burst=5, over="group")
    with Serving(mortal.url, topic, rate_limit=limit) as serving:
        serving.app.publish(topic, "before", key=mortal.others[0])
        serving.await_bodies({"before"})
        asked: list[BaseException] = []
        draw = serving.app.store.draw

        def counted(*arguments: Any, **options: Any) -> Any:
            try:
                return draw(*arguments, **options)
            except StoreUnavailable as error:
                asked.append(error)
                raise

        vars(serving.app.store)["draw"] = counted
        mortal.node.kill()
        meanwhile = publish_rounds(serving, mortal.others)
        eventually(lambda: len(asked) >= 5)
        begun = len(serving.bodies)
        assert begun <= 1 + 5  # what was drawn before, which is good for 100 ms
        later = len(asked) + 5
        eventually(lambda: len(asked) >= later)
        assert len(serving.bodies) == begun
        mortal.restart()
        serving.await_bodies(meanwhile)
        serving.verify()


def publish_rounds(serving: Serving, keys: list[str]) -> set[str]:
    """Publishes 20 messages for each key; answers their bodies."""
    rounds = [[f"{key} {number}" for key in keys] for number in range(20)]
    for bodies in rounds:
        for key, body in zip(keys, bodies, strict=True):
            serving.app.publish(serving.topic, body, key=key)
    return {body for bodies in rounds for body in bodies}
