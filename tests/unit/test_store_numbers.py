"""The numbers of a store, on the model: true though no worker lives."""

from __future__ import annotations

from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import StoreDamaged, StoreUnavailable
from qframe.growth import Growth
from qframe.roster import NO_VERSION, Roster
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry
from qframe.telemetry.store_numbers import StoreNumbers
from qframe.topic import Topic

EPOCH = "0" * 15 + "1"


class Bench:
    """A model store on a virtual clock, and its numbers."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.rosters: dict[str, Roster] = {}
        self.numbers = StoreNumbers(
            self.store, roster=self.roster, clock=self.clock, outboxes=[Pending()]
        )  # fmt: skip

    def roster(self, topic: Topic, group: str) -> Roster:
        return self.store.roster(topic, group) or Roster(NO_VERSION, [], {})

    def publish(self, topic: Topic, key: str, delay_ms: int | None = None) -> None:
        entry = Entry(
            slot=0, subject=key, id=key, mark=key, key=key, headers=None, body=b"1",
            delay_ms=delay_ms,
        )  # fmt: skip
        self.store.publish(topic, [entry])

    def number(self, name: str, *labels: str) -> Any:
        self.clock.advance(5000)
        found = {family.name: dict(family.values) for family in self.numbers.families()}
        return found[name][labels]


class Pending:
    """An outbox in which three messages wait, and one is refused."""

    name = "shop"

    def numbers(self) -> tuple[int, int]:
        return 3, 1


class Broken(Pending):
    """An outbox whose database is away."""

    name = "bills"

    def numbers(self) -> tuple[int, int]:
        raise ConnectionError


def test_it_is_told_where_messages_stand_how_late_and_who_is_missing() -> None:
    bench = Bench()
    topic = Topic("jobs", kind="delay", slots=2)
    bench.store.declare(topic)
    bench.store.subscribe(topic, "g")
    bench.publish(topic, "due")
    bench.publish(topic, "soon", delay_ms=600_000)
    bench.publish(topic, "next year", delay_ms=400 * 86_400_000)
    assert bench.number("qframe_messages", "jobs", "g", "todo") == 1
    assert bench.number("qframe_messages", "jobs", "g", "waiting") == 2
    assert bench.number("qframe_oldest_due_seconds", "jobs", "g") == 15
    assert bench.number("qframe_timers_due_within", "jobs", "1h") == 1
    assert bench.number("qframe_timers_due_within", "jobs", "1m") == 0
    assert bench.number("qframe_timers_due_within", "jobs", "1d") == 1
    assert bench.number("qframe_slots_unowned", "jobs", "g") == 2
    assert bench.number("qframe_workers", "jobs", "g") == 0
    assert bench.number("qframe_paused", "jobs", "g") == 0
    bench.store.heartbeat(topic, "g", "w", 60_000)
    bench.store.claim(topic, "g", "w", {0: EPOCH})
    bench.store.tune(topic, "g", {"paused": "yes"})
    assert bench.number("qframe_slots_unowned", "jobs", "g") == 1
    assert bench.number("qframe_workers", "jobs", "g") == 1
    assert bench.number("qframe_paused", "jobs", "g") == 1
    assert bench.number("qframe_outbox_pending", "shop") == 3
    assert bench.number("qframe_outbox_refused", "shop") == 1
    assert bench.number("qframe_clock_skew_seconds") == 0
    assert bench.number("qframe_schedule_overdue_seconds") == 0


@pytest.mark.parametrize("ahead_s", [7, -7])
def test_the_skew_is_how_far_this_clock_is_ahead_of_that_of_the_store(ahead_s: int) -> None:
    store = ModelStore(clock=VirtualClock())
    clock = VirtualClock(store.now_ms() + ahead_s * 1000)
    roster = Bench().roster
    numbers = StoreNumbers(store, roster=roster, clock=clock)
    found = {family.name: dict(family.values) for family in numbers.families()}
    assert found["qframe_clock_skew_seconds"] == {(): ahead_s}


def test_it_is_read_once_however_many_ask() -> None:
    bench = Bench()
    assert bench.numbers.families() is bench.numbers.families()


def test_a_store_that_is_away_is_a_number_too() -> None:
    bench = Bench()

    def away() -> Any:
        raise StoreUnavailable("model://", "it is away")

    bench.store.topics = away  # type: ignore[method-assign]
    [up] = bench.numbers.families()
    assert (up.name, dict(up.values)) == ("qframe_store_up", {(): 0})


def test_a_timer_counts_within_a_time_that_is_longer_than_it_takes() -> None:
    bench = Bench()
    topic = bench.store.declare(Topic("jobs", kind="delay", slots=1))
    bench.store.subscribe(topic, "g")
    bench.publish(topic, "k", delay_ms=65_000)
    assert bench.number("qframe_timers_due_within", "jobs", "1m") == 0
    bench.clock.advance(1)
    assert bench.number("qframe_timers_due_within", "jobs", "1m") == 1


def test_groups_beyond_the_most_are_counted_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qframe.telemetry.store_numbers.MOST_GROUPS", 2)
    bench = Bench()
    topic = bench.store.declare(Topic("jobs", slots=1))
    for number in range(5):
        bench.store.subscribe(topic, f"g{number}")
    assert bench.number("qframe_groups_left_out") == 3
    assert bench.number("qframe_dead", "jobs", "g1") == 0
    with pytest.raises(KeyError):
        bench.number("qframe_dead", "jobs", "g2")


def test_a_slot_that_is_being_split_lacks_no_owner() -> None:
    bench = Bench()
    topic = bench.store.declare(Topic("jobs", slots=2))
    bench.store.subscribe(topic, "g")
    assert bench.store.grow(topic, topic.grown(2, Growth(target=4, closing=True)))
    assert bench.number("qframe_slots_unowned", "jobs", "g") == 1


def test_what_is_damaged_or_away_takes_no_other_numbers_along() -> None:
    bench = Bench()
    for name in ("a", "b"):
        topic = bench.store.declare(Topic(name, kind="delay", slots=1))
        bench.store.subscribe(topic, "g")
    read, pending = bench.store.timers, Pending()
    bench.numbers._outboxes = [Broken(), pending]

    def timers(topic: Topic, span: Any) -> Any:
        if topic.name == "a":
            raise StoreDamaged("model://", "WRONGTYPE")
        return read(topic, span)

    bench.store.timers = timers  # type: ignore[method-assign]
    assert bench.number("qframe_timers_due_within", "b", "1m") == 0
    assert bench.number("qframe_outbox_pending", "shop") == 3


def test_a_look_that_is_too_short_for_all_topics_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.numbers._rounds._seconds = 0.0
    for name in ("a", "b", "c"):
        topic = bench.store.declare(Topic(name, kind="delay", slots=1))
        bench.store.subscribe(topic, "g")
        bench.publish(topic, "k")
    monkeypatch.setattr("qframe.telemetry.store_numbers.FRESH_S", 0.0)
    shown = []
    for _ in range(3):
        found = {family.name: dict(family.values) for family in bench.numbers.families()}
        left_out = found["qframe_groups_left_out"][()]
        shown.append((len(found["qframe_dead"]), left_out, found["qframe_oldest_look_seconds"][()]))
        bench.clock.advance(7000)
    assert shown == [(1, 2, 0), (2, 1, 7), (3, 0, 14)]
