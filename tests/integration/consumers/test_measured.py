"""`each_app.measure()`: what the workers of an app count, whatever executor calls the handler."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from apps import batched, handler, running
from eventually import eventually
from sqlalchemy import create_engine

from qframe import (
    Backoff,
    Batch,
    Breaker,
    DatabaseChecker,
    Message,
    Outgoing,
    QFrame,
    RateLimit,
    Reject,
    Topic,
)
from qframe.telemetry.families import Family
from qframe.telemetry.histogram import Distribution

SOON = Backoff(first=0.01, cap=0.01)
WHERE = ("t", "g")


def numbers(app: QFrame) -> dict[str, Family]:
    return {family.name: family for family in app.measure().families()}


def number(app: QFrame, name: str, *labels: str) -> Any:
    return dict(numbers(app)[name].values).get(labels)


def outcomes(app: QFrame) -> dict[str, float]:
    """How many messages of the group have ended in each way, where there are any."""
    found = numbers(app)["qframe_handled"].values
    return {labels[2]: n for labels, n in found if labels[:2] == WHERE and n}  # type: ignore[misc]


def seen(app: QFrame, name: str) -> Distribution:
    found = number(app, name, *WHERE)
    assert isinstance(found, Distribution)
    return found


@pytest.mark.parametrize("way", ["threads", "loop", "batch"])
def test_every_message_is_counted_once_and_measured(each_app: QFrame, way: str) -> None:
    topic = Topic("t", slots=2)
    options: dict[str, Any] = {"batch": Batch(10, within=0.01)} if way == "batch" else {}
    each_app.measure()
    make = batched if way == "batch" else handler
    each_app.consumer(topic, "g", **options)(make(way == "loop", lambda _: None))
    each_app.publish_many(topic, range(200))
    each_app.run(burst=True)
    assert outcomes(each_app) == {"ack": 200}
    for name in ("qframe_handle_seconds", "qframe_wait_seconds", "qframe_end_to_end_seconds"):
        assert seen(each_app, name).counts[-1] == 200
    assert number(each_app, "qframe_in_flight", *WHERE) == 0
    assert number(each_app, "qframe_longest_running_seconds", *WHERE) == 0
    assert number(each_app, "qframe_slot_changes", *WHERE, "taken") == 2
    assert number(each_app, "qframe_store_errors", "pull") == 0
    assert number(each_app, "qframe_store_seconds", "pull").counts[-1] > 0


@pytest.mark.gate
@pytest.mark.parametrize("way", ["direct", "gate", "checker"])
def test_slow_calls_among_quick_ones_are_measured_by_themselves(
    each_app: QFrame, way: str, tmp_path: Path
) -> None:
    topic = Topic("t", slots=1)
    options: dict[str, Any] = {}
    if way == "gate":
        options = {"rate_limit": RateLimit("100000/s")}
    elif way == "checker":
        engine = create_engine(f"sqlite:///{tmp_path / 'effects.db'}")
        options = {"idempotent_checker": DatabaseChecker(engine)}
    each_app.measure()

    @each_app.consumer(topic, "g", threads=1, **options)
    def handle(message: Message) -> None:
        if message.body % 50 == 0:
            time.sleep(0.11)

    each_app.publish_many(topic, range(200))
    each_app.run(burst=True)
    took = seen(each_app, "qframe_handle_seconds")
    longest = took.counts[-1] - took.counts[took.bounds.index(0.1)]
    assert took.counts[-1] == 200
    assert 4 <= longest < 20  # the average of a run would be none or fifty
    assert took.total >= 4 * 0.11


def test_each_end_has_an_outcome_of_its_own(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    each_app.measure()

    @each_app.consumer(topic, "g", max_attempts=2, backoff=SOON, tags="wanted")
    def handle(message: Message) -> None:
        if message.body == "bad":
            raise Reject("never")
        if message.body == "worse":
            raise ValueError(message.body)

    each_app.publish_many(
        topic, [*(Outgoing(body, tags=["wanted"]) for body in ("good", "bad", "worse")), "other"]
    )
    each_app.run(burst=True)
    assert outcomes(each_app) == {"ack": 1, "reject": 1, "retry": 1, "dead": 1, "skipped": 1}


def test_a_delayed_message_has_waited_since_it_was_due_and_not_before(each_app: QFrame) -> None:
    each_app.measure()
    for kind in ("stream", "delay"):
        topic = Topic(f"t-{kind}", kind=kind, slots=1)
        each_app.consumer(topic, "g")(lambda: None)
        each_app.publish(topic, 1, key="k", delay=1.2)
    each_app.run(drain=True)
    for kind in ("stream", "delay"):
        waited = number(each_app, "qframe_wait_seconds", f"t-{kind}", "g")
        whole = number(each_app, "qframe_end_to_end_seconds", f"t-{kind}", "g")
        late = number(each_app, "qframe_lateness_seconds", f"t-{kind}", "g")
        assert waited.total <= late.total < 1.2 <= whole.total
        assert late.counts[-1] == 1


def test_what_was_due_at_once_is_no_timer_that_could_be_late(each_app: QFrame) -> None:
    topic = Topic("t", kind="delay", slots=1)
    each_app.measure()
    each_app.consumer(topic, "g")(lambda: None)
    each_app.publish_many(topic, range(10))
    each_app.publish(topic, 1, at=1.0)
    each_app.run(burst=True)
    assert outcomes(each_app) == {"ack": 11}
    assert number(each_app, "qframe_lateness_seconds", *WHERE).counts[-1] == 0


def test_what_runs_is_in_flight_and_its_time_grows(each_app: QFrame) -> None:
    topic, go = Topic("t", slots=1), threading.Event()
    each_app.measure()

    @each_app.consumer(topic, "g", threads=1)
    def handle(message: Message) -> None:
        go.wait(60)

    each_app.publish_many(topic, range(3))
    with running(each_app):
        eventually(lambda: number(each_app, "qframe_longest_running_seconds", *WHERE) > 0.05)
        assert number(each_app, "qframe_in_flight", *WHERE) >= 1
        go.set()
        eventually(lambda: outcomes(each_app) == {"ack": 3})


def test_no_time_without_a_token_is_counted_once_the_worker_has_stopped(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    each_app.measure()
    each_app.consumer(topic, "g", rate_limit=RateLimit("1/h", burst=1))(lambda: None)
    each_app.publish_many(topic, range(5))

    def limited_s() -> float:
        return float(number(each_app, "qframe_limited_seconds", *WHERE))

    with running(each_app):
        eventually(lambda: limited_s() > 0)
    first = limited_s()
    assert limited_s() == first
    with running(each_app):
        assert limited_s() >= first
        eventually(lambda: limited_s() > first)


def test_the_breaker_of_a_worker_that_has_stopped_is_not_open(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    each_app.measure()

    @each_app.consumer(topic, "g", breaker=Breaker(1, pause="1h"), backoff=SOON)
    def handle() -> None:
        raise ConnectionError("away")

    each_app.publish(topic, 1)
    with running(each_app):
        eventually(lambda: number(each_app, "qframe_breaker_open", *WHERE) == 1)
    assert number(each_app, "qframe_breaker_open", *WHERE) == 0


def test_an_app_that_only_counts_still_writes_its_log(
    each_app: QFrame, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = Topic("t", slots=1)
    each_app.measure()

    @each_app.consumer(topic, "g", max_attempts=1)
    def handle(message: Message) -> None:
        raise ValueError("no")

    each_app.publish(topic, 1)
    each_app.run(burst=True)
    assert "delivery.dead" in capfd.readouterr().err


def test_what_another_thread_takes_from_behind_a_slow_call_has_waited_once(
    each_app: QFrame,
) -> None:
    topic = Topic("t", slots=1)
    last = threading.Event()
    each_app.measure()

    @each_app.consumer(topic, "g", threads=2)
    def handle(message: Message) -> None:
        if message.body == 300:  # by now runs are long: this one's rest goes to the other thread
            last.wait(30)
        elif message.body == 599:
            last.set()

    each_app.publish_many(topic, range(600))
    each_app.run(burst=True)
    assert last.is_set()
    assert seen(each_app, "qframe_wait_seconds").counts[-1] == 600
    assert seen(each_app, "qframe_handle_seconds").counts[-1] == 600


def test_what_waits_for_the_rate_of_its_group_is_counted_when_its_handler_is_called(
    each_app: QFrame,
) -> None:
    topic = Topic("t", slots=1)
    each_app.measure()
    limit = RateLimit("100/s", burst=20, over="group")
    each_app.consumer(topic, "g", threads=4, rate_limit=limit)(lambda: None)
    each_app.publish_many(topic, range(150))
    each_app.run(burst=True)
    assert seen(each_app, "qframe_wait_seconds").counts[-1] == 150
    assert seen(each_app, "qframe_handle_seconds").counts[-1] == 150
