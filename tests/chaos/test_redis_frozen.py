"""A handler slower than its lease keeps its message; a frozen worker loses it, and learns of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkers import out_of_order, overlapping, overtaking
from eventually import eventually
from history import CANCELLED, ENDED, STARTED, Fact, read
from holding import GROUP, HELD_LEASE_S, SLOW, SLOW_LEASE_S, SLOW_S, held, kept
from nursery import Child, Nursery
from servers import RedisServer

from qframe import QFrame, Topic

pytestmark = pytest.mark.promise(4)


class Bench:
    """A server, its workers, and one history for all of them."""

    def __init__(self, folder: Path, server: RedisServer, nursery: Nursery) -> None:
        self.app = QFrame(store=server.url)
        self.path = folder / "history"
        self.path.touch()
        self._server = server
        self._nursery = nursery

    def start(self, role: str, name: str) -> Child:
        return self._nursery.start(role, self._server.url, str(self.path), name)

    def facts(self, topic: Topic, what: str, by: str | None = None) -> list[Fact]:
        return [
            fact
            for fact in read(self.path)
            if (fact.topic, fact.what) == (topic.name, what) and by in (None, fact.by)
        ]

    def settled(self, topic: Topic) -> int:
        """How many messages of a topic are settled."""
        [totals] = self.app.admin.topic(topic).groups
        return totals.settled

    def settled_once(self, topic: Topic) -> bool:
        """Whether the one message of a topic was settled, as the store and its workers have it."""
        [totals] = self.app.admin.topic(topic).groups
        told = sum(fact.number for fact in self.facts(topic, "delivery.settled"))
        whole = self.app.admin.verify(topic) == []
        return whole and (totals.published, totals.settled, totals.lag, told) == (1, 1, 0, 1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("frozen")
    with (
        RedisServer(folder / "redis", aof=True) as server,
        Nursery("holding", folder / "workers.log") as nursery,
    ):
        bench = Bench(folder, server, nursery)
        with bench.app:
            yield bench


@pytest.fixture(scope="module", autouse=True)
def slow_worker(bench: Bench) -> Child:
    """It takes a minute, in which the other tests run."""
    bench.app.publish(SLOW, 0, key="k", id="slow")
    return bench.start("slow", "slow worker")


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_what_a_frozen_worker_holds_is_handled_by_another_and_its_late_ack_is_refused(
    bench: Bench, kind: str
) -> None:
    topic = held(kind)
    bench.app.publish(topic, 0, key="k", id=f"held-{kind}")
    frozen = bench.start(f"hold {kind}", "frozen")
    eventually(lambda: bench.facts(topic, STARTED, "frozen"))
    frozen.freeze()
    other = bench.start(f"hold {kind}", "other")
    eventually(lambda: bench.facts(topic, ENDED, "other"))
    eventually(lambda: bench.settled_once(topic))
    threading.Event().wait(2 * HELD_LEASE_S)
    assert not bench.facts(topic, CANCELLED)

    frozen.thaw()
    eventually(lambda: bench.facts(topic, CANCELLED, "frozen"))
    # Its last word was refused, and is counted; it goes on as one of two.
    eventually(lambda: bench.facts(topic, "delivery.stale", "frozen"))
    assert frozen.code() is None
    assert [fact.number for fact in bench.facts(topic, "delivery.stale")] == [1]
    assert [fact.number for fact in bench.facts(topic, "delivery.cancelled")] == [1]
    assert bench.settled_once(topic)
    assert [fact.attempt for fact in bench.facts(topic, STARTED)] == [1, 2]
    frozen.kill()
    other.kill()
    assert bench.app.admin.dead(topic, GROUP) == []


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_frozen_worker_that_nobody_replaced_goes_on_with_the_key_in_order_and_one_by_one(
    bench: Bench, kind: str
) -> None:
    topic = kept(kind)
    for number in range(2):
        bench.app.publish(topic, number, key="k", id=f"kept-{kind}-{number}")
    frozen = bench.start(f"keep {kind}", "frozen alone")
    eventually(lambda: bench.facts(topic, STARTED))
    frozen.freeze()
    threading.Event().wait(2 * HELD_LEASE_S)
    assert not bench.facts(topic, ENDED)

    frozen.thaw()
    bench.app.publish(topic, 2, key="k", id=f"kept-{kind}-2")
    eventually(lambda: bench.settled(topic) == 3)
    facts = [fact for fact in read(bench.path) if fact.topic == topic.name]
    assert overlapping(facts) == []
    assert out_of_order(facts, topic.name) == []
    assert overtaking(facts, topic.name) == []
    assert frozen.code() is None
    frozen.kill()
    assert bench.app.admin.verify(topic) == []


def test_a_handler_of_sixty_seconds_keeps_its_lease_of_five(
    bench: Bench, slow_worker: Child
) -> None:
    assert slow_worker.join(within=SLOW_S + 60) == 0
    [start], [end] = bench.facts(SLOW, STARTED), bench.facts(SLOW, ENDED)
    assert (start.attempt, end.attempt) == (1, 1)
    assert (end.at_ns - start.at_ns) / 1e9 >= SLOW_S > 10 * SLOW_LEASE_S
    assert bench.facts(SLOW, "delivery.stale") == []
    assert bench.settled_once(SLOW)
