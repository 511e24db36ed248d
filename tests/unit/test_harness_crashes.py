"""The harness: workers that are lost, messages that come twice, and effects that are counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, select
from sqlalchemy.orm import Session

from qframe import (
    DatabaseChecker,
    Message,
    Outbox,
    QFrame,
    Topic,
    TransactionalChecker,
)
from qframe.errors import BadOption
from qframe.testing import End, Harness, Tally

ORDERS = Topic("orders", slots=4)
BILLS = Topic("bills", kind="ordered", slots=4)
POINTS = ("pull", "handler", "commit", "settle")

effects = Table(
    "effects", MetaData(), Column("number", Integer, primary_key=True), Column("body", String(20))
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'business.db'}")
    effects.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def app() -> QFrame:
    return QFrame(store="sqlite:////nowhere/at/all.db", session_timeout=8)


def written(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(effects.c.body).order_by(effects.c.number)))


@pytest.mark.promise(1)
@pytest.mark.parametrize(
    ("point", "calls", "ends"),
    [
        ("pull", 1, [End.LOST, End.ACKED]),
        ("handler", 2, [End.LOST, End.ACKED]),
        ("commit", 2, [End.LOST, End.ACKED]),
        ("settle", 1, [End.ACKED]),
    ],
)
@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority", "merge"])
def test_what_a_lost_worker_had_in_hand_comes_again_when_the_next_takes_over(
    app: QFrame, kind: str, point: str, calls: int, ends: list[End]
) -> None:
    topic = Topic(kind, kind=kind, slots=2)
    called: list[Any] = []

    @app.consumer(topic, group="g")
    def handle(body: str, message: Message) -> None:
        called.append((body, message.attempt))

    with Harness(app) as harness:
        harness.crash_after(point)
        harness.publish(topic, "x", key="k")
        harness.run_until_idle()
        harness.publish(topic, "y", key="other")
        assert harness.advance(seconds=7.9) == Tally()  # nobody is there
        harness.advance(seconds=0.1)
        harness.assert_all_done()
        assert [each.outcome for each in harness.deliveries if each.body == "x"] == ends
        assert [body for body, _ in called].count("x") == calls
        assert max(attempt for body, attempt in called if body == "x") == len(ends)


def test_a_crash_strikes_where_it_was_asked_for_and_so_often(app: QFrame) -> None:
    for group in ("a", "b"):
        app.consumer(ORDERS, group=group)(lambda: None)
    with Harness(app) as harness:
        harness.crash_after("handler", topic=ORDERS, group="b", times=2)
        harness.publish(ORDERS, 1)
        assert harness.drain().lost == 2
        assert [each.outcome for each in harness.deliveries_of(ORDERS, "a")] == ["acked"]
        assert [each.attempt for each in harness.deliveries_of(ORDERS, "b")] == [1, 2, 3]


@pytest.mark.promise(6)
def test_a_message_that_kills_every_worker_ends_as_dead(app: QFrame) -> None:
    app.consumer(ORDERS, group="g", max_attempts=3)(lambda: None)
    with Harness(app) as harness:
        harness.crash_after("handler", times=3)
        harness.publish(ORDERS, "poison")
        assert harness.drain() == Tally(handed_out=3, lost=3, dead=1)
        harness.assert_dead(ORDERS, "g", "poison")


@pytest.mark.promise(2)
def test_without_a_transaction_a_worker_lost_behind_its_handler_shows_the_effect_twice(
    app: QFrame, engine: Engine
) -> None:
    @app.consumer(BILLS, group="g", idempotent_checker=DatabaseChecker(engine))
    def bill(body: str) -> None:
        with engine.begin() as connection:
            connection.execute(effects.insert().values(body=body))

    with Harness(app) as harness:
        harness.publish(BILLS, "a", key="k")
        harness.publish(BILLS, "b", key="k")
        harness.crash_after("handler")
        harness.crash_after("commit")
        harness.drain()
        harness.assert_all_done()
    # Lost before its checker knew, it is done again; after that, it is not.
    assert written(engine) == ["a", "a", "b"]


@pytest.mark.parametrize("make", [DatabaseChecker, TransactionalChecker])
def test_what_a_lost_worker_has_claimed_and_not_done_is_free_for_the_next(
    app: QFrame, engine: Engine, make: Any
) -> None:
    held: list[Message] = []

    def hold(message: Message) -> None:
        held.append(message)

    def hold_with(message: Message, session: Session) -> None:
        held.append(message)

    handler = hold if make is DatabaseChecker else hold_with
    app.consumer(ORDERS, group="g", auto_ack=False, idempotent_checker=make(engine))(handler)
    app.consumer(BILLS, group="killer")(lambda: None)
    with Harness(app) as harness:
        harness.publish(ORDERS, "x")
        harness.run_until_idle()
        harness.crash_after("handler", group="killer")
        harness.publish(BILLS, "bang", key="k")
        assert harness.run_until_idle().lost == 2
        assert held[0].cancelled
        harness.advance("8s")
        assert [message.attempt for message in held] == [1, 2]
        held[1].ack()
        harness.assert_all_done()


@pytest.mark.parametrize("point", ["commit", "settle"])
def test_a_worker_is_lost_at_an_explicit_acknowledgement_too(app: QFrame, point: str) -> None:
    behind: list[int] = []

    @app.consumer(ORDERS, group="g", auto_ack=False)
    def handle(message: Message) -> None:
        message.ack()
        behind.append(message.attempt)

    with Harness(app) as harness:
        harness.crash_after(point)
        harness.publish(ORDERS, "x")
        harness.drain()
        harness.assert_all_done()
    assert behind == ([2] if point == "commit" else [])


def test_a_worker_lost_while_another_thread_acknowledges_is_lost_all_the_same(app: QFrame) -> None:
    held: list[Message] = []

    @app.consumer(ORDERS, group="g", auto_ack=False)
    def hold(message: Message) -> None:
        held.append(message)

    with Harness(app) as harness:
        harness.publish(ORDERS, "x")
        harness.run_until_idle()
        harness.crash_after("commit")
        thread = threading.Thread(target=held[0].ack)
        thread.start()
        thread.join()
        assert harness.run_until_idle(patience="1m").lost == 1
        harness.advance("8s")
        assert [message.attempt for message in held] == [1, 2]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority", "merge"])
def test_everything_is_handed_out_twice_when_that_is_asked_for(app: QFrame, kind: str) -> None:
    topic = Topic(kind, kind=kind, slots=2)
    seen: list[str] = []

    @app.consumer(topic, group="g")
    def handle(body: str) -> None:
        seen.append(body)

    with Harness(app) as harness:
        harness.redeliver_everything()
        for body in "abc":
            harness.publish(topic, body, key=body if kind != "ordered" else "k")
        assert harness.run_until_idle() == Tally(handed_out=6, released=3, acked=3)
        harness.assert_all_done()
    assert sorted(seen) == ["a", "a", "b", "b", "c", "c"]
    if kind == "ordered":
        assert seen == ["a", "a", "b", "b", "c", "c"]


def test_a_handler_with_a_checker_passes_the_test_of_coming_twice(
    app: QFrame, engine: Engine
) -> None:
    @app.consumer(ORDERS, group="g", idempotent_checker=TransactionalChecker(engine))
    def bill(body: str, session: Session) -> None:
        session.execute(effects.insert().values(body=body))

    with Harness(app) as harness:
        harness.redeliver_everything()
        harness.publish(ORDERS, "a")
        assert harness.run_until_idle() == Tally(handed_out=2, released=1, acked=1)
    assert written(engine) == ["a"]


@pytest.mark.parametrize("point", POINTS)
def test_an_outbox_is_relayed_and_its_message_handled_once(
    app: QFrame, engine: Engine, point: str
) -> None:
    outbox = app.relay(Outbox(engine))
    outbox.create()

    @app.consumer(BILLS, group="g", idempotent_checker=TransactionalChecker(engine))
    def bill(body: str, session: Session) -> None:
        session.execute(effects.insert().values(body=body))

    with Harness(app) as harness:
        harness.crash_after(point)
        with Session(engine) as session:
            outbox.publish(session, BILLS, "committed", key="k")
            session.commit()
            outbox.publish(session, BILLS, "rolled back", key="k")
            session.rollback()
        harness.drain()
        harness.assert_published(BILLS, "committed")
        harness.assert_all_done()
    assert written(engine) == ["committed"]


def test_what_stays_in_an_outbox_is_not_done(app: QFrame, engine: Engine) -> None:
    outbox = app.relay(Outbox(engine))
    outbox.create()
    with Harness(app) as harness:
        harness.assert_all_done()
        with Session(engine) as session:
            outbox.publish(session, "undeclared", 1)
            session.commit()
        harness.run_until_idle()
        with pytest.raises(AssertionError, match=r"relay\S+: its outbox is not empty"):
            harness.assert_all_done()


@pytest.mark.parametrize(("point", "times"), [("end", 1), ("pull", 0), ("pull", True)])
def test_a_crash_that_cannot_be_is_refused(app: QFrame, point: str, times: int) -> None:
    with Harness(app) as harness, pytest.raises(BadOption):
        harness.crash_after(point, times=times)


def test_a_crash_that_never_came_is_not_taken_for_one_that_was_borne(app: QFrame) -> None:
    app.consumer(ORDERS, group="g")(lambda: None)
    with Harness(app) as harness:
        harness.crash_after("handler", topic="order")
        harness.publish(ORDERS, "x")
        harness.drain()
        with pytest.raises(AssertionError, match="a crash after handler in order/any group"):
            harness.assert_all_done()
