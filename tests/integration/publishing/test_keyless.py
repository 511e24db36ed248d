"""An ordered topic takes no message without a key, whichever way it is published.

On delay and priority a message without a key is queued for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from qframe import BadInput, BadKey, Outbox, Outgoing, QFrame, Topic
from qframe.testing import Harness

ORDERS = Topic("orders", kind="ordered", slots=2)
REMEDY = r"topic 'orders' is ordered by key; give key=, such as an order id, or publish to a stream"


def by_outbox(app: QFrame) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        with Session(engine) as session, session.begin():
            Outbox(engine).publish(session, ORDERS, 1)
    finally:
        engine.dispose()


def by_buffer(app: QFrame) -> None:
    with app.buffered() as buffered:
        buffered.publish(ORDERS, 1)


@pytest.mark.gate
@pytest.mark.promise(3, 8)
@pytest.mark.parametrize(
    "publish",
    [
        lambda app: app.publish(ORDERS, 1),
        lambda app: app.publish_many(ORDERS, [Outgoing(1, key="a"), Outgoing(2)]),
        lambda app: app.publish_many(ORDERS, list(range(100))),
        lambda app: app.timers.schedule(ORDERS, 1, delay=5),
        by_buffer,
        by_outbox,
    ],
)
def test_an_ordered_topic_refuses_a_message_without_a_key_and_stores_nothing(
    publish: Callable[[QFrame], Any],
) -> None:
    with QFrame("model://") as app:
        app.declare(ORDERS)
        with pytest.raises(BadKey, match=REMEDY):
            publish(app)
        assert sum(each.todo + each.waiting for each in app.store.stats(ORDERS)) == 0


@pytest.mark.promise(8)
def test_a_harness_refuses_it_too() -> None:
    app = QFrame("model://")

    @app.consumer(ORDERS, group="g")
    def handle(body: int) -> None: ...

    with Harness(app) as harness, pytest.raises(BadKey, match=REMEDY):
        harness.publish(ORDERS, 1)


def test_an_outbox_that_knows_only_the_name_has_its_relay_refuse_it_and_say_why() -> None:
    app = QFrame("model://")

    @app.consumer(ORDERS, group="g")
    def handle(body: int) -> None: ...

    engine = create_engine("sqlite://", poolclass=StaticPool)
    outbox = app.relay(Outbox(engine))
    with Harness(app) as harness:
        app.declare(ORDERS)
        with Session(engine) as session, session.begin():
            outbox.publish(session, "orders", 1)
        harness.drain()
        with pytest.raises(AssertionError, match="its outbox is not empty"):
            harness.assert_all_done()
    engine.dispose()


@pytest.mark.gate
@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", ["delay", "priority"])
def test_equal_jobs_without_a_key_are_all_run_however_they_are_published(kind: str) -> None:
    jobs = Topic("jobs", kind=kind, slots=2)
    app = QFrame("model://")
    seen: list[str] = []

    @app.consumer(jobs, group="g")
    def handle(body: str) -> None:
        seen.append(body)

    engine = create_engine("sqlite://", poolclass=StaticPool)
    outbox = app.relay(Outbox(engine))
    with Harness(app) as harness, app.buffered() as buffered:
        for _ in range(2):
            app.publish(jobs, "job")
            buffered.publish(jobs, "job").result()
            app.timers.schedule(jobs, "job", delay=1)
        app.publish_many(jobs, ["job"] * 20)
        with Session(engine) as session, session.begin():
            outbox.publish_many(session, jobs, ["job"] * 3)
        harness.advance(seconds=2)
    assert seen == ["job"] * 29
    engine.dispose()


@pytest.mark.parametrize("kind", ["delay", "priority"])
def test_by_their_bodies_a_job_replaces_an_equal_one_wherever_the_topic_is_known_by_name(
    kind: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with QFrame(url) as app:
        app.declare(Topic("jobs", kind=kind, slots=16, subject="body"))
    with QFrame(url) as other:
        outcomes = [other.publish("jobs", "job", id=name).outcome for name in ("a", "b", "a")]
        assert outcomes == ["stored", "replaced", "duplicate"]


@pytest.mark.parametrize(
    ("kind", "subject"), [("stream", "id"), ("ordered", "body"), ("merge", "id"), ("delay", "key")]
)
def test_a_rule_that_a_kind_has_no_use_for_is_refused(kind: str, subject: str) -> None:
    with pytest.raises(BadInput, match=f"kind {kind} has a fixed subject for keyless messages"):
        Topic("t", kind=kind, subject=subject)


def test_the_console_refuses_it_and_names_the_line_of_a_file(tmp_path: Path) -> None:
    program, lines = Program(tmp_path), tmp_path / "lines.jsonl"
    program.run("topics", "declare", "orders", "--kind", "ordered")
    lines.write_text('{"key": "a", "body": 1}\n{"body": 2}\n', encoding="utf-8")
    for words in (["1"], ["--file", str(lines), "--envelopes"]):
        refused = program.run("publish", "orders", *words)
        assert refused.code == 1
        assert "topic 'orders' is ordered by key" in refused.err
    assert "lines.jsonl line 2" in refused.err


@pytest.mark.parametrize("kind", ["stream", "delay", "priority"])
def test_an_id_is_recognised_whatever_its_body_is_and_in_an_outbox_too(kind: str) -> None:
    topic = Topic("orders", kind, slots=16)
    engine = create_engine("sqlite://", poolclass=StaticPool)
    app = QFrame("model://")
    outbox = app.relay(Outbox(engine))
    with Harness(app) as harness:
        app.store.subscribe(app.declare(topic), "g")
        for body in range(8):
            app.publish(topic, {"order": 7, "at": body}, id="order-7")
        app.publish_many(topic, [Outgoing(n, id=f"order-{n % 3}") for n in range(20, 32)])
        with Session(engine) as session, session.begin():
            outbox.publish(session, topic, {"at": 1}, id="order-7")
        harness.drain()
        assert sum(each.published for each in app.store.stats(topic)) == 4
        # As after `PublishUnknown`: it lies where the body has led it.
        for number in range(10):
            made_up = app.publish(topic, number).id
            assert app.publish(topic, number, id=made_up).outcome == "duplicate"
    engine.dispose()
