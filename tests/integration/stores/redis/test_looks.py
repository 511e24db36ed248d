"""A look costs what it shows and misses nothing; a long line is not written anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import RedisServer
from whereabouts import whereabouts

from qframe import Outgoing, QFrame, Topic
from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.outcomes import Moved, Settled, Verdict
from qframe.stores.records import HeadPlace
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import PullRequest, PullResult, PullTerms, Settlement

EPOCH = f"{1:016x}"
WINDOW, BEHIND = 400, 1600

BODY = "x" * 1000
SETTLED = 250


@pytest.fixture
def app(redis_server: RedisServer, tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(redis_server.url, namespace=tmp_path.name) as app:
        yield app


@pytest.mark.parametrize("state", ["waiting", "todo"])
def test_who_peeks_at_some_messages_does_not_read_all_others(
    app: QFrame, redis_server: RedisServer, state: str
) -> None:
    """A page of the console read all timers of a slot at once, and the server did nothing else."""
    topic = Topic("reminders", "delay", slots=1)
    app.declare(topic)
    app.store.subscribe(topic, "g")
    delay = "1h" if state == "waiting" else None
    app.publish_many(topic, [Outgoing(BODY, key=f"{key}", delay=delay) for key in range(3000)])
    with redis_server.client() as client:
        before = client.info("stats")["total_net_output_bytes"]
        found = app.admin.peek("reminders", "g", states=[state], limit=10)
        read = client.info("stats")["total_net_output_bytes"] - before
    assert len(found) == 10
    assert read < 100_000


def test_who_peeks_at_what_is_in_doing_does_not_read_all_that_is_settled_behind_a_slow_message(
    app: QFrame, redis_server: RedisServer
) -> None:
    topic = Topic("orders", slots=1)
    app.declare(topic)
    app.store.subscribe(topic, "g")
    epochs = {0: f"{1:016x}"}
    app.store.take(topic, "g", epochs)
    app.publish_many(topic, [Outgoing([n, BODY], key="k") for n in range(3000)], batch=50)
    asks = [PullRequest(0, epochs[0], 3000, 0)]
    pulled = app.store.pull(topic, "g", asks, PullTerms("r", 60_000, 9))
    slow = (0, 1700, 2999)
    done = [one for one in pulled.deliveries if one.seq not in slow]
    app.store.acknowledge(topic, "g", done, epochs)
    with redis_server.client() as client:
        before = client.info("stats")["total_net_output_bytes"]
        found = app.admin.peek("orders", "g", states=["doing"])
        read = client.info("stats")["total_net_output_bytes"] - before
    assert [(one.seq, one.state) for one in found] == [(seq, "doing") for seq in slow]
    assert read < 1_000_000


def test_more_than_one_page_of_what_waits_comes_by_its_times(
    app: QFrame,
) -> None:
    topic = Topic("reminders", "delay", slots=1)
    app.declare(topic)
    app.store.subscribe(topic, "g")
    hours = list(range(1, 500))
    app.publish_many(topic, [Outgoing(n, key=f"{n}", delay=f"{n}h") for n in reversed(hours)])
    found = app.admin.peek("reminders", "g", states=["waiting"], limit=300)
    assert [int(one.key or 0) for one in found] == hours[:300]


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_a_message_that_stands_still_is_found_whatever_is_settled_meanwhile(
    app: QFrame, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The relay of an outbox asks so before it sends again a row whose id is forgotten."""
    topic = Topic("orders", kind, slots=1)
    app.declare(topic)
    store = app.store
    assert isinstance(store, RedisStore)
    store.subscribe(topic, "g")
    epochs = {0: f"{1:016x}"}
    store.take(topic, "g", epochs)
    run, calls = Redis.run, [0, 0]

    def settle() -> None:
        asks = [PullRequest(0, epochs[0], SETTLED)]
        pulled = store.pull(topic, "g", asks, PullTerms("r", 60_000, 9))
        store.acknowledge(topic, "g", pulled.deliveries, epochs)

    def interrupted(redis: Redis, requests: Any, *, partly: bool = False) -> list[Any]:
        replies = run(redis, requests, partly=partly)
        calls[0] += 1
        if calls[0] == calls[1]:
            settle()
        return replies

    app.publish_many(topic, [Outgoing(n, key=f"k{n}", id=f"order-{n}") for n in range(4000)])
    for number, at in enumerate([1, 2, 4, 8, 16, 32, 64, 128, 256, 512]):
        calls[:] = [0, at]
        with monkeypatch.context() as patch:
            patch.setattr(Redis, "run", interrupted)
            name = f"order-{SETTLED * number + SETTLED + 200}"
            found = whereabouts(store, topic, name)
        assert [one.id for one in found] == [name]


@pytest.mark.promise(3)
@pytest.mark.promise(7)
def test_what_comes_back_before_a_long_line_is_put_in_its_place_without_writing_the_line_anew(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """256 of them before 6,000 others took the server more than ten seconds, in one script."""
    topic = Topic("orders", slots=1)
    with QFrame(redis_server.url, namespace=tmp_path.name) as app, redis_server.client() as client:
        app.declare(topic)
        store = app.store
        store.subscribe(topic, "g", max_parked=10_000)
        store.take(topic, "g", {0: EPOCH})
        app.publish_many(topic, [Outgoing(n, key="hot") for n in range(WINDOW + BEHIND)])

        def pull(limit: int, position: int | None = None) -> PullResult:
            asks = [PullRequest(0, EPOCH, limit, position)]
            return store.pull(topic, "g", asks, PullTerms("r", 600_000, 16))

        def end(ended: list[Delivery], verdict: Verdict, delay_ms: int = 0) -> None:
            settlements = [
                Settlement(
                    slot=0, subject=one.subject, seq=one.seq, receipt=one.receipt, epoch=EPOCH,
                    attempt=one.attempt, verdict=verdict, delay_ms=delay_ms, id=one.id,
                )
                for one in ended
            ]  # fmt: skip
            assert set(store.settle(topic, "g", settlements)) == {Settled.SETTLED}

        window = pull(WINDOW, 0).deliveries
        end(window[:1], Verdict.RETRY, 3_600_000)
        while pull(1000).stops:
            pass
        assert client.llen(f"qf:{{{tmp_path.name}:orders:0}}:g:g:behind:hot") == BEHIND

        before = client.info("commandstats").get("cmdstat_rpush", {"calls": 0})["calls"]
        end(window[1:], Verdict.RELEASE)
        after = client.info("commandstats").get("cmdstat_rpush", {"calls": 0})["calls"]
        assert after == before
        assert app.admin.verify(topic) == []

        assert store.hasten(topic, "g", HeadPlace(0, "hot", 0)) == Moved.DONE
        handled: list[int] = []
        while some := pull(500).deliveries:
            end(some, Verdict.ACK)
            handled += [one.seq for one in some]
        assert handled == list(range(WINDOW + BEHIND))
        assert app.admin.verify(topic) == []
