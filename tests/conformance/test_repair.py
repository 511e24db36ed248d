"""A healthy topic is left as it is; `tests/integration/stores/test_verify.py` has others."""

from __future__ import annotations

import pytest
from bench import Bench

from qframe.errors import UnknownTopic
from qframe.topic import Topic


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_healthy_topic_is_not_changed_by_a_repair(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    for number in range(6):
        bench.publish(topic, number, f"k{number % 3}")
    bench.take(topic, "g")
    bench.pull(topic, "g", limit=2)
    before = bench.store.stats(topic)
    assert bench.store.repair(topic) == []
    assert bench.store.stats(topic) == before
    assert bench.store.verify(topic) == []


def test_a_topic_that_nobody_has_declared_is_not_repaired(bench: Bench) -> None:
    with pytest.raises(UnknownTopic):
        bench.store.repair(Topic("never", "delay", slots=1))
