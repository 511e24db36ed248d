"""Settings, and how far topics have grown, are asked for again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from contexts import context_of
from growth import closes, splits

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.growth import Growth
from qframe.runtime.process.live_settings import EVERY_S, OFTEN, OFTEN_S, SettingsPoller
from qframe.runtime.process.outage import QUIET_S
from qframe.topic import Topic

TOPIC = Topic("t")


class Controls:
    """A store's settings and topics; calls that are to be lost are named."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.lost: list[str] = []
        self.stored: dict[str, Topic] = {TOPIC.name: TOPIC}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.lost:
            self.lost.remove(name)
            raise StoreUnavailable("store", "away")

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str]]:
        self._called("tunings")
        return [{} for _ in asked]

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        self._called("latest")
        return [self.stored.get(topic.name) for topic in topics]


class Bench:
    """A poller of a worker with two consumers of one topic, whose waits are a test's."""

    def __init__(self) -> None:
        self.clock, self.events = VirtualClock(), Events()
        self.store = Controls()
        self.heard: list[Topic] = []
        self.waits: list[float] = []
        self.on_wait: Callable[[int], None] = lambda _turn: None
        consumers: list[Any] = [
            SimpleNamespace(
                context=context_of(TOPIC), topic=TOPIC.name, group=group,
                slots=SimpleNamespace(topic=TOPIC), share=self.share,
            )
            for group in ("g", "h")
        ]  # fmt: skip
        store: Any = self.store
        reporter: Any = SimpleNamespace(report=lambda tunings: None)
        self.poller = SettingsPoller(
            consumers=consumers, store=store, reporter=reporter, clock=self.clock,
            events=self.events, on_failure=lambda *_: None,
        )  # fmt: skip

    def share(self, topic: Topic, asked: Topic) -> None:
        """What a consumer is told."""
        assert asked is TOPIC
        self.heard.append(topic)

    def run(self, turns: int) -> None:
        """So many turns, after as many waits."""

        def wait(timeout_s: float) -> bool:
            if turns == len(self.waits):
                return True
            self.waits.append(timeout_s)
            self.clock.advance(int(timeout_s * 1000))
            self.on_wait(len(self.waits))
            return False

        self.waits.clear()
        self.store.calls.clear()
        self.poller._stopping.wait = wait  # type: ignore[method-assign,assignment]
        self.poller.run()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("lost", ["tunings", "latest"])
def test_settings_are_asked_for_again_when_the_store_was_away(bench: Bench, lost: str) -> None:
    bench.store.lost = [lost]
    assert bench.poller.unheard_s == float("inf")
    bench.run(2)
    assert bench.store.calls.count(lost) == 2
    assert bench.poller.unheard_s == 0.0


def test_a_worker_costs_the_store_three_calls_in_two_seconds(bench: Bench) -> None:
    bench.run(20)
    assert bench.waits == [EVERY_S] * 20
    assert bench.store.calls.count("tunings") == 20
    assert bench.store.calls.count("latest") == 10


def test_all_consumers_of_a_topic_hear_how_far_it_has_grown(bench: Bench) -> None:
    bench.store.stored[TOPIC.name] = grown = splits(closes(TOPIC))
    bench.run(1)
    assert bench.heard == [grown, grown]


def test_a_topic_that_is_gone_is_told_to_nobody(bench: Bench) -> None:
    bench.store.stored.clear()
    bench.run(2)
    assert bench.heard == []


def test_while_a_topic_grows_that_is_read_often_and_settings_are_read_as_ever(
    bench: Bench,
) -> None:
    announced = TOPIC.grown(TOPIC.slots, TOPIC.growth._replace(target=2 * TOPIC.slots))
    bench.store.stored[TOPIC.name] = announced
    bench.run(2)
    bench.run(3 * OFTEN)
    assert bench.waits == [OFTEN_S] * 3 * OFTEN
    assert bench.store.calls.count("tunings") == 3
    assert bench.store.calls.count("latest") >= 3 * (OFTEN - 1)
    bench.store.stored[TOPIC.name] = closing = closes(announced)
    bench.run(1)
    assert bench.heard[-1] is closing
    grown = TOPIC.grown(2 * TOPIC.slots, Growth(first=TOPIC.slots))
    bench.store.stored[TOPIC.name] = grown
    bench.run(3)
    assert bench.waits == [OFTEN_S, EVERY_S, EVERY_S]
    assert bench.heard[-1] is grown


def test_a_topic_that_grows_is_watched_on_when_the_store_was_away(bench: Bench) -> None:
    bench.store.stored[TOPIC.name] = closes(TOPIC)
    bench.run(2)
    bench.store.lost = ["latest"]
    bench.run(3)
    assert bench.waits == [OFTEN_S] * 3


def test_the_end_of_an_outage_is_told_once_with_how_long_it_was(bench: Bench) -> None:
    told: list[Any] = []
    bench.events.listen(lambda name, facts: told.append((len(bench.waits), name, facts)))

    def miss(turn: int) -> None:
        if 10 <= turn <= 30:
            bench.events.emit("store.unavailable", part="pull", error="away")
            bench.store.lost = ["tunings"]

    bench.on_wait = miss
    bench.run(100)
    (back,) = [each for each in told if each[1] == "store.back"]
    assert back == (30 + QUIET_S, "store.back", {"away_s": 21.0})


def test_a_store_that_replies_and_takes_no_writes_is_not_back(bench: Bench) -> None:
    told: list[str] = []
    bench.events.listen(lambda name, _facts: told.append(name))

    def miss(turn: int) -> None:
        if turn % 12 == 1:
            bench.events.emit("store.unavailable", part="settler", error="no room")

    bench.on_wait = miss
    bench.run(100)
    assert set(told) == {"store.unavailable"}
    bench.on_wait = lambda _turn: None
    bench.run(20)
    assert told[-1] == "store.back"
    assert told.count("store.back") == 1
