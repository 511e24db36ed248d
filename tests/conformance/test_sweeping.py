"""Sweeping where slots were split, and where messages that came together are settled apart."""

from __future__ import annotations

import pytest
from bench import Bench

from qframe.stores.doubling import Doubling
from qframe.topic import Topic


@pytest.mark.promise(1)
@pytest.mark.parametrize("steps", [(500,), (1, 1)])
def test_of_messages_that_came_together_a_sweep_takes_the_settled_ones(
    bench: Bench, steps: tuple[int, ...]
) -> None:
    topic = bench.topic("stream", "g", retain="50ms", dedupe_window="1h")
    bench.store.publish(topic, [bench.entry(topic, number) for number in range(4)])
    bench.ack(topic, *bench.got(topic)[:2])
    bench.advance(50)
    assert sum(bench.store.sweep(topic, most) for most in steps) == 2
    assert bench.store.sweep(topic) == 0
    bench.store.subscribe(topic, "late")
    bench.take(topic, "late")
    assert bench.bodies(topic, "late") == [2, 3]


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_history_of_slots_that_were_split_is_swept_like_that_of_others(
    bench: Bench, is_kept: bool
) -> None:
    topic = bench.topic("ordered", "g", slots=2, history="200ms", dedupe_window="1h")
    for number in range(20):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
    bench.ack(topic, *bench.got(topic))
    grower = Doubling(bench.store, topic.name, owned=lambda *_: (), pause=lambda _: None)
    grown = grower.finish(grower.begin(4))
    if is_kept:
        bench.advance(199)
        assert bench.store.sweep(grown) == 0
        assert len(bench.store.history(grown, "m0")) == 1
        bench.advance(1)
    else:
        bench.store.declare(Topic(topic.name, "ordered", 2, dedupe_window="1h"))
    swept = 0
    while removed := bench.store.sweep(grown, 7):
        swept += removed
    assert swept >= 20
    assert bench.store.history(grown, "m0") == []
