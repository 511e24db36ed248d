"""The harness: what a test of handlers sees of retries, time, dead letters and publications."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import pytest

from qframe import (
    Flusher,
    Message,
    QFrame,
    Reject,
    Topic,
    UnknownTopic,
    consumer,
    default_app,
    publish,
)
from qframe.app.registry import REGISTRY
from qframe.errors import BadOption, NeverIdle
from qframe.testing import End, Harness, Tally

ORDERS = Topic("orders", slots=4)
BILLS = Topic("bills", kind="ordered", slots=4)
REMINDERS = Topic("reminders", kind="delay", slots=2)
KINDS = ("stream", "ordered", "delay", "priority", "merge")


@pytest.fixture
def app() -> Iterator[QFrame]:
    # A store that nobody could open: whoever tries is not in the harness.
    with QFrame(store="sqlite:////nowhere/at/all.db") as app:
        yield app


@pytest.fixture
def harness(app: QFrame) -> Iterator[Harness]:
    with Harness(app) as harness:
        yield harness


def test_a_published_message_is_handled_in_the_thread_of_the_test(
    app: QFrame, harness: Harness
) -> None:
    seen: list[Any] = []

    @app.consumer(ORDERS, group="billing")
    def bill(body: dict[str, int], message: Message) -> None:
        seen.append((body, message.key, message.attempt, threading.current_thread()))

    published = harness.publish(ORDERS, {"order": 1}, key="a")
    assert seen == []
    assert harness.run_until_idle() == Tally(handed_out=1, acked=1)
    assert seen == [({"order": 1}, "a", 1, threading.current_thread())]
    [delivery] = harness.deliveries
    assert (delivery.topic, delivery.group, delivery.id) == ("orders", "billing", published.id)
    assert (delivery.key, delivery.body, delivery.outcome) == ("a", {"order": 1}, End.ACKED)
    assert (delivery.attempt, delivery.calls, delivery.error) == (1, 1, None)
    assert harness.run_until_idle() == Tally()


def test_what_a_handler_publishes_is_handled_too_and_seen(app: QFrame, harness: Harness) -> None:
    @app.consumer(ORDERS, group="billing")
    def bill(body: int) -> None:
        app.publish(BILLS, body * 10, key="k", headers={"from": "billing"}, tags=["new"])

    sent: list[int] = []

    @app.consumer(BILLS, group="mail")
    def mail(body: int, message: Message) -> None:
        sent.append(body)
        assert (message.headers, message.tags) == ({"from": "billing"}, ("new",))
        assert message.published_at == harness.now

    harness.publish(ORDERS, 4)
    harness.publish(ORDERS, 5)
    assert harness.run_until_idle().acked == 4
    assert sorted(sent) == [40, 50]
    harness.assert_published(ORDERS, 4, 5)
    assert sorted(each.body for each in harness.published("bills")) == [40, 50]
    first = harness.published(BILLS)[0]
    assert (first.key, first.headers, first.tags) == ("k", {"from": "billing"}, ("new",))
    assert (first.outcome, first.due_at) == ("stored", None)


def test_a_duplicate_is_seen_as_one_and_not_as_published(harness: Harness) -> None:
    for _ in range(2):
        harness.publish(ORDERS, "x", id="one")
    assert [each.outcome for each in harness.published(ORDERS)] == ["stored", "duplicate"]
    harness.assert_published(ORDERS, "x")


@pytest.mark.promise(5)
def test_a_failed_message_comes_again_after_its_whole_backoff_and_not_before(
    app: QFrame, harness: Harness
) -> None:
    @app.consumer(ORDERS, group="g", max_attempts=3, backoff="10s")
    def fails(body: str) -> None:
        raise ValueError(body)

    harness.publish(ORDERS, "x")
    assert harness.run_until_idle() == Tally(handed_out=1, retried=1)
    [waiting] = harness.waiting(ORDERS, "g")
    assert (waiting.state, waiting.attempts) == ("waiting", 1)
    assert waiting.due_at == harness.now + timedelta(seconds=10)
    assert harness.advance(seconds=9.999) == Tally()
    assert harness.advance(seconds=0.001) == Tally(handed_out=1, retried=1)
    assert harness.advance("20s") == Tally(handed_out=1, dead=1)
    assert [each.outcome for each in harness.deliveries] == ["retried", "retried", "dead"]
    assert [each.attempt for each in harness.deliveries_of(ORDERS, "g")] == [1, 2, 3]
    assert all(isinstance(each.error, ValueError) for each in harness.deliveries)


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_dead_letter_shows_its_error_and_its_traceback(
    app: QFrame, harness: Harness, auto_ack: bool
) -> None:
    mourned: list[str] = []

    @app.consumer(
        ORDERS, "g", auto_ack=auto_ack, on_dead=lambda message, error: mourned.append(str(error))
    )
    def rejects(body: str) -> None:
        raise Reject("never")

    harness.publish(ORDERS, "x", key="k")
    assert harness.run_until_idle() == Tally(handed_out=1, dead=1)
    [dead] = harness.dead(ORDERS, "g")
    assert (dead.body, dead.key, dead.error, dead.state) == ("x", "k", "Reject: never", "dead")
    assert "in rejects" in (dead.traceback or "")
    assert mourned == ["never"]
    harness.assert_dead(ORDERS, "g", "x")
    assert app.admin.dead_retry(ORDERS, "g", "all") == 1
    assert harness.run_until_idle().dead == 1


@pytest.mark.promise(5)
def test_advance_runs_each_thing_at_its_own_time_also_what_is_published_on_the_way(
    app: QFrame, harness: Harness
) -> None:
    start = harness.now
    seen: list[tuple[str, timedelta]] = []

    @app.consumer(REMINDERS, group="g")
    def remind(body: str) -> None:
        seen.append((body, harness.now - start))
        if len(seen) < 4:
            app.publish(REMINDERS, body + "+", key=body + "+", delay="1d")

    harness.publish(REMINDERS, "a", key="a", delay="90m")
    harness.advance(timedelta(minutes=89))
    assert seen == []
    harness.advance(days=2, hours=1)
    assert seen == [
        ("a", timedelta(minutes=90)),
        ("a+", timedelta(minutes=90, days=1)),
        ("a++", timedelta(minutes=90, days=2)),
    ]
    assert harness.now - start == timedelta(minutes=89, days=2, hours=1)


def test_timers_are_set_moved_and_cancelled_by_the_virtual_clock(
    app: QFrame, harness: Harness
) -> None:
    @app.consumer(REMINDERS, group="g")
    def remind(body: str) -> None: ...

    app.timers.schedule(REMINDERS, "one", key="one", at=harness.now + timedelta(hours=1))
    app.timers.schedule(REMINDERS, "two", key="two", delay="2h")
    app.timers.schedule(REMINDERS, "three", key="three", delay="3h")
    app.timers.move(REMINDERS, "one", delay="4h")
    app.timers.cancel(REMINDERS, "three")
    harness.advance(hours=3)
    harness.assert_handled(REMINDERS, "g", "two")
    harness.drain()
    harness.assert_handled(REMINDERS, "g", "two", "one")


def test_every_run_of_a_test_handles_in_the_same_order() -> None:
    orders = []
    for _ in range(3):
        app = QFrame(store="sqlite:////nowhere/at/all.db")
        app.consumer(ORDERS, group="g", max_attempts=2)(lambda: 1 / 0)
        with Harness(app) as harness:
            for number in range(30):
                harness.publish(ORDERS, number, key=f"k{number % 7}")
            harness.drain()
        orders.append([(each.body, each.attempt) for each in harness.deliveries])
    assert orders[0] == orders[1] == orders[2]


def test_a_message_settled_by_another_thread_is_waited_for(app: QFrame, harness: Harness) -> None:
    written: list[Any] = []
    with Flusher("rows", 100, "5ms", 1000, 1, written.extend) as flusher:

        @app.consumer(ORDERS, group="g", auto_ack=False)
        def gather(message: Message) -> None:
            flusher.put(message)

        for number in range(3):
            harness.publish(ORDERS, number, key="k")  # each one waits for the one before
        assert harness.run_until_idle(patience="1m").acked == 3
    assert [message.body for message in written] == [0, 1, 2]
    harness.assert_all_done()


def test_a_message_in_hand_is_kept_by_its_lease_and_its_ack_settles_it(
    app: QFrame, harness: Harness
) -> None:
    held: list[Message] = []

    @app.consumer(ORDERS, group="g", auto_ack=False, lease="30s")
    def hold(message: Message) -> None:
        held.append(message)

    harness.publish(ORDERS, "x")
    assert harness.run_until_idle() == Tally(handed_out=1)
    assert harness.advance(hours=1) == Tally()
    assert harness.deliveries[0].outcome is End.DOING
    assert [each.state for each in harness.waiting(ORDERS)] == ["doing"]
    held[0].ack()
    assert harness.deliveries[0].outcome is End.ACKED
    harness.assert_all_done()


def test_broadcast_and_serial_consumers_are_served(app: QFrame, harness: Harness) -> None:
    seen: list[Any] = []

    @app.consumer(ORDERS, group="caches", broadcast=True)
    def refresh(body: int) -> None:
        seen.append(("broadcast", body))

    @app.consumer(ORDERS, group="line", serial=True)
    def line(body: int) -> None:
        seen.append(("serial", body))

    harness.run_until_idle()  # as with a worker, the broadcast begins when it has joined
    harness.publish(ORDERS, 1)
    harness.run_until_idle()
    assert sorted(seen) == [("broadcast", 1), ("serial", 1)]


def test_what_pytest_raises_in_a_handler_fails_the_test_and_not_the_delivery(
    app: QFrame, harness: Harness
) -> None:
    @app.consumer(ORDERS, group="g")
    def check(body: int) -> None:
        pytest.fail("said the handler")

    harness.publish(ORDERS, 1)
    with pytest.raises(pytest.fail.Exception, match="said the handler"):
        harness.run_until_idle()


def test_a_handler_that_publishes_what_it_handles_is_found_out(
    app: QFrame, harness: Harness
) -> None:
    @app.consumer(ORDERS, group="g")
    def echo(body: int) -> None:
        app.publish(ORDERS, body + 1)

    harness.publish(ORDERS, 0)
    with pytest.raises(NeverIdle, match="at_most: 50"):
        harness.run_until_idle(at_most=50)


def test_drain_tells_what_nobody_settles(app: QFrame, harness: Harness) -> None:
    held: list[Message] = []

    @app.consumer(ORDERS, group="g", auto_ack=False)
    def hold(message: Message) -> None:
        held.append(message)

    harness.publish(ORDERS, "x")
    with pytest.raises(NeverIdle, match=r"orders/g 'x': doing, attempts: 1"):
        harness.drain()


@pytest.mark.parametrize(
    ("by", "named"),
    [
        (-1, {}),
        (None, {"hours": -1}),
        ("soon", {}),
        (timedelta(-1), {}),
        (None, {"days": float("nan")}),
        (None, {"days": 1e12}),
        (float("inf"), {}),
    ],
)
def test_time_that_is_none_or_goes_back_is_refused(
    harness: Harness, by: Any, named: dict[str, float]
) -> None:
    with pytest.raises(BadOption, match="advance"):
        harness.advance(by=by, **named)


def test_the_app_has_its_own_parts_again_afterwards(tmp_path: Any) -> None:
    with QFrame(store=f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.consumer(ORDERS, group="g")(lambda: None)
        app.publish(ORDERS, "real")
        store, producer = app.store, app.producer
        with Harness(app) as harness:
            assert app.store is not store
            harness.publish(ORDERS, "pretended")
            harness.assert_published(ORDERS, "pretended")
            with pytest.raises(BadOption, match="already running"):
                app.run(burst=True)
            app.stop()
        assert (app.store, app.producer) == (store, producer)
        app.publish(ORDERS, "real too")
        assert [record.body for record in app.admin.peek(ORDERS, "g")] == [b'"real"', b'"real too"']
        app.run(burst=True)
    assert [each.body for each in harness.published(ORDERS)] == ["pretended"]
    assert [each.body for each in harness.waiting(ORDERS)] == ["pretended"]
    with pytest.raises(BadOption, match="inside `with"):
        harness.publish(ORDERS, "x")


def test_a_topic_that_consumers_know_by_name_is_declared_for_the_harness(app: QFrame) -> None:
    app.consumer("orders", group="g")(lambda: None)
    with Harness(app) as harness, pytest.raises(UnknownTopic):
        harness.publish("orders", 1)
    with Harness(app, topics=[ORDERS]) as harness:
        harness.publish("orders", 1)
        assert harness.run_until_idle().acked == 1


def test_nothing_was_published_into_a_topic_whose_name_is_misspelt_fails(app: QFrame) -> None:
    with Harness(app, topics=[ORDERS]) as harness:
        harness.assert_published("orders")
        harness.assert_published(Topic("bills"))
        with pytest.raises(UnknownTopic, match="ordres"):
            harness.assert_published("ordres")
    harness.assert_published("orders")
    with pytest.raises(UnknownTopic, match="ordres"):
        harness.assert_published("ordres")


def test_the_default_app_is_the_one_that_is_tested_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QFRAME_STORE", "sqlite:////nowhere/at/all.db")
    REGISTRY.reset()
    try:
        seen: list[Any] = []

        @consumer(ORDERS, group="g")
        def handle(body: int) -> None:
            seen.append(body)

        with Harness() as harness:
            assert harness.app is default_app()
            publish(ORDERS, 1)
            harness.run_until_idle()
        assert seen == [1]
    finally:
        REGISTRY.reset()


def test_a_failed_assertion_shows_what_was_expected_and_what_came(
    app: QFrame, harness: Harness
) -> None:
    @app.consumer(ORDERS, group="g", max_attempts=1)
    def no_twos(body: int) -> None:
        if body == 2:
            raise ValueError("two")

    for number in (1, 2, 3):
        harness.publish(ORDERS, number, key="k")
    harness.run_until_idle()
    with pytest.raises(AssertionError) as failure:
        harness.assert_handled(ORDERS, "g", 1, 2, 3)
    assert str(failure.value) == (
        "orders/g has handled 2 messages where 3 were expected:\n"
        "    1\n  - 2\n  + 3\n  - 3\n"
        "(- expected, + found) where:\n"
        "  orders/g 1 attempt 1: acked\n"
        "  orders/g 2 attempt 1: dead (ValueError: two)\n"
        "  orders/g 3 attempt 1: acked\n"
        "orders/g raised:\n"
        "Traceback (most recent call last):\n"
        f'  File "{__file__}", line {no_twos.__code__.co_firstlineno + 3}, in no_twos\n'
        '    raise ValueError("two")\n'
        "ValueError: two"
    )
    with pytest.raises(AssertionError, match="published into orders other messages than expected"):
        harness.assert_published(ORDERS, 1, 2, 4)
    with pytest.raises(AssertionError, match=r"has given up 1 messages where 0"):
        harness.assert_dead(ORDERS, "g")
    with pytest.raises(AssertionError, match=r"messages are left:\n  orders/g 2: dead"):
        harness.assert_all_done()


def test_the_time_to_begin_with_can_be_given(app: QFrame) -> None:
    leap_day = datetime(2028, 2, 29, 12, tzinfo=UTC)
    at: list[datetime] = []

    @app.consumer(ORDERS, group="g")
    def handle(message: Message) -> None:
        at.append(message.published_at)

    with Harness(app, now=leap_day) as harness:
        harness.publish(ORDERS, "x", at=leap_day + timedelta(days=1))
        harness.advance(days=1)
        assert harness.now == datetime(2028, 3, 1, 12, tzinfo=UTC)
    assert at == [leap_day]
    with pytest.raises(BadOption, match="time zone"):
        Harness(app, now=datetime(2028, 2, 29))  # noqa: DTZ001 - that is the point


def test_an_app_that_is_closed_on_the_way_does_not_open_its_own_store(app: QFrame) -> None:
    with Harness(app):
        app.close()
        app.publish(ORDERS, "x")
    assert app.settings.store == "sqlite:////nowhere/at/all.db"


def test_consumers_that_are_registered_late_are_served(app: QFrame, harness: Harness) -> None:
    app.consumer(ORDERS, group="early")(lambda: None)
    harness.publish(ORDERS, 1)
    assert harness.run_until_idle().acked == 1
    app.consumer(ORDERS, group="late")(lambda: None)
    assert harness.run_until_idle().acked == 1
    harness.assert_handled(ORDERS, "late", 1)


def test_an_app_that_cannot_be_served_is_given_back(app: QFrame) -> None:
    app.consumer(ORDERS, group="g", idempotent_checker="unknown")(lambda: None)
    with pytest.raises(BadOption, match="no checker of this name"), Harness(app):
        pass
    assert app.settings.store == "sqlite:////nowhere/at/all.db"
    with Harness(QFrame()) as one, pytest.raises(BadOption, match="already running"), one:
        pass


def test_a_key_that_another_thread_settles_goes_on_at_once(app: QFrame, harness: Harness) -> None:
    acked: list[int] = []
    work: SimpleQueue[Message | None] = SimpleQueue()

    def settle() -> None:
        while (message := work.get()) is not None:
            acked.append(message.body)
            message.ack()

    @app.consumer(ORDERS, group="g", auto_ack=False)
    def hand_over(message: Message) -> None:
        work.put(message)

    thread = threading.Thread(target=settle)
    thread.start()
    for number in range(200):
        harness.publish(ORDERS, number, key="k")
    tally = harness.run_until_idle(patience="1h")  # an hour, if nobody told of what has come
    work.put(None)
    thread.join()
    assert tally.acked == 200
    assert acked == list(range(200))


def test_a_handler_may_wait_for_what_it_publishes_by_a_buffer(app: QFrame) -> None:
    with Harness(app) as harness, app.buffered(linger="1ms") as buffered:

        @app.consumer(ORDERS, group="g")
        def forward(body: int) -> None:
            assert buffered.publish(BILLS, body, key="k").result().outcome == "stored"

        harness.publish(ORDERS, 1)
        assert harness.run_until_idle().acked == 1
        harness.assert_published(BILLS, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_paused_group_handles_nothing_until_it_is_resumed(kind: str) -> None:
    app = QFrame(store="sqlite:////nowhere/at/all.db")
    topic = Topic(kind, kind=kind, slots=2)
    handled: list[Any] = []

    @app.consumer(topic, group="g")
    def handle(body: int) -> None:
        handled.append(body)
        if body == 1:
            app.admin.pause(topic, "g")

    @app.consumer(topic, group="other")
    def other(body: int) -> None:
        """Is not paused."""

    with Harness(app) as harness:
        harness.publish(topic, 1, key="a")
        harness.run_until_idle()
        harness.publish(topic, 2, key="a")
        harness.publish(topic, 3, key="b", delay="1h")
        assert harness.run_until_idle() == Tally(handed_out=1, acked=1)
        assert harness.advance(hours=2) == Tally(handed_out=1, acked=1)
        assert handled == [1]
        assert [each.state for each in harness.waiting(topic, "g")] != []
        app.admin.resume(topic, "g")
        assert harness.run_until_idle() == Tally(handed_out=2, acked=2)
        assert sorted(handled) == [1, 2, 3]
        assert {each.attempt for each in harness.deliveries_of(topic, "g")} == {1}
        harness.assert_all_done()


def test_what_is_tuned_counts_in_a_harness_as_far_as_it_has_it() -> None:
    app = QFrame(store="sqlite:////nowhere/at/all.db")
    taken: list[Message] = []

    @app.consumer(ORDERS, group="g", auto_ack=False)
    def take(message: Message) -> None:
        taken.append(message)

    with Harness(app) as harness:
        for number in range(5):
            harness.publish(ORDERS, number)
        app.admin.tune(ORDERS, "g", threads=4, in_flight=2)
        harness.run_until_idle(patience=0)
        assert len(taken) == 2
        app.admin.tune(ORDERS, "g", in_flight="reset")
        harness.run_until_idle(patience=0)
        assert len(taken) == 5
        for message in taken:
            message.ack()
        harness.run_until_idle()
        harness.assert_all_done()
