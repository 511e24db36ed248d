"""Where no worker runs, whoever publishes or looks sweeps some rows now and then."""

from __future__ import annotations

from itertools import pairwise

import pytest

from qframe.clock import VirtualClock
from qframe.errors import StoreForbidden, StoreUnavailable
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.producing.sweeping import STEP, OccasionalSweeper
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic

ORDERS = Topic("orders", slots=1, dedupe_window="10s", retain="10s")


class Steps:
    """Sweeps: each step takes 20 ms, and removes what the script says, or raises it."""

    def __init__(self, *script: int | Exception) -> None:
        self.clock = VirtualClock()
        self.script = [*script]
        self.at_s: list[float] = []
        self.sweeper = OccasionalSweeper(self._sweep, self.clock)

    def _sweep(self, topic: Topic, most: int) -> int:
        assert most == STEP
        self.at_s.append(self.clock.monotonic_s())
        self.clock.advance(20)
        removed = self.script.pop(0) if self.script else 0
        if isinstance(removed, Exception):
            raise removed
        return removed

    def look_each(self, ms: int, seconds: float) -> list[float]:
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            self.sweeper.look(ORDERS)
            self.clock.advance(ms)
        return self.at_s


def test_a_program_that_ends_soon_never_sweeps() -> None:
    assert Steps().look_each(100, 59) == []


def test_it_comes_seldom_while_there_is_nothing_to_remove() -> None:
    at_s = Steps().look_each(1000, 2500)
    waits = [later - earlier for earlier, later in pairwise(at_s)]
    assert [round(wait) for wait in waits] == [60, 120, 240, 480, 480, 480, 480]


def test_it_takes_a_tenth_of_the_time_while_there_is_more_to_remove() -> None:
    steps = Steps(*[STEP] * 1000)
    at_s = [at for at in steps.look_each(1, 80) if at > 60]
    assert 0.08 <= 0.02 * len(at_s) / (at_s[-1] - at_s[0]) <= 0.12


def test_where_the_user_may_not_sweep_that_is_left_to_others() -> None:
    steps = Steps(StoreForbidden("redis://here", "NOPERM"))
    assert len(steps.look_each(1000, 4000)) == 1


def test_a_store_that_is_away_is_asked_again_and_nobody_is_told() -> None:
    steps = Steps(StoreUnavailable("redis://here", "it is away"), 3)
    assert [round(at) for at in steps.look_each(1000, 200)] == [60, 120, 180]


@pytest.mark.promise(8)
def test_a_stream_that_has_producers_alone_does_not_grow_without_end() -> None:
    clock = VirtualClock()
    store = ModelStore(clock=clock)
    producer = Producer(
        store, catalog=TopicCatalog(store), max_body=1000, batch=500, clock=clock,
        sweeper=OccasionalSweeper(store.sweep, clock),
    )  # fmt: skip
    most = 0
    for number in range(3000):
        producer.publish(ORDERS, number)
        clock.advance(1000)
        [stats] = store.stats(ORDERS)
        most = max(most, stats.todo)
    assert most <= 500
