"""`wait_replicas=`: a publish that has returned is at a replica, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from eventually import eventually
from servers import RedisCluster3, RedisServer, SentinelSet
from serving import Serving

from qframe import Outcome, Outgoing, PublishUnknown, QFrame, StoreForbidden, Topic
from qframe.drivers.redis import Redis
from qframe.errors import AnswerLost
from qframe.stores.base import Store
from qframe.stores.doubling import Doubling
from qframe.stores.open import open_store
from qframe.stores.records import Section
from qframe.stores.types import Entry, SlotsClosed

TOPIC = Topic("orders", "ordered", slots=4)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary and its replica."""
    with RedisServer(tmp_path / "primary") as primary:
        config = {"replicaof": f"127.0.0.1 {primary.port}"}
        with RedisServer(tmp_path / "replica", config=config) as replica:
            eventually(lambda: b"connected" in replica.call("ROLE"))
            yield primary, replica


@pytest.mark.gate
def test_what_no_replica_has_in_time_is_unknown_and_can_be_repeated(
    pair: tuple[RedisServer, RedisServer],
) -> None:
    primary, replica = pair
    with QFrame(f"{primary.url}?wait_replicas=1&wait_timeout=9") as patient:
        patient.publish(TOPIC, 1, key="a")
        replica.freeze()
        for _ in range(2):  # a repetition writes nothing, and is not known to be there either
            with (
                QFrame(f"{primary.url}?wait_replicas=1&wait_timeout=0.1") as hasty,
                pytest.raises(PublishUnknown) as raised,
            ):
                hasty.publish(TOPIC, 2, key="a", id="two")
            assert "0 of 1 replicas had it within 100 ms" in str(raised.value.__cause__)
        replica.thaw()
        assert patient.publish(TOPIC, 2, key="a", id="two").outcome is Outcome.DUPLICATE
        primary.kill()
    replica.call("REPLICAOF", "NO", "ONE")
    with Serving(replica.url, TOPIC) as serving:
        serving.await_bodies({1, 2})


@pytest.mark.gate
@pytest.mark.promise(1)
@pytest.mark.parametrize("heard", [False, True], ids=["of nothing", "of the copies"])
def test_a_slot_that_was_split_stays_until_replicas_have_heard_of_the_two_in_its_place(
    pair: tuple[RedisServer, RedisServer], monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """The two come into use once replicas have what was copied into them."""
    primary, replica = pair
    topic = Topic("grows", "ordered", slots=1)
    hasty, patient = [
        open_store(f"{primary.url}?wait_replicas=1&wait_timeout={seconds}") for seconds in (0.3, 9)
    ]

    def doubling(store: Store) -> Doubling:
        return Doubling(store, "grows", owned=lambda *_: (), pause=lambda _: None, lease_ms=1)

    def wait_and_freeze(_: Redis, keys: Iterable[bytes]) -> None:
        monkeypatch.undo()
        patient_redis.await_replicas(keys)
        replica.freeze()

    patient_redis = Redis(f"{primary.url}?wait_replicas=1&wait_timeout=9")
    with QFrame(primary.url) as app:
        hasty.declare(topic)
        hasty.subscribe(topic, "g")
        app.publish(topic, 1, key="a")
        begun = doubling(hasty).begin(2)
        if heard:
            monkeypatch.setattr(Redis, "await_replicas", wait_and_freeze)
        else:
            replica.freeze()
        with pytest.raises(AnswerLost, match="0 of 1 replicas had it"):
            doubling(hasty).finish(begun)
        [found] = patient.latest([topic])
        assert found is not None
        assert (found.all_slots == topic.all_slots) is (not heard)
        assert len(patient.section(topic, Section(0, "heads", "g")).records) == 1
        replica.thaw()
        growing = doubling(patient)
        assert growing.finish(growing.go_on()).slots == 2
    for opened in (hasty, patient, patient_redis):
        opened.close()
    primary.kill()
    replica.call("REPLICAOF", "NO", "ONE")
    with Serving(replica.url, topic) as serving:
        serving.await_bodies({1})


@pytest.mark.gate
def test_what_is_stored_beside_a_closed_slot_is_waited_for_as_well(
    pair: tuple[RedisServer, RedisServer],
) -> None:
    primary, replica = pair
    entries = [Entry(slot, "a", "a", f"{slot}", f"{slot}", None, b"1") for slot in (0, 1)]
    for wait_s, error in ((9, SlotsClosed), (0.1, AnswerLost)):
        store = open_store(f"{primary.url}?wait_replicas=1&wait_timeout={wait_s}")
        store.declare(TOPIC)
        store.close_slot(TOPIC, 0)
        with pytest.raises(error):
            store.publish(TOPIC, entries)
        store.close()
        replica.freeze()


@pytest.mark.gate
def test_each_server_of_a_cluster_is_waited_for_and_once_for_many_messages(
    redis_cluster: RedisCluster3, tmp_path: Path
) -> None:
    """One of its servers has a replica, and the others have none."""
    first = redis_cluster.servers[0]
    url = f"{redis_cluster.url}?wait_replicas=1&wait_timeout=0.3"
    topic = Topic("few-replicas", slots=16)
    with (
        RedisServer(tmp_path, config={"replicaof": f"127.0.0.1 {first.port}"}) as replica,
        QFrame(url) as app,
    ):
        eventually(lambda: b"connected" in replica.call("ROLE"))
        with pytest.raises(PublishUnknown) as raised:
            app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(64)])
        assert len(raised.value.ids) == 64
    with Serving(redis_cluster.url, topic) as serving:
        serving.await_bodies(set(range(64)))
        assert serving.attempts == {1: 64}, "each was stored once, though it was published thrice"


def test_a_failover_loses_nothing_that_was_published(redis_sentinel: SentinelSet) -> None:
    topic = Topic("failover", "ordered", slots=4)
    with QFrame(f"{redis_sentinel.url}?wait_replicas=1&wait_timeout=9") as app:
        for number in range(100):
            app.publish(topic, number, key=f"k{number % 8}")
        before = redis_sentinel.current_primary_port()
        redis_sentinel.kill_primary()
    eventually(lambda: redis_sentinel.current_primary_port() != before)
    with Serving(redis_sentinel.url, topic) as serving:
        serving.await_bodies(set(range(100)))
        assert serving.attempts == {1: 100}


def test_a_user_who_may_not_wait_is_refused_before_anything_is_stored(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        client.acl_setuser("waits-not", enabled=True, passwords=["+s"], commands=["+@all", "-wait"],
                           keys=["qf:*"], channels=["qf:*"])  # fmt: skip
    url = redis_server.url.replace("redis://", "redis://waits-not:s@")
    with (
        QFrame(f"{url}?wait_replicas=1", namespace="waits-not") as app,
        pytest.raises(StoreForbidden, match="may not run wait"),
    ):
        app.publish(TOPIC, 1, key="a")
    with QFrame(url, namespace="waits-not") as app:
        assert app.publish(TOPIC, 1, key="a").outcome is Outcome.STORED
