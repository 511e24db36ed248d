"""A store whose topics of kind `delay` lie in another: each operation goes where its topic lies."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

import pytest

from qframe.clock import VirtualClock
from qframe.errors import BadOption, BadUrl, NotSupported, StoreUnavailable, TopicMismatch
from qframe.growth import Growth
from qframe.roster import NO_VERSION, Roster
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.open import open_store
from qframe.stores.pair import BY_TOPIC, StorePair
from qframe.stores.types import Entry, TopicList
from qframe.telemetry.store_numbers import StoreNumbers
from qframe.topic import Topic

EVENTS = Topic("events", "stream", slots=1)
TIMERS = Topic("timers", "delay", slots=1)


class Signed(ModelStore):
    """A store in memory with signposts, that can be away."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(namespace="n", clock=clock)
        self.signposts: list[str] = []
        self.is_away = False

    def point_away(self, topic: Topic, mark: int) -> int:
        self._look()
        if topic.name in self._states:
            raise TopicMismatch(topic.name, "kind", "stream", "timers_db")
        self.signposts.append(topic.name)
        return mark

    def unpoint(self, topic: Topic) -> None:
        self.signposts.remove(topic.name)

    def topics(self, names: Sequence[str] | None = None) -> TopicList:
        self._look()
        found = super().topics(names)
        away = BadOption("timers_db", "", "it lies elsewhere", "name it")
        found.unread += [away for name in names or () if name in self.signposts]
        return found

    def read_documents(self, places: Any) -> Any:
        self._look()
        return super().read_documents(places)

    def _look(self) -> None:
        if self.is_away:
            raise StoreUnavailable("redis://main", "it is away")


class Split:
    """Both parts, and the store that they are together."""

    def __init__(self) -> None:
        self.main = Signed(VirtualClock())
        self.timers = ModelStore(namespace="n", clock=VirtualClock())
        self.store = cast("Store", StorePair(self.main, self.timers))
        for topic in (EVENTS, TIMERS):
            self.store.declare(topic)
            self.store.subscribe(topic, "g")

    def publish(self, topic: Topic, name: str) -> None:
        subject = name if topic.has_subjects else None
        self.store.publish(topic, [Entry(0, subject, name, name, name, None, b"1")])


@pytest.fixture
def split() -> Split:
    return Split()


def test_it_has_every_operation_of_a_store(split: Split) -> None:
    operations = [name for name, _ in inspect.getmembers(Store, inspect.isfunction)]
    missing = [
        name for name in operations
        if not name.startswith("_") and not hasattr(split.store, name)
    ]  # fmt: skip
    assert missing == []
    own = {name for name in vars(StorePair) if not name.startswith("_")}
    assert {*BY_TOPIC, *own} >= {name for name in operations if not name.startswith("_")}


def test_timers_lie_in_the_database_alone_and_all_else_in_redis_alone(split: Split) -> None:
    split.publish(EVENTS, "a")
    split.publish(TIMERS, "b")
    assert [topic.name for topic in split.main.topics()] == ["events"]
    mark, *timers = [topic.name for topic in split.timers.topics()]
    assert (mark[:13], timers) == ("qframe.bound.", ["timers"])
    assert split.main.signposts == ["timers"]
    assert [topic.name for topic in split.store.topics()] == ["events", "timers"]
    assert split.store.topic("timers") == TIMERS
    assert [one.published for one in split.store.stats(TIMERS, "g")] == [1]
    assert [one.published for one in split.store.stats(EVENTS, "g")] == [1]


def test_topics_that_another_app_has_in_the_database_are_not_ours(split: Split) -> None:
    split.timers.declare(Topic("theirs", "stream", slots=1))
    assert [topic.name for topic in split.store.topics()] == ["events", "timers"]
    assert split.store.topic("theirs") is None


def test_a_name_that_is_taken_in_redis_is_refused(split: Split) -> None:
    with pytest.raises(TopicMismatch, match="events"):
        split.store.declare(Topic("events", "delay", slots=1))
    assert split.timers.topic("events") is None


def test_redis_away_keeps_nobody_from_timers(split: Split) -> None:
    split.main.is_away = True
    split.publish(TIMERS, "b")
    assert split.store.topic("timers") == TIMERS
    split.store.declare(TIMERS)
    assert split.store.sweep(TIMERS) == 0
    assert split.store.tunings([(EVENTS, "g"), (TIMERS, "g")]) == [None, {}]
    grown = TIMERS.grown(TIMERS.slots, Growth(target=2 * TIMERS.slots))
    assert split.timers.grow(TIMERS, grown)
    assert split.store.latest([EVENTS, TIMERS]) == [EVENTS, grown]
    with pytest.raises(StoreUnavailable):
        split.store.latest([EVENTS])
    with pytest.raises(StoreUnavailable):
        split.store.topic("events")
    with pytest.raises(StoreUnavailable):
        split.store.tunings([(EVENTS, "g")])


def test_a_sweep_sets_up_a_signpost_that_a_flushed_redis_has_lost(split: Split) -> None:
    split.main.signposts.clear()
    split.store.sweep(TIMERS)
    assert split.main.signposts == ["timers"]


def test_a_topic_that_is_deleted_leaves_no_signpost(split: Split) -> None:
    while not split.store.delete(TIMERS):
        pass
    assert split.main.signposts == []
    assert split.store.topics() == [EVENTS]


def test_times_are_of_the_clock_by_which_the_topic_is_judged(split: Split) -> None:
    split.timers._clock.advance(5000)  # type: ignore[attr-defined]
    assert split.store.now_ms(TIMERS) == split.store.now_ms() + 5000 == split.timers.now_ms()
    assert split.store.now_ms(EVENTS) == split.store.now_ms()


def test_one_bell_does_not_ring_for_two_stores(split: Split) -> None:
    split.store.bell([TIMERS]).close()
    with pytest.raises(NotSupported):
        split.store.bell([EVENTS, TIMERS])


@pytest.mark.parametrize(
    ("url", "timers_db", "error", "word"),
    [
        ("sqlite:///q.db", "sqlite:///t.db", BadOption, "keeps its timers itself"),
        ("model://", "sqlite:///t.db", BadOption, "keeps its timers itself"),
        ("redis://127.0.0.1:1", "redis://127.0.0.1:1", BadUrl, "names no database"),
        ("redis://127.0.0.1:1", "shop.db", BadUrl, "names no database"),
    ],
)
def test_what_cannot_be_a_store_with_timers_apart_is_refused(
    url: str, timers_db: str, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word) as raised:
        open_store(url, timers_db=timers_db)
    assert "timers_db" in str(raised.value)


def test_how_late_a_timer_is_goes_by_the_clock_of_the_database(split: Split) -> None:
    for store, ahead_ms in ((split.timers, 65_000), (split.main, 60_000)):
        cast("VirtualClock", store._clock).advance(ahead_ms)
    split.publish(TIMERS, "late")
    split.publish(EVENTS, "late")
    for store in (split.timers, split.main):
        cast("VirtualClock", store._clock).advance(3000)
    clock = VirtualClock(split.store.now_ms())
    numbers = StoreNumbers(
        split.store, roster=lambda _topic, _group: Roster(NO_VERSION, [], {}), clock=clock
    )
    found = {family.name: dict(family.values) for family in numbers.families()}
    late = found["qframe_oldest_due_seconds"]
    assert late["timers", "g"] == late["events", "g"] == 3
    assert found["qframe_clock_skew_seconds"][()] == 0


@pytest.mark.parametrize("url", ["model://", "memory://"])
def test_a_store_in_memory_goes_by_two_names(url: str) -> None:
    assert open_store(url).url == "model://"
    with pytest.raises(BadUrl, match="neither a name nor options; use model://"):
        open_store(f"{url}mine")
