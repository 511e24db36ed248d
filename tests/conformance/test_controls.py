"""Controls: what is tuned of a group, which stands on documents."""

from __future__ import annotations

import pytest
from bench import Bench

from qframe.errors import UnknownGroup, UnknownTopic
from qframe.stores.documents import Space, Write
from qframe.topic import Topic

pytestmark = pytest.mark.written_once


def tuned(bench: Bench, topic: Topic, group: str = "g") -> dict[str, str] | None:
    [found] = bench.store.tunings([(topic, group)])
    return found


def test_what_is_set_is_found_until_it_is_taken_back(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    assert tuned(bench, topic) == {}
    bench.store.tune(topic, "g", {"threads": "16", "a.b-c_d": "ü \n'\"%s;--", "none": ""})
    assert tuned(bench, topic) == {"threads": "16", "a.b-c_d": "ü \n'\"%s;--", "none": ""}
    bench.store.tune(topic, "g", {"threads": "2", "none": None, "never": None})
    assert tuned(bench, topic) == {"threads": "2", "a.b-c_d": "ü \n'\"%s;--"}
    bench.store.tune(topic, "g", {})
    bench.store.tune(topic, "g", dict.fromkeys(("threads", "a.b-c_d")))
    assert tuned(bench, topic) == {}


def test_each_group_of_each_topic_has_its_own_and_all_are_found_in_one_call(bench: Bench) -> None:
    first, second = bench.topic("stream", "g", "h"), bench.topic("ordered", "g", "h@i")
    bench.store.tune(first, "g", {"threads": "1"})
    bench.store.tune(second, "h@i", {"threads": "2", "rate": "3/s"})
    asked = [(second, "h@i"), (first, "h"), (first, "g"), (second, "g"), (second, "h@i")]
    two = {"threads": "2", "rate": "3/s"}
    assert bench.store.tunings(asked) == [two, {}, {"threads": "1"}, {}, two]
    assert bench.store.tunings([]) == []


def test_a_namespace_sees_nothing_of_another(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    other = bench.beside("other")
    other.declare(topic)
    other.subscribe(topic, "g")
    bench.store.tune(topic, "g", {"threads": "1"})
    assert other.tunings([(topic, "g")]) == [{}]


def test_a_group_that_there_is_not_is_refused_but_for_asking(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    assert tuned(bench, topic, "nobody") == {}
    with pytest.raises(UnknownGroup, match="nobody"):
        bench.store.tune(topic, "nobody", {"threads": "1"})
    with pytest.raises(UnknownTopic):
        bench.store.tune(Topic("unknown"), "g", {"threads": "1"})
    assert bench.store.tunings([(topic, "nobody")]) == [{}]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_group_that_was_dropped_leaves_nothing_to_the_next_of_its_name(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", "h", slots=2)
    for group in ("g", "h"):
        bench.store.tune(topic, group, {"threads": "1"})
    bench.store.drop_group(topic, "g")
    assert tuned(bench, topic) == {}
    bench.store.subscribe(topic, "g")
    assert (tuned(bench, topic), tuned(bench, topic, "h")) == ({}, {"threads": "1"})


def test_documents_of_a_newer_version_beside_what_is_tuned_stay_and_are_in_nobodys_way(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    bench.store.write_documents(topic, "g", Space.TUNING, [Write("newer", "what")])
    bench.store.tune(topic, "g", {"threads": "1"})
    bench.store.tune(topic, "g", {"rate": "3/s"})
    assert tuned(bench, topic) == {"threads": "1", "rate": "3/s"}
    found = bench.store.list_documents(topic, "g", Space.TUNING).documents
    assert [each.name for each in found] == ["newer", "tuning"]
