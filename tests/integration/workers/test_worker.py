"""A worker in this process, on a real SQLite file: what becomes of messages and their handlers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from apps import Shop, audited
from eventually import eventually
from late import Late

from qframe import (
    AlreadySettled,
    Backoff,
    Batch,
    Message,
    Middleware,
    NeedRetry,
    Outgoing,
    QFrame,
    Reject,
    Topic,
    WorkerFailed,
)

pytestmark = pytest.mark.gate

KINDS = ("stream", "ordered", "delay", "priority", "merge")
SOON = Backoff(first=0.02, cap=0.02)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal"


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with audited(Shop(url)) as shop:
        yield shop


@pytest.mark.promise(1)
@pytest.mark.parametrize("publishes", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_all_groups_of_an_app_get_what_another_published_before(
    shop: Shop, url: str, kind: str, publishes: bool
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    with QFrame(store=url) as other:
        other.publish(topic, 1, key="k")

    @shop.app.consumer(topic, group="billing")
    def bill(message: Message) -> None:
        shop.seen.append(("billing", message.body))

    @shop.app.consumer(topic, group="stock")
    def store(message: Message) -> None:
        shop.seen.append(("stock", message.body))

    expected = [("billing", 1), ("stock", 1)]
    if publishes:
        shop.app.publish(topic, 2, key="other")
        expected += [("billing", 2), ("stock", 2)]
    shop.app.run(burst=True)
    assert sorted(shop.seen) == sorted(expected)


def test_a_handler_may_count_its_local_retries_and_then_ask_for_a_delay(shop: Shop) -> None:
    topic = Topic("t", slots=1)

    @shop.app.consumer(topic, group="g", local_retries=100)
    def handle(message: Message) -> None:
        shop.seen.append((message.attempt, message.local_retries))
        if message.attempt == 1:
            raise NeedRetry(delay="10ms") if message.local_retries > 3 else NeedRetry()

    shop.app.publish(topic, 1)
    shop.app.run(burst=True)
    assert shop.seen == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0)]


@pytest.mark.parametrize("how", ["plain", "async", "batch", "async batch", "hooked"])
def test_an_exception_that_a_handler_returns_counts_as_raised(shop: Shop, how: str) -> None:
    topic = Topic("t", slots=1)
    answers: list[Any] = [NeedRetry(delay="10ms"), NeedRetry, ValueError("later"), Reject("no")]

    def handle(message: Message) -> object:
        return answers.pop(0)

    async def handle_async(message: Message) -> object:
        return answers.pop(0)

    def handle_batch(messages: list[Message]) -> object:
        return answers.pop(0)

    async def handle_async_batch(messages: list[Message]) -> object:
        return answers.pop(0)

    class Watch(Middleware):
        def on_failure(self, message: Message, error: BaseException) -> None:
            shop.seen.append(type(error).__name__)

    handlers: dict[str, Callable[..., object]] = {
        "async": handle_async, "batch": handle_batch, "async batch": handle_async_batch,
    }  # fmt: skip
    shop.app.consumer(
        topic, group="g", backoff=SOON, middleware=[Watch()] if how == "hooked" else (),
        batch=Batch(1, "1ms") if "batch" in how else None,
    )(handlers.get(how, handle))  # fmt: skip
    shop.app.publish(topic, 1)
    shop.app.run(burst=True)
    assert answers == []
    [letter] = shop.app.admin.dead(topic, "g")
    assert letter.error == "Reject: no"
    if how == "hooked":
        assert shop.seen == ["NeedRetry", "NeedRetry", "ValueError", "Reject"]


@pytest.mark.promise(8)
@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_rejected_message_and_one_that_cannot_be_decoded_die_at_once(
    shop: Shop, auto_ack: bool
) -> None:
    topic = Topic("t", slots=1)

    @dataclass
    class Order:
        id: int

    # A local class cannot be found by its name in annotations, so it is given as an object.
    def handle(order: Any) -> None:
        shop.seen.append(order.id)
        raise Reject("no such order")

    handle.__annotations__["order"] = Order
    shop.app.consumer(topic, group="g", auto_ack=auto_ack)(handle)
    shop.app.publish(topic, {"id": 1}, id="rejected")
    shop.app.publish(topic, {"id": "one"}, id="undecodable")
    shop.app.publish(topic, b"\xff", id="raw")
    shop.app.run(burst=True)
    letters = {letter.id: letter for letter in shop.dead(topic)}
    assert set(letters) == {"rejected", "undecodable", "raw"}
    assert letters["rejected"].error == "Reject: no such order"
    assert "cannot be decoded as Order" in letters["undecodable"].error
    assert {letter.attempts for letter in letters.values()} == {1}
    assert shop.seen == [1]


def test_a_message_can_be_acknowledged_later_from_another_thread(shop: Shop) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    taken: list[Message] = []

    @shop.app.consumer(topic, group="g", auto_ack=False)
    def handle(message: Message) -> None:
        taken.append(message)

    shop.app.publish_many(topic, [Outgoing(number, key="k") for number in range(3)])
    shop.start()
    for number in range(3):
        eventually(lambda number=number: len(taken) == number + 1)
        eventually(lambda number=number: shop.app.admin.lag(topic, "g") == 3 - number)
        threading.Thread(target=taken[number].ack).start()
    eventually(lambda: shop.app.admin.lag(topic, "g") == 0)
    assert [message.body for message in taken] == [0, 1, 2]
    with pytest.raises(AlreadySettled):
        taken[0].ack()


def test_a_line_is_not_quiet_before_an_ack_from_another_thread_has_reached_its_settler(
    shop: Shop,
) -> None:
    """Else a worker could stop between the two, and the message would be handed out again."""
    topic, taken, quiet = Topic("t", slots=1), [], []

    def look(name: str, facts: dict[str, Any]) -> None:
        if name == "delivery.acknowledged":
            quiet.append(shop.app.parts.opened.worker._consumers[0].is_quiet())  # type: ignore[union-attr]

    @shop.app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        message.auto_ack = False
        taken.append(message)

    shop.app.events.listen(look)
    shop.app.publish(topic, 1)
    shop.start()
    eventually(lambda: taken)
    eventually(lambda: shop.app.parts.opened.worker._consumers[0]._acks)  # type: ignore[union-attr]
    taken.pop().ack(elapsed=0.1)
    shop.stop()
    assert quiet == [False]


def test_a_worker_is_not_quiet_while_an_ack_hands_on_what_follows_in_its_lane(shop: Shop) -> None:
    """Else a worker could stop between the two, and nobody would give that message back."""
    topic, taken, quiet = Topic("t", slots=1), [], []

    @shop.app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        message.auto_ack = False
        taken.append(message)

    shop.app.publish_many(topic, [Outgoing(number, key="k") for number in range(2)])
    shop.start()
    eventually(lambda: taken)
    consumer: Any = shop.app.parts.opened.worker._consumers[0]  # type: ignore[union-attr]
    eventually(lambda: consumer._acks and len(consumer.in_flight) == 2)
    consumer._in_hand._executor = Late(consumer.executor).before(
        "dispatch", lambda: quiet.append((len(consumer._acks), consumer.is_quiet()))
    )
    taken.pop().ack()
    eventually(lambda: taken)
    taken.pop().ack()
    shop.stop()
    assert quiet == [(0, False)]


def test_a_key_goes_on_when_what_waited_for_a_thread_is_lost(shop: Shop) -> None:
    topic, begun, gate = Topic("t", slots=1), threading.Event(), threading.Event()

    @shop.app.consumer(topic, group="g", threads=1)
    def handle(message: Message) -> None:
        begun.set()
        gate.wait(60)
        shop.seen.append(message.body)

    shop.app.publish_many(topic, [Outgoing("first", key="a"), Outgoing("lost", key="b")])
    shop.start()
    assert begun.wait(60)
    consumer: Any = shop.app.parts.opened.worker._consumers[0]  # type: ignore[union-attr]
    eventually(lambda: len(consumer.in_flight) == 2)
    consumer.lose([one for one in consumer.in_flight.all() if one.key == "b"])
    shop.app.publish(topic, "next", key="b")
    gate.set()
    eventually(lambda: {"first", "next"}.issubset(shop.seen), 20)
    shop.stop()


def test_a_message_that_its_user_forgets_comes_again_though_its_key_had_it(shop: Shop) -> None:
    topic = Topic("t", slots=1)

    @shop.app.consumer(topic, group="g", backoff=SOON)
    def handle(message: Message) -> None:
        message.auto_ack = message.attempt > 1
        shop.seen.append((message.body, message.attempt))

    shop.app.publish_many(topic, [Outgoing(number, key="k") for number in range(2)])
    shop.start()
    eventually(lambda: {(0, 2), (1, 2)} <= set(shop.seen), 20)
    shop.stop()


def test_an_error_after_the_ack_changes_nothing_any_more(shop: Shop) -> None:
    topic = Topic("t", slots=1)

    @shop.app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        message.ack()
        shop.seen.append(message.attempt)
        raise ValueError

    shop.app.publish(topic, 1)
    shop.app.run(burst=True)
    assert shop.seen == [1]
    assert not shop.dead(topic)
    assert shop.events["delivery.failed"] == 1


@pytest.mark.promise(4)
def test_a_handler_that_outlasts_its_lease_many_times_is_delivered_once(shop: Shop) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    stream = Topic("s", slots=2)
    for each in (topic, stream):

        def handle(message: Message) -> None:
            shop.seen.append(message.attempt)
            threading.Event().wait(9.5)

        # A machine that stands still for longer than that would rightly lose its lease.
        shop.app.consumer(each, group="g", lease="3s")(handle)
        shop.app.publish(each, 1, key="k")
    shop.app.run(burst=True)
    assert shop.seen == [1, 1]
    assert not shop.events["delivery.stale"]


@pytest.mark.promise(7)
def test_slow_keys_delay_no_other_key(shop: Shop) -> None:
    topic = Topic("t", slots=1)
    gate = threading.Event()

    @shop.app.consumer(topic, group="g", threads=3)
    def handle(message: Message) -> None:
        if message.key in ("slow", "slower"):
            gate.wait(60)
        shop.seen.append(message.key)

    items = [Outgoing(1, key="slow"), Outgoing(1, key="slower")]
    items += [Outgoing(1, key=f"k{number}") for number in range(300)]
    shop.app.publish_many(topic, items)
    shop.start()
    eventually(lambda: len(shop.seen) == 300)
    assert not {"slow", "slower"} & set(shop.seen)
    gate.set()
    eventually(lambda: len(shop.seen) == 302)


def test_no_more_than_max_in_flight_is_taken_from_the_store(shop: Shop) -> None:
    topic = Topic("t", slots=4)
    gate = threading.Event()

    @shop.app.consumer(topic, group="g", threads=2, max_in_flight=10)
    def handle(message: Message) -> None:
        gate.wait(60)
        shop.seen.append(message.body)

    shop.app.publish_many(topic, range(100))
    shop.start()
    [totals] = eventually(
        lambda: [each for each in shop.app.admin.topic(topic).groups if each.doing >= 6]
    )
    assert totals.doing <= 10
    assert totals.todo == 100 - totals.doing
    gate.set()
    eventually(lambda: len(shop.seen) == 100)


@pytest.mark.promise(4)
def test_a_worker_whose_slots_were_taken_meanwhile_is_refused_and_its_handler_sees_that(
    shop: Shop,
) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    gate = threading.Event()
    seen: list[tuple[int, bool]] = []

    @shop.app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        if message.attempt == 1:
            gate.wait(60)
        seen.append((message.attempt, message.cancelled))

    shop.app.publish(topic, 1, key="k", id="m")
    shop.start()
    eventually(lambda: [each.doing for each in shop.app.admin.stats(topic)] == [1])
    # As a worker would that was cut off from whoever shares the slots out.
    epoch = int(shop.app.store.epochs(topic, "g")[0], 16)
    assert shop.app.store.take(topic, "g", {0: f"{epoch + 1:016x}"}) == [0]
    shop.app.publish(topic, 2, key="other")  # which makes the worker pull, and be refused
    eventually(lambda: shop.events["slot.lost"] == shop.events["slot.refused"] == 1)
    gate.set()
    # It claims the slot under a later epoch, and what was lost comes again.
    eventually(lambda: sorted(seen) == [(1, False), (1, True), (2, False)])
    eventually(lambda: shop.events["delivery.stale"] == 1)
    shop.stop()
    assert shop.failure is None


def in_hand(shop: Shop, topic: Topic) -> int:
    return sum(totals.doing for totals in shop.app.admin.topic(topic).groups)


@pytest.mark.promise(9)
def test_stopping_finishes_what_runs_and_gives_the_rest_back_uncounted(
    shop: Shop, url: str
) -> None:
    shop.app.parts.opened.settings = replace(shop.app.settings, grace=60.0)
    stream, ordered = Topic("s", slots=2), Topic("o", kind="ordered", slots=2)
    gate = threading.Event()
    attempts: Counter[tuple[str, int]] = Counter()

    def handle(message: Message) -> None:
        gate.wait(60)
        attempts[message.topic, message.attempt] += 1

    for topic in (stream, ordered):
        shop.app.consumer(topic, group="g", threads=2)(handle)
        items = [Outgoing(number, key=f"k{number % 5}") for number in range(50)]
        shop.app.publish_many(topic, items)
    shop.start()
    eventually(lambda: in_hand(shop, stream) >= 10)
    eventually(lambda: in_hand(shop, ordered) >= 5)
    shop.app.stop()
    # What no handler has begun goes back while the others are still at the gate.
    eventually(lambda: all(in_hand(shop, topic) == 2 for topic in (stream, ordered)))
    gate.set()
    shop.join()
    assert shop.failure is None
    assert shop.events["worker.stopped"] == 1
    for topic in (stream, ordered):
        assert in_hand(shop, topic) == 0
    before = sum(attempts.values())
    assert before < 100
    shop.app.run(burst=True)
    assert sum(attempts.values()) == 100
    assert {attempt for _, attempt in attempts} == {1}


@pytest.mark.promise(9)
def test_what_outlasts_the_grace_is_cancelled_and_given_back(url: str) -> None:
    shop = Shop(url)
    shop.app.parts.opened.settings = replace(shop.app.settings, grace=0.2)
    topic = Topic("t", slots=1)
    gate, cancelled = threading.Event(), []

    @shop.app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        shop.seen.append(message.attempt)
        if len(shop.seen) == 1:
            gate.wait(60)
            cancelled.append(message.cancelled)

    shop.app.publish(topic, 1)
    shop.start()
    eventually(lambda: shop.seen == [1])
    shop.stop()
    [totals] = shop.app.admin.topic(topic).groups
    assert (totals.doing, totals.todo) == (0, 1)
    gate.set()
    eventually(lambda: cancelled == [True])
    shop.app.run(burst=True)
    assert shop.seen == [1, 1]
    shop.app.close()


def test_a_worker_whose_settler_has_failed_does_not_wait_for_its_grace(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("t", slots=1)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with QFrame(store=url, grace=600) as app:
        failed, both = threading.Event(), threading.Barrier(2)
        app.events.listen(lambda name, _: failed.set() if name == "part.failed" else None)

        @app.consumer(topic, group="g", threads=2)
        def handle(message: Message) -> None:
            both.wait(60)
            if message.body:
                failed.wait(60)

        monkeypatch.setattr(app.store, "acknowledge", fail)
        app.publish_many(topic, [0, 1])
        failures: list[WorkerFailed] = []

        def run() -> None:
            try:
                app.run()
            except WorkerFailed as error:
                failures.append(error)

        worker = threading.Thread(target=run, daemon=True)
        worker.start()
        worker.join(60)
        assert [type(each.__cause__) for each in failures] == [ZeroDivisionError]


def test_what_a_thread_has_done_is_settled_though_it_is_stuck_in_what_follows(url: str) -> None:
    topic = Topic("t", slots=1)
    app = QFrame(store=url, grace=0)
    gate, worker = threading.Event(), threading.Thread(target=app.run)
    seen: list[Any] = []

    @app.consumer(topic, group="g", threads=1)
    def handle(message: Message) -> None:
        seen.append((message.body, message.attempt))
        if message.body == "stuck" and message.attempt == 1 and not gate.is_set():
            app.stop()
            gate.wait(60)

    with app:
        app.publish_many(topic, range(600))  # quick ones, so that runs are long
        worker.start()
        eventually(lambda: len(seen) == 600 and not app.admin.lag(topic, "g"))
        app.publish_many(topic, [*range(600, 620), "stuck"])
        worker.join(60)
        [totals] = app.admin.topic(topic).groups
        assert (totals.doing, totals.lag) == (0, 1)
        gate.set()


def test_a_burst_waits_for_retries_but_not_for_what_is_due_later(shop: Shop) -> None:
    topic = Topic("t", kind="delay", slots=1)

    @shop.app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        if message.attempt == 1:
            raise NeedRetry(delay="100ms")
        shop.seen.append(message.body)

    shop.app.publish(topic, "now", key="a")
    shop.app.publish(topic, "later", key="b", delay="1h")
    shop.app.run(burst=True)
    assert shop.seen == ["now"]
    [totals] = shop.app.admin.topic(topic).groups
    assert (totals.waiting, totals.settled) == (1, 1)


def test_a_drain_waits_for_everything(shop: Shop) -> None:
    topic = Topic("t", kind="delay", slots=1)
    shop.app.consumer(topic, group="g")(lambda: shop.seen.append(1))
    shop.app.publish(topic, "later", delay="200ms")
    shop.app.run(drain=True)
    assert shop.seen == [1]


@pytest.mark.promise(1, 4)
def test_a_message_published_while_its_equal_is_handled_is_one_more_round(shop: Shop) -> None:
    topic = Topic("t", kind="merge", slots=1)
    gate = threading.Event()

    @shop.app.consumer(topic, group="g", threads=4)
    def handle(message: Message) -> None:
        shop.seen.append(message.body)
        gate.wait(60)

    shop.app.publish(topic, 1, key="k")
    shop.start()
    eventually(lambda: shop.seen == [1])
    assert shop.app.publish(topic, 2, key="k").outcome == "stored"
    assert shop.app.publish(topic, 3, key="k").outcome == "merged"
    gate.set()
    eventually(lambda: shop.app.admin.lag(topic, "g") == 0)
    assert shop.seen == [1, 3]


@pytest.mark.promise(6)
@pytest.mark.parametrize("mourning", [ValueError("tears"), SystemExit(3)])
def test_whatever_on_dead_raises_the_message_is_dead_and_the_worker_goes_on(
    shop: Shop, mourning: BaseException
) -> None:
    topic = Topic("t", slots=1)

    def mourn(message: Message, error: BaseException) -> None:
        raise mourning

    @shop.app.consumer(topic, group="g", threads=1, on_dead=mourn)
    def handle(message: Message) -> None:
        shop.seen.append(message.body)
        if message.body == 1:
            raise Reject("never")

    shop.app.publish_many(topic, [1, 2])
    shop.app.run(burst=True)
    assert sorted(shop.seen) == [1, 2]
    assert len(shop.dead(topic)) == 1
    assert shop.events["on_dead.failed"] == 1


def test_a_worker_without_select_poll_is_refused_and_a_publisher_is_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("t", slots=1)
    with QFrame(url) as app:
        app.consumer(topic, group="g")(lambda: None)
        with monkeypatch.context() as patch:
            patch.delattr("select.poll")  # as eventlet's monkey_patch() does
            app.publish(topic, 1)
            with pytest.raises(WorkerFailed, match=r"eventlet's monkey_patch\(\).*qframe worker"):
                app.run()
        app.run(burst=True)
        assert app.admin.lag(topic, "g") == 0
