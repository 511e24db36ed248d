"""Workers and Redis are killed again and again: nothing is lost, out of order, or twice at once.

`QFRAME_CHAOS_MESSAGES` (30,000) says how many messages; `QFRAME_CHAOS_SEED` (2026) chooses keys
and moments.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from checkers import missing, out_of_order, overlapping, overtaking, too_often, unexplained
from counting import GROUP, TOPICS
from history import (
    DIED,
    DUPLICATE,
    ENDED,
    STARTED,
    STORE_BACK,
    STORE_KILLED,
    UNAVAILABLE,
    UNKNOWN,
    Fact,
    History,
    Tail,
    read,
)
from nursery import Child, Nursery
from producing import Producing
from servers import RedisServer
from telling import tell

from qframe import QFrame
from qframe.drivers.redis import PATIENCE_S

pytestmark = pytest.mark.promise(1, 3)

MESSAGES = int(os.environ.get("QFRAME_CHAOS_MESSAGES", "30000"))
SEED = int(os.environ.get("QFRAME_CHAOS_SEED", "2026"))
EACH = MESSAGES // len(TOPICS)
KEYS = 500
STORE_KILLS = 5
MAX_ATTEMPTS = 16
WITHIN_S = 600.0


class Nemesis:
    """Kills a worker each second, and Redis whenever another sixth of the work is done.

    Redis is away for up to two seconds, but once for longer than a client is patient. Every second
    time workers are killed and started meanwhile, too, and one that ends by itself is started
    again; the other times the worker there is must live through it.

    Redis must be restarted by the thread that lives as long as it, so this is no thread.
    """

    def __init__(self, folder: Path, server: RedisServer, chance: random.Random) -> None:
        self.path = folder / "history"
        self.counts: Counter[str] = Counter()
        self._server = server
        self._chance = chance
        self._history = History(self.path, "nemesis")
        self._nursery = Nursery("counting", folder / "workers.log")
        self._tail = Tail(self.path)
        self._done: set[tuple[str, str]] = set()
        self._worker: Child | None = None
        self._workers = 0
        self._next_s = 0.0
        self._marks = [
            int(MESSAGES * (number + chance.uniform(0.6, 1.4)) / (STORE_KILLS + 1))
            for number in range(STORE_KILLS)
        ]
        self._outages_s = [chance.uniform(0, 2) for _ in range(STORE_KILLS - 1)]
        self._outages_s.insert(chance.randrange(STORE_KILLS), PATIENCE_S + 2)
        self._back_s: float | None = None
        self._spares = False

    def close(self) -> None:
        self._nursery.close()
        self._tail.close()
        self._history.close()

    @property
    def done(self) -> int:
        """How many messages were handled to their end, at the last look."""
        return len(self._done)

    def look(self) -> None:
        self._done.update((fact.topic, fact.id) for fact in self._tail.new() if fact.what == ENDED)

    def rage(self) -> None:
        """Kills until nearly all is done and Redis is back from its last death."""
        pause = threading.Event()
        until_s = time.monotonic() + WITHIN_S
        while self.done < 0.97 * MESSAGES or self._marks or self._back_s is not None:
            assert time.monotonic() < until_s, f"only {self.done} of {MESSAGES} are done"
            pause.wait(0.02)
            self.look()
            self._deal_with_worker()
            self._deal_with_store()
        if self._worker is not None:
            self._worker.kill()
            self._over("worker killed")

    def finish(self) -> None:
        """Lets a last worker do what is left."""
        assert self._start("burst").join(within=120) == 0
        self.look()

    def _deal_with_worker(self) -> None:
        worker, now_s = self._worker, time.monotonic()
        if worker is not None and worker.code() is not None:
            self._over("worker ended")
            self._next_s = now_s + 0.2
        elif worker is not None and now_s >= self._next_s and not self._spares:
            worker.kill()
            self._over("worker killed")
            self._next_s = now_s
        if self._worker is None and now_s >= self._next_s:
            self._worker = self._start()
            self._next_s = self._soon()

    def _deal_with_store(self) -> None:
        now_s = time.monotonic()
        if self._back_s is not None:
            if now_s >= self._back_s:
                self._back_s = None
                self._server.restart()
                self._history.note(STORE_BACK)
                if self._spares:
                    self._spares = False
                    self._next_s = self._soon()
        elif self._marks and self.done >= self._marks[0]:
            self._marks.pop(0)
            self._history.note(STORE_KILLED)
            self._server.kill()
            self._back_s = now_s + self._outages_s.pop()
            self.counts["store killed"] += 1
            self._spares = self.counts["store killed"] % 2 == 1

    def _start(self, *mode: str) -> Child:
        self._workers += 1
        self.counts["worker started"] += 1
        return self._nursery.start(
            self._server.url, str(self.path), f"worker {self._workers}", *mode
        )

    def _soon(self) -> float:
        return time.monotonic() + self._chance.uniform(0.8, 1.2)

    def _over(self, how: str) -> None:
        self._history.note(DIED, by=f"worker {self._workers}")
        self._worker = None
        self.counts[how] += 1


def test_kills_of_workers_and_of_redis_lose_nothing_and_keep_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with RedisServer(tmp_path / "redis", aof=True) as server:
        nemesis = Nemesis(tmp_path, server, chance)
        producing = Producing(
            server.url, nemesis.path, TOPICS, messages=EACH, keys=KEYS,
            chance=random.Random(SEED + 1),
            may_go_on=lambda published: published < nemesis.done / len(TOPICS) + EACH / 10,
        )  # fmt: skip
        try:
            producing.start()
            nemesis.rage()
            producing.join(WITHIN_S)
            nemesis.finish()
        finally:
            producing.stop()
            nemesis.close()
        assert producing.error is None
        facts = read(nemesis.path)
        report(facts, nemesis.counts)
        with QFrame(store=server.url) as app:
            for topic in TOPICS:
                [totals] = app.admin.topic(topic).groups
                assert (totals.published, totals.settled, totals.dead) == (EACH, EACH, 0), totals
                assert app.admin.verify(topic) == []
                assert app.admin.dead(topic, GROUP) == []
    assert nemesis.counts["store killed"] == STORE_KILLS
    assert missing(facts) == []
    assert overlapping(facts) == []
    assert too_often(facts, MAX_ATTEMPTS) == []
    assert unexplained(facts) == []
    for topic in TOPICS:
        assert out_of_order(facts, topic.name) == []
        assert overtaking(facts, topic.name) == []


def report(facts: list[Fact], kills: Counter[str]) -> None:
    counts = Counter(fact.what for fact in facts)
    starts = [fact.at_ns for fact in facts if fact.what == STARTED]
    gap_s = max(after - before for before, after in pairwise(starts)) / 1e9
    doubts, refusals, known = counts[UNKNOWN], counts[UNAVAILABLE], counts[DUPLICATE]
    tell(
        f"seed {SEED}", facts, f"kills: {dict(kills)}",
        f"publishing again: {doubts} in doubt, {refusals} refused, {known} by the producer itself",
        f"longest time in which no handler started: {gap_s:.1f} s",
    )  # fmt: skip
