"""Sweeping goes on while topics come and go, and growths that nobody sees to are finished."""

from __future__ import annotations

from typing import Any, cast

import pytest
from eventually import eventually

from qframe import Message, QFrame
from qframe.clock import VirtualClock
from qframe.events import Events
from qframe.growth import Growth
from qframe.idempotency.sweep import EVERY_S, EffectSweeper
from qframe.runtime.process.sweeper import Sweeper
from qframe.stores.base import Store
from qframe.stores.doubling import LEASE_MS, MAX_PAUSE_S, Doubling
from qframe.stores.model.store import ModelStore
from qframe.stores.pair import StorePair
from qframe.stores.types import Entry
from qframe.topic import Topic

HOUR_MS = 3_600_000


class Stop:
    """A stop event under a virtual clock: whoever waits for it spends that time, until `left`."""

    def __init__(self, clock: VirtualClock, left_s: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic_s() + left_s

    def wait(self, seconds: float) -> bool:
        self._clock.advance(round(seconds * 1000))
        return self.is_set()

    def is_set(self) -> bool:
        return self._clock.monotonic_s() > self._until_s


def sweeper_of(
    store: Any, clock: VirtualClock, *topics: Topic, left_s: float = 10**6,
    events: Events | None = None,
) -> Sweeper:  # fmt: skip
    sweeper = Sweeper(
        topics=list(topics), store=store, owned=lambda *_: (), events=events or Events(),
        on_failure=lambda *_: None, clock=clock,
    )  # fmt: skip
    sweeper._stopping = Stop(clock, left_s)  # type: ignore[assignment]
    return sweeper


def entry(topic: Topic, number: int) -> Entry:
    name = f"m{number}"
    return Entry(0, name if topic.has_subjects else None, name, name, name, None, b"1", number)


def begin(store: Any, topic: Topic, slots: int) -> Topic:
    """Begins a growth whose process ends at once."""
    return Doubling(store, topic.name, owned=lambda *_: (), pause=lambda _: None).begin(slots)


def latest(store: Any, topic: Topic) -> Topic:
    [found] = store.latest([topic])
    assert found is not None
    return cast("Topic", found)


def test_a_topic_that_is_gone_has_nothing_to_be_swept_and_ends_no_worker() -> None:
    gone = Topic("gone", kind="stream", slots=1)
    assert sweeper_of(ModelStore(), VirtualClock(), gone).sweep() == 0


def test_a_topic_is_swept_seldom_while_it_is_quiet_and_often_once_there_is_something() -> None:
    clock = VirtualClock()
    at_s: list[float] = []
    start_s = clock.monotonic_s()

    class Noting(ModelStore):
        def sweep(self, topic: Topic, limit: int = 500) -> int:
            at_s.append(clock.monotonic_s() - start_s)
            return super().sweep(topic, limit)

    store = Noting(clock=clock)
    topic = store.declare(Topic("orders", slots=1, dedupe_window="40m"))
    store.subscribe(topic, "g")
    store.publish(topic, [entry(topic, 1)])
    sweeper_of(store, clock, topic, left_s=3000).run()
    assert at_s == [30, 90, 210, 450, 930, 1410, 1890, 2370, 2850, 2880, 2940]


class Busy(ModelStore):
    """Takes time for each step, and has so many rows to remove of each topic."""

    def __init__(self, clock: VirtualClock, rows: dict[str, int], step_ms: int = 10) -> None:
        super().__init__(clock=clock)
        self._time, self._step_ms = clock, step_ms
        self.rows = rows
        self.steps: list[str] = []

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        self.steps.append(topic.name)
        self._time.advance(self._step_ms)
        removed = min(limit, self.rows[topic.name])
        self.rows[topic.name] -= removed
        return removed


def test_topics_are_swept_by_turns_and_take_a_tenth_of_the_time() -> None:
    """It rested as long after each step, however quick that was, and one topic had to wait."""
    clock = VirtualClock()
    store = Busy(clock, {"a": 20_000, "b": 1000, "c": 0})
    before_s = clock.monotonic_s()
    removed = sweeper_of(store, clock, *[Topic(name, slots=1) for name in "abc"]).sweep()
    assert removed == 21_000
    assert store.steps[:7] == ["a", "b", "c", "a", "b", "a", "b"]
    took_s = clock.monotonic_s() - before_s
    assert 0.09 <= len(store.steps) * 0.01 / took_s <= 0.11


def test_it_tells_each_minute_of_what_it_is_behind_with_and_sees_to_growths_meanwhile() -> None:
    clock, told, events = VirtualClock(), list[tuple[str, Any, Any]](), Events()
    events.listen(lambda name, facts: told.append((name, facts["topics"], facts["for_s"] // 60)))
    events.listen(lambda *_: behind.append({**sweeper.behind_s}))
    behind: list[dict[str, int]] = []
    store = Busy(clock, {"a": 700_000, "b": 10})
    topics = [Topic(name, slots=1) for name in "ab"]
    sweeper = sweeper_of(store, clock, *topics, events=events)
    looks: list[float] = []
    sweeper.finish_growths = lambda: looks.append(clock.monotonic_s())  # type: ignore[method-assign]
    sweeper.sweep()
    assert told == [("sweep.behind", ["a"], 1), ("sweep.behind", ["a"], 2)]
    assert behind == [{"a": 60}, {"a": 120}]
    assert sweeper.behind_s == {}
    assert len(looks) == 2


def test_a_sweep_ends_when_its_time_is_over() -> None:
    clock = VirtualClock()
    store = Busy(clock, {"a": 10**9})
    removed = sweeper_of(store, clock, Topic("a", slots=1)).sweep(1.0)
    assert 0 < removed <= 500 * 12


def test_a_run_that_ends_when_nothing_is_left_sweeps_first() -> None:
    """Topics that are consumed by such runs alone were never swept."""
    topic = Topic("orders", slots=2, dedupe_window="1ms")
    with QFrame("model://") as app:
        seen: list[int] = []

        @app.consumer(topic, group="g")
        def handle(message: Message) -> None:
            seen.append(message.body)

        app.publish_many(topic, range(600))
        published_ms = app.store.now_ms(topic)
        eventually(lambda: app.store.now_ms(topic) > published_ms + 1)
        app.run(burst=True)
        assert len(seen) == 600
        assert app.store.sweep(topic) == 0


def test_effects_are_swept_as_soon_as_a_worker_begins() -> None:
    clock = VirtualClock()
    at_s: list[float] = []
    start_s = clock.monotonic_s()

    class Effects:
        def sweep(self, _limit: int) -> int:
            at_s.append(clock.monotonic_s() - start_s)
            return 0

    effects: Any = Effects()
    sweeper = EffectSweeper("s", effects, on_trouble=lambda _: None, on_failure=lambda *_: None)
    sweeper._stopping = Stop(clock, 2 * EVERY_S)  # type: ignore[assignment]
    sweeper.run()
    assert at_s == [0, EVERY_S, 2 * EVERY_S]


def test_a_growth_whose_process_has_ended_is_finished_by_a_worker() -> None:
    clock = VirtualClock()
    store = ModelStore(clock=clock)
    topic = store.declare(Topic("orders", slots=2))
    begin(store, topic, 8)
    sweeper = sweeper_of(store, clock, topic)
    sweeper.finish_growths()
    assert latest(store, topic) == topic.grown(
        2, Growth(target=8, until_ms=clock.now_ms() + LEASE_MS)
    )
    clock.advance(2 * LEASE_MS)
    sweeper.finish_growths()
    assert latest(store, topic) == topic.grown(8, Growth(first=6))


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_a_growth_is_taken_over_by_the_clock_of_the_store_that_its_topic_is_in(
    ahead_ms: int,
) -> None:
    clock, main_clock = VirtualClock(), VirtualClock()
    main_clock.advance(HOUR_MS)
    clock.advance(HOUR_MS - ahead_ms)

    class Main(ModelStore):
        def point_away(self, topic: Topic, mark: int) -> int:
            """Knows its only user."""
            return mark

        def unpoint(self, topic: Topic) -> None:
            """Knows its only user."""

    timers = ModelStore(namespace="n", clock=clock)
    pair = cast("Store", StorePair(Main(namespace="n", clock=main_clock), timers))
    topic = pair.declare(Topic("timers", kind="delay", slots=1))
    begin(pair, topic, 2)
    sweeper = sweeper_of(pair, clock, topic)
    clock.advance(LEASE_MS - 1)
    sweeper.finish_growths()
    assert latest(pair, topic).slots == 1
    clock.advance(1)
    sweeper.finish_growths()
    assert latest(pair, topic).slots == 2


def test_a_slot_too_deep_to_be_split_keeps_nobody_from_it_and_no_other_topic_from_growing() -> None:
    clock = VirtualClock()

    class Slow(ModelStore):
        """Takes a millisecond to write down each message."""

        def restore(
            self, topic: Topic, section: Any, records: Any, token: str | None = None
        ) -> None:
            clock.advance(len(records))
            super().restore(topic, section, records, token)

    store = Slow(clock=clock)
    deep, other = [
        store.declare(Topic(name, kind="ordered", slots=1)) for name in ("deep", "other")
    ]
    store.subscribe(deep, "g")
    store.publish(deep, [entry(deep, number) for number in range(1400)])
    begin(store, deep, 2)
    begin(store, other, 2)
    clock.advance(LEASE_MS)
    sweeper = sweeper_of(store, clock, deep, other)
    sweeper.finish_growths()
    assert [latest(store, each).slots for each in (deep, other)] == [1, 2]
    patient = Doubling(
        store, "deep", owned=lambda *_: (), pause=lambda _: None, max_pause_s=10 * MAX_PAUSE_S,
        monotonic_s=clock.monotonic_s,
    )  # fmt: skip
    assert patient.finish(patient.begin(2)).slots == 2
