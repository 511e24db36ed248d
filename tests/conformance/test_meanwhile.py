"""Another one acts between what an operation reads and what it does with it.

`tests/interleaving` has each two operations of a topic that is there; here are those of one that is
only being declared, and of a group that is there anew.
"""

from __future__ import annotations

import pytest
from bench import STALE, Bench, epoch
from late import meanwhile

from qframe.errors import TopicMismatch
from qframe.stores.types import NO_EPOCH
from qframe.topic import Topic

pytestmark = pytest.mark.written_once


@pytest.mark.promise(4)
@pytest.mark.parametrize(
    ("kind", "what"),
    [("stream", "take"), ("stream", "seek"), ("stream", "ack"), ("delay", "ack")],
)
def test_a_group_that_was_dropped_and_is_there_anew_is_met_as_it_is_now(
    bench: Bench, kind: str, what: str
) -> None:
    topic, other = bench.topic(kind, "g"), bench.another()
    bench.publish(topic, 1, "k")
    got = bench.got(topic)

    def begin_anew() -> None:
        other.drop_group(topic, "g")
        other.subscribe(topic, "g")

    meanwhile(bench.store, begin_anew)
    if what == "take":
        assert bench.store.take(topic, "g", {0: epoch(9)}) == [0]
    elif what == "ack":
        assert bench.ack(topic, *got) == STALE
    else:
        bench.store.seek(topic, "g", {0: 0})
    assert bench.store.epochs(topic, "g") == {0: epoch(9) if what == "take" else NO_EPOCH}
    assert bench.total(topic).settled == 0


def test_of_two_who_declare_a_topic_at_once_both_have_the_same(bench: Bench) -> None:
    topic = Topic(f"{bench.topic('stream').name}-both", slots=2)
    other = bench.another()
    done: list[Topic] = []
    meanwhile(bench.store, lambda: done.append(other.declare(topic)), at="numbers")
    bench.store.declare(topic)
    assert done == [topic]
    bench.topics.append(topic)
    other.subscribe(topic, "g")
    assert bench.store.groups(topic) == ["g"]


@pytest.mark.promise(8)
def test_of_two_who_declare_a_topic_otherwise_at_once_one_is_refused(bench: Bench) -> None:
    name = f"{bench.topic('stream').name}-either"
    other = bench.another()
    meanwhile(bench.store, lambda: other.declare(Topic(name, slots=4)), at="numbers")
    with pytest.raises(TopicMismatch):
        bench.store.declare(Topic(name, slots=2))
