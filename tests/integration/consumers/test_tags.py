"""`tags=`: a worker handles what bears them, and acknowledges the rest unhandled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from apps import running, told
from eventually import eventually
from sqlalchemy import create_engine

from qframe import AllOf, Backoff, DatabaseChecker, Message, Outgoing, QFrame, Topic

KINDS = ("stream", "ordered", "delay", "priority", "merge")
SOON = Backoff(first=0.02, cap=0.02)


def tagged(count: int, keys: int | None = None) -> list[Outgoing]:
    """Messages of which each third is `red`, each fifth `big`."""
    return [
        Outgoing(
            number, key=f"k{number % (keys or count)}",
            tags=[tag for tag, each in (("red", 3), ("big", 5)) if number % each == 0],
        )
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tags", "fits"),
    [
        ("red", lambda number: number % 3 == 0),
        (["red", "big"], lambda number: number % 3 == 0 or number % 5 == 0),
        (AllOf("red", "big"), lambda number: number % 15 == 0),
    ],
)
def test_what_bears_the_tags_is_handled_and_everything_is_settled(
    each_app: QFrame, kind: str, tags: Any, fits: Any
) -> None:
    topic = Topic("t", kind=kind, slots=4)
    seen: list[int] = []
    events = told(each_app)

    @each_app.consumer(topic, "g", tags=tags)
    def handle(message: Message) -> None:
        seen.append(message.body)

    each_app.publish_many(topic, tagged(300))
    each_app.run(burst=True)
    assert sorted(seen) == [number for number in range(300) if fits(number)]
    [totals] = each_app.admin.topic(topic).groups
    assert (totals.settled, totals.lag) == (300, 0)
    assert events["delivery.skipped"] == 300 - len(seen)
    assert events["delivery.settled"] == 300
    assert events["delivery.stale"] == 0


@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("serial", [False, True])
def test_a_key_keeps_its_order_among_what_is_handled_also_when_handlers_fail(
    each_app: QFrame, kind: str, serial: bool
) -> None:
    topic = Topic("t", kind=kind, slots=4)
    seen: dict[str, list[int]] = {}
    failed: set[int] = set()
    events = told(each_app)

    @each_app.consumer(topic, "g", tags="red", serial=serial, backoff=SOON)
    def handle(message: Message) -> None:
        if kind == "ordered" and message.body % 7 == 0 and message.body not in failed:
            failed.add(message.body)
            raise ValueError(message.body)
        seen.setdefault(message.key or "", []).append(message.body)

    each_app.publish_many(topic, tagged(400, keys=7))
    each_app.run(burst=True)
    assert sorted(number for each in seen.values() for number in each) == list(range(0, 400, 3))
    assert all(each == sorted(each) for each in seen.values())
    assert events["delivery.stale"] == 0


def test_two_groups_of_other_tags_share_a_topic(each_app: QFrame) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    seen: dict[str, list[int]] = {"red": [], "big": [], "all": []}
    for group in seen:
        tags = None if group == "all" else group
        each_app.consumer(topic, group, tags=tags)(_keeper(seen[group]))
    each_app.publish_many(topic, tagged(60, keys=5))
    each_app.run(burst=True)
    assert sorted(seen["red"]) == list(range(0, 60, 3))
    assert sorted(seen["big"]) == list(range(0, 60, 5))
    assert sorted(seen["all"]) == list(range(60))


def _keeper(seen: list[int]) -> Any:
    def keep(message: Message) -> None:
        seen.append(message.body)

    return keep


def test_on_a_stream_a_slow_key_does_not_hold_up_what_is_skipped(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    entered, go_on = threading.Event(), threading.Event()
    events = told(each_app)

    @each_app.consumer(topic, "g", tags="red")
    def handle(message: Message) -> None:
        entered.set()
        go_on.wait(60)

    each_app.publish(topic, "slow", key="k", tags=["red"])
    each_app.publish_many(topic, [Outgoing(number, key="k") for number in range(20)])
    with running(each_app, go_on):
        assert entered.wait(60)
        eventually(lambda: events["delivery.skipped"] == 20)
        eventually(lambda: each_app.store.stats(topic, "g")[0].settled == 20)


def test_a_checker_is_not_asked_about_what_is_skipped(each_app: QFrame, tmp_path: Any) -> None:
    checker = DatabaseChecker(create_engine(f"sqlite:///{tmp_path / 'marks.db'}"))
    events = told(each_app)
    seen: list[int] = []
    each_app.consumer(Topic("t", slots=2), "g", tags="red", idempotent_checker=checker)(
        _keeper(seen)
    )
    each_app.publish_many(Topic("t", slots=2), tagged(30))
    each_app.run(burst=True)
    assert sorted(seen) == list(range(0, 30, 3))
    assert (events["delivery.claimed"], events["delivery.skipped"]) == (10, 20)
