"""A key with much behind its first message stops the server for nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import RedisServer

from qframe import Outgoing, QFrame, Topic
from qframe.message import Delivery
from qframe.outcomes import Moved, Settled, Verdict
from qframe.stores.records import HeadPlace
from qframe.stores.types import PullRequest, PullResult, PullTerms, Settlement

EPOCH = f"{1:016x}"
WINDOW, BEHIND = 400, 1600


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
