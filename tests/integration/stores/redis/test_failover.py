"""A primary that becomes a replica, and one that is replaced by its replica."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from eventually import eventually
from redis_servers import DOWN_AFTER_MS
from servers import RedisServer, SentinelSet, free_port
from serving import Publishing, Serving, failing_every_fifth

from qframe import Message, Outgoing, QFrame, StoreUnavailable, Topic
from qframe.drivers import redis as driver
from qframe.outcomes import Published
from qframe.stores.redis import publish

KINDS = ("stream", "ordered")


def demote(server: RedisServer) -> None:
    """Makes it the replica of a server that is not there; it keeps what it has."""
    server.call("REPLICAOF", "127.0.0.1", free_port())


def promote(server: RedisServer) -> None:
    server.call("REPLICAOF", "NO", "ONE")


def refusals(server: RedisServer) -> int:
    """How many errors a server has answered with."""
    with server.client() as client:
        return int(client.info("stats")["total_error_replies"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_under_a_single_servers_url_is_unavailable_until_it_is_primary_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(driver, "PATIENCE_S", 0.5)
    topic = Topic("t", kind=kind, slots=4)
    is_replica = threading.Event()

    def handle(message: Message) -> None:
        # Its settlement meets the replica for sure: an idle worker asks nothing meanwhile.
        if message.body == "before":
            is_replica.wait(60)

    with (
        RedisServer(tmp_path) as server,
        Serving(server.url, topic, handle=handle) as serving,
    ):
        serving.app.publish(topic, "before", key="k")
        eventually(lambda: serving.bodies == ["before"])
        demote(server)
        is_replica.set()
        with pytest.raises(StoreUnavailable):
            serving.app.publish(topic, "refused", key="k", id="x")
        eventually(lambda: serving.events["store.unavailable"])
        promote(server)
        assert serving.app.publish(topic, "again", key="k", id="x").outcome == "stored"
        serving.await_bodies({"before", "again"})
        assert serving.bodies == ["before", "again"]
        serving.verify()


@pytest.mark.gate
@pytest.mark.promise(1)
def test_a_publish_waits_for_a_replica_that_becomes_primary_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PATIENCE_S", 60)  # whoever promotes it may take its time
    topic = Topic("t", slots=1)
    published: list[Published] = []
    with RedisServer(tmp_path) as server, QFrame(store=server.url) as app:
        app.declare(topic)
        demote(server)
        thread = threading.Thread(target=lambda: published.append(app.publish(topic, 1)))
        thread.start()
        eventually(lambda: refusals(server) >= 3)
        promote(server)
        thread.join(60)
        assert [one.outcome for one in published] == ["stored"]


def take_for_dead_after(servers: SentinelSet, ms: int) -> None:
    """Sets how long a server may be silent before the sentinels take it for dead."""
    for sentinel in servers.sentinels:
        sentinel.call("SENTINEL", "SET", servers.NAME, "down-after-milliseconds", ms)


def has_all(primary: RedisServer, replica: RedisServer) -> bool:
    """Whether the replica has what the primary had at this moment."""
    with primary.client() as first, replica.client() as second:
        offset = first.info("replication")["master_repl_offset"]
        eventually(lambda: second.info("replication")["slave_repl_offset"] >= offset)
    return True


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_producer_and_worker_go_on_by_themselves_after_a_failover(
    tmp_path: Path, kind: str
) -> None:
    """What was acknowledged and replicated before the primary was killed is handled."""
    topic = Topic("t", kind=kind, slots=4)
    with SentinelSet(tmp_path) as servers, Serving(servers.url, topic, lease=5) as serving:
        take_for_dead_after(servers, 60_000)  # a pause of the machine is no death
        with Publishing(serving.app, topic) as publishing:
            publishing.await_more(200)
            done = len(publishing.done)
            assert has_all(servers.primary, servers.replica)
            servers.kill_primary()
            take_for_dead_after(servers, DOWN_AFTER_MS)
            publishing.await_more(200)
            after = publishing.done[-1]
            eventually(lambda: serving.failure or after in serving.bodies)
            publishing.finish()
        expected = {*publishing.done[:done], *range(after, publishing.done[-1])}
        serving.await_bodies(expected)
        serving.verify()
        assert servers.current_primary_port() == servers.replica.port


@pytest.mark.promise(1, 3)
def test_handlers_of_what_a_failover_has_lost_settle_nothing_of_what_has_its_place_now(
    tmp_path: Path,
) -> None:
    """A server comes back as it was a moment ago, as a replica that was behind takes over.

    What is published then gets the offsets of messages that are in hand still.
    """
    topic = Topic("t", slots=1)
    may_end, have_ended = threading.Event(), threading.Event()
    failed: set[str] = set()

    def handle(message: Message) -> None:
        body = message.body
        if body.startswith("old"):
            may_end.wait(60)
        elif body not in failed:
            have_ended.wait(60)
            failed.add(body)
            raise ValueError(body)

    with (
        RedisServer(tmp_path) as server,
        Serving(server.url, topic, handle=handle, threads=16, backoff="10ms") as serving,
    ):
        serving.app.publish(topic, "old 0")
        eventually(lambda: serving.bodies == ["old 0"])
        server.call("SAVE")
        for number in (1, 2, 3):
            serving.app.publish(topic, f"old {number}")
        eventually(lambda: len(serving.bodies) == 4)
        server.kill()
        server.restart()
        new = {"new 1", "new 2", "new 3"}
        for body in sorted(new):
            serving.app.publish(topic, body)
        eventually(lambda: new.issubset(serving.bodies))
        may_end.set()
        eventually(lambda: serving.events["delivery.stale"] >= 3)
        have_ended.set()
        eventually(lambda: serving.failure or all(serving.bodies.count(one) == 2 for one in new))
        serving.await_bodies(new)
        serving.verify()


@pytest.mark.promise(1, 3)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("stream", {}), ("stream", {"keep_order": True}), ("ordered", {})],
    ids=["stream", "keep_order", "ordered"],
)
def test_what_a_server_has_not_forgotten_is_handled_and_each_key_keeps_its_order(
    tmp_path: Path, kind: str, options: dict[str, bool]
) -> None:
    """It comes back as it was a moment ago, again and again: every fifth message is in a retry."""
    forgotten: set[int] = set()
    topic = Topic("t", kind=kind, slots=2)
    with (
        RedisServer(tmp_path) as server,
        Serving(
            server.url,
            topic,
            handle=failing_every_fifth(),
            threads=8,
            lease=2,
            backoff="20ms",
            **options,
        ) as serving,
    ):
        with Publishing(serving.app, topic) as publishing:
            for lag in (5, 20, 60):
                publishing.await_more(100)
                first = len(publishing.done)
                server.call("SAVE")
                publishing.await_more(lag)
                server.kill()
                server.restart()
                # What was under way at the end may have come before it, and what was at the start.
                forgotten.update(range(first - 1, len(publishing.done) + 2))
            publishing.await_more(100)
            publishing.finish()
        serving.await_bodies(set(publishing.done) - forgotten)
        serving.verify()
        serving.check_order()


@pytest.mark.gate
@pytest.mark.promise(1, 10)
@pytest.mark.parametrize("kind", KINDS)
def test_who_knows_of_a_growth_that_the_server_has_forgotten_publishes_where_somebody_reads(
    tmp_path: Path, kind: str
) -> None:
    """It fails over right after a topic has grown, or its backup of before is restored."""
    topic = Topic("t", kind=kind, slots=2)
    with (
        RedisServer(tmp_path) as server,
        Serving(server.url, topic, lease=2) as serving,
        QFrame(store=server.url) as other,
    ):
        other.declare(topic)
        server.call("SAVE")
        serving.app.admin.resize("t", slots=4)
        for number in range(16):
            other.publish("t", number, key=f"k{number}")
        serving.await_bodies(set(range(16)))
        server.kill()
        server.restart()
        later = range(100, 140)
        published = [other.publish("t", 100, key="k0", id="x").outcome]
        published += [
            one.outcome
            for one in other.publish_many("t", [Outgoing(n, key=f"k{n}") for n in later[1:]])
        ]
        assert set(published) == {"stored"}
        serving.await_bodies(set(later))
        assert serving.app.store.verify(topic) == []
        assert serving.app.admin.resize("t", slots=4).slots == 4
        other.publish("t", "last", key="k1")
        serving.await_bodies({"last"})
        serving.verify()


@pytest.mark.gate
def test_what_is_stored_counts_though_nobody_can_look_at_the_growth_and_the_next_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster the topics may be on a node that is away."""
    topic = Topic("t", slots=1)
    with (
        RedisServer(tmp_path) as server,
        QFrame(store=server.url) as app,
        QFrame(store=server.url) as other,
    ):
        app.declare(topic)
        app.admin.resize("t", slots=2)

        def away(*_: object) -> None:
            raise StoreUnavailable("store", "away")

        monkeypatch.setattr(publish, "declared", away)
        assert app.publish("t", 1).outcome == "stored"
        assert sum(one.published for one in app.admin.stats("t")) == 1
        monkeypatch.undo()
        monkeypatch.setattr(publish, "LOOK_EVERY_S", 3600.0)
        server.call("FLUSHALL")
        other.declare(topic)
        assert app.publish("t", 2).outcome == "stored"
        assert sum(one.published for one in other.admin.stats("t")) == 1


@pytest.mark.promise(1, 10)
def test_a_redis_that_was_flushed_over_living_connections_has_messages_in_known_slots_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has declared the topic again, which had grown, before anybody else noticed."""
    monkeypatch.setattr(publish, "LOOK_EVERY_S", 0.0)
    topic = Topic("t", slots=2)
    with (
        RedisServer(tmp_path) as server,
        Serving(server.url, topic, lease=2) as serving,
        QFrame(store=server.url) as other,
        QFrame(store=server.url) as third,
    ):
        other.declare(topic)
        serving.app.admin.resize("t", slots=4)
        other.publish_many("t", [Outgoing(number, key=f"k{number}") for number in range(16)])
        serving.await_bodies(set(range(16)))
        server.call("FLUSHALL")
        third.declare(topic)
        later = set(range(100, 140))
        other.publish("t", 100, key="k100")
        other.publish_many("t", [Outgoing(number, key=f"k{number}") for number in sorted(later)])
        serving.await_bodies(later)
        assert serving.app.store.verify(topic) == []
