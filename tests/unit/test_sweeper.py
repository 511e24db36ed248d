"""Sweeping goes on while topics come and go."""

from __future__ import annotations

from qframe.clock import VirtualClock
from qframe.growth import Growth
from qframe.runtime.process.sweeper import Sweeper
from qframe.stores.doubling import LEASE_MS, Doubling
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic


def test_a_topic_that_is_gone_has_nothing_to_be_swept_and_ends_no_worker() -> None:
    sweeper = Sweeper(
        topics=[], store=ModelStore(), owned=lambda *_: (), on_failure=lambda name, error: None
    )
    assert sweeper._sweep(Topic("gone", kind="stream", slots=1)) == 0


def test_a_growth_whose_process_has_ended_is_finished_by_a_worker() -> None:
    clock = VirtualClock()
    store = ModelStore(clock=clock)
    topic = store.declare(Topic("orders", slots=2))
    Doubling(store, "orders", owned=lambda *_: (), pause=lambda _: None).begin(8)
    sweeper = Sweeper(
        topics=[topic], store=store, owned=lambda *_: (), on_failure=lambda name, error: None
    )
    sweeper.finish_growths()
    [found] = store.latest([topic])
    assert found == topic.grown(2, Growth(target=8, until_ms=clock.now_ms() + LEASE_MS))
    clock.advance(2 * LEASE_MS)
    sweeper.finish_growths()
    [found] = store.latest([topic])
    assert found == topic.grown(8, Growth(first=6))
