"""docs/explain.md shows each cause as `explain` tells it, with the facts that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bench import Bench

from qframe.admin.admin import Admin
from qframe.admin.explain.cause import CAUSES, Cause
from qframe.clock import VirtualClock
from qframe.codec import TAGS_HEADER, new_token
from qframe.errors import CoordinatorUnavailable
from qframe.growth import Growth
from qframe.options.report import ConsumerReport
from qframe.roster import Roster
from qframe.stores.model.store import ModelStore
from qframe.stores.records import ScanPage
from qframe.topic import Topic

PAGE = Path(__file__).parent.parent.parent / "docs" / "explain.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
WORKER = "host-1-abc"
TEN = int(datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp() * 1000)


class Stage:
    """A model store at ten o'clock, on which predicaments are staged."""

    def __init__(self) -> None:
        self.clock = VirtualClock(TEN)
        self.bench = Bench(
            lambda namespace: ModelStore(namespace=namespace, clock=self.clock),
            self.clock.advance, "topic",
        )  # fmt: skip
        self.store = self.bench.store
        self.is_away = False
        self.admin = Admin(self.store, roster=self._roster, by="ann")

    def _roster(self, topic: Topic, group: str) -> Roster:
        if self.is_away:
            raise CoordinatorUnavailable("zookeeper://z", "it is away")
        found = self.store.roster(topic, group)
        assert found is not None
        return found

    def topic(self, kind: str = "stream", slots: int = 1, **options: Any) -> Topic:
        return self.bench.topic(kind, "g", slots=slots, **options)

    def serve(self, topic: Topic, slots: tuple[int, ...] = (0,), **report: Any) -> None:
        self.store.heartbeat(topic, "g", WORKER, 3_600_000)
        epochs = self.store.epochs(topic, "g")
        self.store.claim(topic, "g", WORKER, {slot: epochs[slot] for slot in slots})
        said = ConsumerReport(max_attempts=5, **report)
        self.store.report(topic, "g", WORKER, said.to_json())

    def take(self, topic: Topic, **options: Any) -> list[Any]:
        return self.bench.got(topic, receipt=new_token(self.clock), **options)

    def causes(self, topic: Topic, *words: str, **options: Any) -> tuple[Cause, ...]:
        [one] = self.admin.explain(topic, *words, **options)
        return one.causes


def of_time(stage: Stage) -> Iterator[Cause]:
    topic = stage.topic()
    stage.serve(topic)
    stage.bench.publish(topic, 1, "k", id="m", delay_ms=3_600_000)
    yield stage.causes(topic, "m")[0]
    topic = stage.topic("ordered")
    stage.serve(topic)
    stage.bench.publish(topic, 1, "k", id="m")
    stage.bench.retry(topic, *stage.take(topic), error="KeyError: 'price'", delay_ms=5000)
    yield stage.causes(topic, "m")[0]
    topic = stage.topic("ordered", gap_timeout="30s")
    stage.bench.publish(topic, 2, "k", id="m", sequence=2)
    yield stage.causes(topic, "m")[0]


def of_workers(stage: Stage) -> Iterator[Cause]:
    topic = stage.topic("ordered", slots=2)
    stage.bench.publish(topic, 1, "k", id="first")
    yield stage.causes(topic, "first")[0]
    at = topic.slot_of(b"k")
    stage.serve(topic, (1 - at,))
    yield stage.causes(topic, "first")[0]
    stage.serve(topic, (at,))
    yield stage.causes(topic, "first")[0]
    stage.admin.pause(topic, "g", key="k", why="bad data")
    yield stage.causes(topic, "first")[0]
    stage.admin.resume(topic, "g", key="k")
    stage.bench.retry(topic, *stage.take(topic))
    stage.take(topic, lease_ms=1000)
    stage.bench.publish(topic, 1, "k", id="second")
    yield stage.causes(topic, "second")[0]
    yield stage.causes(topic, "first")[0]
    stage.is_away = True
    stage.bench.publish(topic, 1, "other", id="other")
    yield stage.causes(topic, "other")[0]
    stage.is_away = False
    stage.clock.advance(4000)
    yield stage.causes(topic, "first")[0]


def of_growth(stage: Stage) -> Iterator[Cause]:
    topic = Topic("orders", kind="ordered", slots=2)
    stage.store.declare(topic)
    stage.store.subscribe(topic, "g")
    stage.bench.take(topic)
    key = next(key for key in "abcdef" if topic.slot_of(key.encode()) == 0)
    stage.bench.publish(topic, 1, key, id="m")
    stage.serve(topic, (0, 1))
    assert stage.store.grow(topic, topic.grown(2, Growth(closing=True, target=4)))
    yield stage.causes(topic, "m")[0]


def of_reports(stage: Stage) -> Iterator[Cause]:
    topic = stage.topic()
    stage.serve(topic, failures=4, pause_ms=30_000, rate="10/s", limited=True)
    stage.bench.publish(topic, 1, "k", id="m")
    stage.clock.advance(2000)
    yield from stage.causes(topic, "m")
    topic = stage.topic()
    stage.serve(topic, full=(0,))
    stage.bench.publish(topic, 1, "k", id="m")
    yield from stage.causes(topic, "m")
    topic = stage.topic()
    stage.serve(topic, tags=("gold", "silver"))
    stage.bench.publish(topic, 1, "k", id="m", headers={TAGS_HEADER: "tin"})
    stage.bench.ack(topic, *stage.take(topic))
    stage.clock.advance(3000)
    yield stage.causes(topic, "m")[0]


def of_ends(stage: Stage) -> Iterator[Cause]:
    topic = stage.topic("stream", retain="1s")
    for number in range(2):
        stage.bench.publish(topic, number, "k", id=f"m{number}")
        stage.bench.ack(topic, *stage.take(topic))
        if not number:
            stage.clock.advance(1000)
    stage.store.sweep(topic)
    yield stage.causes(topic, offset=0)[0]
    yield stage.causes(topic, "m1")[0]
    topic = stage.bench.topic("ordered")
    stage.bench.publish(topic, 1, "k", id="m")
    yield stage.causes(topic, "m")[0]
    orders = Topic("orders", kind="ordered", slots=1)
    stage.store.declare(orders)
    yield stage.causes(orders, "m")[0]


def of_deaths(stage: Stage) -> Iterator[Cause]:
    topic = stage.topic()
    stage.bench.publish(topic, 1, "k", id="m")
    stage.bench.kill(topic, *stage.take(topic), error="ValueError: no")
    yield stage.causes(topic, "m")[0]
    for kind in ("merge", "delay"):
        topic = stage.topic(kind)
        for name in ("first", "second"):
            stage.bench.publish(topic, name, "k", id=name, delay_ms=1000)
        yield stage.causes(topic, "first", key="k")[0]
    yield stage.causes(topic, "first")[0]


@pytest.fixture(scope="module")
def told() -> dict[str, Cause]:
    """Each cause as it is told of a message that was staged for it."""
    stages = (of_time, of_workers, of_growth, of_reports, of_ends, of_deaths)
    return {cause.name: cause for each in stages for cause in each(Stage())}


def test_every_cause_is_in_the_table(told: dict[str, Cause]) -> None:
    shown = [name for name, _, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(CAUSES)
    assert sorted(told) == sorted(CAUSES)


@pytest.mark.parametrize(
    "row", ROW.findall(PAGE.read_text(encoding="utf-8")), ids=lambda row: row[0]
)
def test_a_cause_is_told_as_the_table_shows(
    told: dict[str, Cause], row: tuple[str, str, str]
) -> None:
    name, example, facts = row
    assert told[name].text == example
    if not facts.startswith(("as ", "`first`, or")):
        named = set(re.findall(r"`([a-z_]+)`", facts))
        assert {each.removesuffix("_ms") for each in told[name].facts} == named


@pytest.mark.parametrize(("progress", "limits"), [(True, [2, 2, 1]), (False, [2, 2, 2, 2, 1])])
def test_a_scan_ends_when_it_has_looked_at_as_much_as_it_may_also_where_it_comes_upon_nothing(
    monkeypatch: pytest.MonkeyPatch, *, progress: bool, limits: list[int]
) -> None:
    monkeypatch.setattr("qframe.admin.explain.explainer._PAGE", 2)
    stage, asked = Stage(), list[int]()

    def scan(_topic: Topic, _place: str | None, limit: int, _sought: object) -> ScanPage:
        asked.append(limit)
        return ScanPage([], limit if progress else 0, "on")

    stage.store.scan = scan  # type: ignore[method-assign, assignment]
    [cause] = stage.causes(stage.topic(), "m", look=5)
    assert (cause.name, asked) == ("unknown", limits)
