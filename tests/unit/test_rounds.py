"""Looks at all topics: each takes a bounded time, and the next one goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.admin.rounds import Rounds
from qframe.admin.search import Query, searched
from qframe.clock import VirtualClock
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry
from qframe.topic import Topic


class Looker:
    """Looks at topics; each look at one takes a tenth of a second."""

    def __init__(self, seconds: float) -> None:
        self.clock = VirtualClock()
        self.rounds = Rounds[str](self.clock, seconds)
        self.looked: list[str] = []

    def at(self, topic: Topic) -> str:
        self.clock.advance(100)
        self.looked.append(topic.name)
        return topic.name.upper()

    def round(self, names: list[str], first: str | None = None) -> list[str]:
        self.looked = []
        return self.rounds.look([Topic(name) for name in names], self.at, first)


def test_a_look_ends_when_its_time_has_passed_and_the_next_one_goes_on() -> None:
    looker = Looker(0.25)
    names = ["a", "b", "c", "d", "e"]
    assert looker.round(names) == ["A", "B", "C"]
    assert (looker.round(names), looker.looked) == (["A", "B", "C", "D", "E"], ["d", "e", "a"])
    assert looker.round(names)
    assert looker.looked == ["b", "c", "d"]


def test_a_look_with_time_for_all_looks_at_each_once() -> None:
    looker = Looker(60)
    for _ in range(3):
        assert looker.round(["a", "b"]) == ["A", "B"]
        assert sorted(looker.looked) == ["a", "b"]


def test_one_topic_at_least_is_looked_at_and_one_may_be_first() -> None:
    looker = Looker(0)
    assert looker.round(["a", "b", "c"], first="c") == ["C"]
    assert looker.round(["a", "b", "c"], first="nobody") == ["A", "C"]
    assert looker.round([]) == []


def test_what_is_there_no_more_is_forgotten() -> None:
    looker = Looker(60)
    looker.round(["a", "b"])
    assert looker.round(["b", "c"]) == ["B", "C"]
    assert sorted(looker.rounds.seen) == ["b", "c"]


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=12),
    st.floats(0, 0.5),
)
def test_a_topic_that_stays_is_looked_at_within_as_many_looks_as_there_are_topics(
    rounds: list[set[str]], seconds: float
) -> None:
    looker = Looker(seconds)
    unseen: dict[str, int] = {}
    for names in rounds:
        looker.round(sorted(names))
        assert len(looker.looked) == len({*looker.looked}) >= 1
        unseen = {each: unseen.get(each, 0) + 1 for each in names if each not in looker.looked}
        assert all(times < 8 for times in unseen.values())


def test_a_search_in_many_topics_says_how_far_it_came_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qframe.admin.search.LOOK_UP_S", 0)
    store = ModelStore()
    topics = [store.declare(Topic(f"t{number}", kind="delay", slots=1)) for number in range(4)]
    for topic in topics[1:3]:
        store.publish(topic, [Entry(0, "k", "i", "i", "k", None, b"1")])
    place: str | None = None
    found, places = [], []
    for _ in range(4):
        hits = searched(store, topics, Query(id="i"), place=place, limit=5, look=50)
        found += [record.topic for record in hits.records]
        places.append(place := hits.place)
    assert found == ["t1", "t2"]
    assert places == ["@t0", "@@t1", "@@t2", None]
