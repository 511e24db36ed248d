"""Consumers of batches, run step by step: what fails alone is dead, and all else is done once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, NullPool, create_engine, text

from qframe import (
    Backoff,
    BadHandler,
    BadOption,
    Batch,
    DatabaseChecker,
    Message,
    NeedRetry,
    Outgoing,
    QFrame,
    Topic,
    TransactionalChecker,
)
from qframe.stores.types import Entry
from qframe.testing import Harness

STREAM = Topic("stream", slots=2)
ORDERED = Topic("ordered", kind="ordered", slots=2)
SOON = Backoff(first=0.5, cap=0.5)


def bodies(messages: list[Message]) -> list[Any]:
    return [message.body for message in messages]


@pytest.mark.promise(7)
def test_one_poison_message_is_found_by_halves_and_dies_alone() -> None:
    app, calls = QFrame(), []

    @app.consumer(STREAM, "g", batch=Batch(16, within=1), max_attempts=2, backoff=SOON)
    def handle(messages: list[Message]) -> None:
        calls.append(bodies(messages))
        if 5 in calls[-1]:
            raise ValueError("five")

    with Harness(app) as harness:
        app.publish_many(STREAM, [Outgoing(number, key="k") for number in range(16)])
        harness.run_until_idle()
        assert len(calls) == 9  # the whole, and then two of each size down to one
        assert [call for call in calls if 5 not in call] == [
            [0, 1, 2, 3], [4], [6, 7], [8, 9, 10, 11, 12, 13, 14, 15]
        ]  # fmt: skip
        harness.advance(seconds=1)
        harness.assert_dead(STREAM, "g", 5)
        [dead] = harness.dead(STREAM, "g")
        assert (dead.attempts, dead.error) == (2, "ValueError: five")


def test_a_body_that_cannot_be_decoded_dies_at_once_and_takes_nobody_along() -> None:
    app, seen = QFrame(), []

    @app.consumer(STREAM, "g", batch=Batch(10, within=1))
    def handle(messages: list[Message]) -> None:
        seen.extend([msgspec.convert(body, int) for body in bodies(messages)])

    with Harness(app) as harness:
        app.publish_many(STREAM, [1, 2])
        app.store.publish(STREAM, [Entry(0, None, "broken", "broken", None, None, b"{")])
        app.publish_many(STREAM, [3])
        harness.run_until_idle()
        [dead] = harness.dead(STREAM, "g")
        assert (dead.id, dead.attempts) == ("broken", 1)
        assert str(dead.error).startswith("UndecodableBody: ")
    assert sorted(set(seen)) == [1, 2, 3]


def test_need_retry_is_said_of_all_that_are_not_acked_and_nothing_is_halved() -> None:
    app, calls = QFrame(), []

    @app.consumer(STREAM, "g", batch=Batch(4, within=1))
    def handle(messages: list[Message]) -> None:
        calls.append([(message.body, message.attempt) for message in messages])
        if messages[0].attempt == 1:
            messages[0].ack()
            raise NeedRetry(delay=10)

    with Harness(app) as harness:
        app.publish_many(STREAM, [Outgoing(number, key="k") for number in range(4)])
        tally = harness.run_until_idle()
        assert (tally.acked, tally.retried) == (1, 3)
        harness.advance(seconds=10)
        assert calls == [[(0, 1), (1, 1), (2, 1), (3, 1)], [(1, 2), (2, 2), (3, 2)]]


def test_on_an_ordered_topic_messages_may_be_acked_in_any_order() -> None:
    app, calls = QFrame(), []

    @app.consumer(ORDERED, "g", batch=Batch(8, within=1), backoff=SOON)
    def handle(messages: list[Message]) -> None:
        calls.append(bodies(messages))
        for message in reversed(messages):
            message.ack(error=ValueError() if message.body == 3 and message.attempt == 1 else None)

    with Harness(app) as harness:
        app.publish_many(ORDERED, [Outgoing(number, key="k") for number in range(6)])
        tally = harness.run_until_idle()
        assert (tally.acked, tally.retried, tally.lost) == (3, 1, 0)
        harness.advance(seconds=1)
        assert [body for call in calls for body in call] == [0, 1, 2, 3, 4, 5, 3, 4, 5]
        harness.assert_all_done()


class Ledger:
    """A database of its own, and what a handler has written into it."""

    def __init__(self, folder: Path) -> None:
        self.engine = create_engine(f"sqlite:///{folder / 'ledger.db'}", poolclass=NullPool)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE done (number INTEGER)"))

    def write(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            connection.execute(text("INSERT INTO done VALUES (:n)"), {"n": message.body})

    def numbers(self) -> list[int]:
        with self.engine.connect() as connection:
            return sorted(connection.execute(text("SELECT number FROM done")).scalars())


def test_a_batch_is_one_transaction_and_each_half_of_a_failed_one_is_another(
    tmp_path: Path,
) -> None:
    app, ledger, transactions = QFrame(), Ledger(tmp_path), []

    @app.consumer(
        STREAM, "g", batch=Batch(8, within=1), max_attempts=1,
        idempotent_checker=TransactionalChecker(ledger.engine),
    )  # fmt: skip
    def handle(messages: list[Message], connection: Connection) -> None:
        transactions.append(len({id(message.effect.transaction) for message in messages}))
        ledger.write(connection, messages)
        if any(message.body == 3 for message in messages):
            raise ValueError

    with Harness(app) as harness:
        app.publish_many(STREAM, range(8))
        harness.run_until_idle()
        harness.assert_dead(STREAM, "g", 3)
    assert ledger.numbers() == [0, 1, 2, 4, 5, 6, 7]
    assert set(transactions) == {1}
    assert len(transactions) == 7


@pytest.mark.parametrize("error", [None, ValueError("one")])
def test_in_a_batchs_transaction_an_ack_is_refused_and_the_halves_find_who_asks_for_it(
    tmp_path: Path, error: BaseException | None
) -> None:
    app, ledger = QFrame(), Ledger(tmp_path)

    @app.consumer(
        STREAM, "g", batch=Batch(8, within=1), max_attempts=1,
        idempotent_checker=TransactionalChecker(ledger.engine),
    )  # fmt: skip
    def handle(messages: list[Message], connection: Connection) -> None:
        ledger.write(connection, messages)
        for message in messages:
            if message.body == 1:
                message.ack(error=error)

    with Harness(app) as harness:
        app.publish_many(STREAM, range(4))
        harness.run_until_idle()
        harness.assert_dead(STREAM, "g", 1)
        [dead] = harness.dead(STREAM, "g")
        assert str(dead.error).startswith(
            "NotSupported: message.ack() in a batch's transaction is not supported"
        )
        assert "return from the handler to commit, or raise" in str(dead.error)
    assert ledger.numbers() == [0, 2, 3]


def test_who_is_left_of_several_is_tried_alone_before_it_is_blamed(tmp_path: Path) -> None:
    """The one at fault may be gone: here the store has taken it back, with one before it."""
    app, calls = QFrame(), []

    @app.consumer(ORDERED, "g", batch=Batch(8, within=1), max_attempts=2, backoff=SOON)
    def handle(messages: list[Message]) -> None:
        calls.append(sorted(bodies(messages)))
        for message in messages:
            if message.body == 0 and len(calls) == 1:
                message.ack(error=NeedRetry(delay=1))
        if 1 in calls[-1] and len(calls) == 1:
            raise ValueError("one")

    with Harness(app) as harness:
        items = [Outgoing(0, key="k"), Outgoing(1, key="k"), Outgoing(2, key="k2")]
        app.publish_many(ORDERED, items)
        tally = harness.run_until_idle()
        assert (tally.acked, tally.retried) == (1, 1)
        assert calls[1:] == [[2]]
        harness.drain()
        harness.assert_all_done()


def test_taking_messages_over_in_a_batchs_transaction_is_refused(tmp_path: Path) -> None:
    app, ledger = QFrame(), Ledger(tmp_path)
    checker = TransactionalChecker(ledger.engine)

    def handle(messages: list[Message], connection: Connection) -> None:
        messages[0].auto_ack = False

    def alone(messages: list[Message]) -> None: ...

    with pytest.raises(BadOption, match=r"one transaction.*use a DatabaseChecker"):
        app.consumer(
            STREAM, "g", batch=Batch(8, within=1), auto_ack=False, idempotent_checker=checker
        )(handle)
    with pytest.raises(BadHandler, match="does not ask for its TransactionalChecker's transaction"):
        app.consumer(STREAM, "g", batch=Batch(8, within=1), idempotent_checker=checker)(alone)
    app.consumer(
        STREAM, "g", batch=Batch(8, within=1), max_attempts=1, idempotent_checker=checker
    )(handle)  # fmt: skip
    with Harness(app) as harness:
        app.publish_many(STREAM, range(2))
        harness.run_until_idle()
        shown = "NotSupported: auto_ack = False in a batch's transaction is not supported"
        assert [str(each.error)[: len(shown)] for each in harness.dead(STREAM, "g")] == [shown] * 2


@pytest.mark.parametrize("checker", [DatabaseChecker, TransactionalChecker])
def test_what_was_done_before_is_acked_and_not_in_the_list_nor_twice_in_one(
    tmp_path: Path, checker: Any
) -> None:
    app, ledger = QFrame(), Ledger(tmp_path)
    made = checker(ledger.engine, key="order")
    seen: list[int] = []
    options: Any = {"batch": Batch(8, within=1), "idempotent_checker": made}
    if made.is_transactional:

        @app.consumer(STREAM, "g", **options)
        def in_transaction(messages: list[Message], connection: Connection) -> None:
            seen.extend(message.body["order"] for message in messages)

    else:

        @app.consumer(STREAM, "g", **options)
        def handle(messages: list[Message]) -> None:
            seen.extend(message.body["order"] for message in messages)

    with Harness(app) as harness:
        app.publish_many(STREAM, [{"order": number} for number in (1, 2, 1, 3)])
        harness.run_until_idle()
        app.publish_many(STREAM, [{"order": number} for number in (3, 4)])
        app.publish(STREAM, {"other": 5})
        harness.run_until_idle()
        [dead] = harness.dead(STREAM, "g")
        assert dead.body == {"other": 5}
    assert sorted(seen) == [1, 2, 3, 4]


class Plan(msgspec.Struct):
    """What a message does at its deliveries, and after how many calls it is content."""

    key: str | None
    fate: str
    times: int


PLANS = st.lists(
    st.builds(
        Plan,
        key=st.sampled_from(["a", "b", "c", None]),
        fate=st.sampled_from(
            ["ok", "ok", "ok", "ack", "raise", "refuse", "later", "place", "keep"]
        ),
        times=st.integers(1, 5),
    ),
    max_size=25,
)


@pytest.mark.promise(1, 2, 3)
@settings(max_examples=200, deadline=None)
@given(PLANS, st.integers(1, 9), st.sampled_from(["stream", "ordered"]), st.booleans())
def test_whatever_fails_each_message_succeeds_once_or_is_dead_and_keys_keep_their_order(
    plans: list[Plan], size: int, kind: str, serial: bool
) -> None:
    app = QFrame()
    topic = Topic("plans", kind=kind, slots=2)
    calls: Counter[int] = Counter()
    succeeded: list[int] = []
    log: list[list[int]] = []

    @app.consumer(
        topic,
        "g",
        batch=Batch(size, within=1),
        max_attempts=3,
        backoff=Backoff(first=1, cap=1),
        serial=serial,
    )
    def handle(messages: list[Message]) -> None:
        assert 1 <= len(messages) <= size
        numbers = bodies(messages)
        for key in "abc":
            own = [message.body for message in messages if message.key == key]
            assert own == sorted(own)
        calls.update(numbers)
        log.append(numbers)
        open_ends = set(numbers)
        failure: BaseException | None = None
        for message in messages:
            plan = plans[message.body]
            if plan.fate == "ok" or calls[message.body] > plan.times:
                continue
            if plan.fate == "ack":
                message.ack()
                succeeded.append(message.body)
                open_ends.discard(message.body)
            elif plan.fate == "refuse":
                message.ack(error=ValueError())
                open_ends.discard(message.body)
            elif plan.fate == "keep":
                message.auto_ack = False  # and let go: it is forgotten
                open_ends.discard(message.body)
            else:
                errors = {
                    "raise": ValueError(), "later": NeedRetry(delay=3), "place": NeedRetry()
                }  # fmt: skip
                failure = errors[plan.fate]
        del message
        if failure is not None:
            try:
                raise failure
            finally:
                del failure, errors  # they would keep all messages in a circle
        succeeded.extend(number for number in numbers if number in open_ends)

    with Harness(app) as harness:
        keys = [plan.key or ("d" if kind == "ordered" else None) for plan in plans]
        app.publish_many(topic, [Outgoing(i, key=key) for i, key in enumerate(keys)])
        harness.drain()
        dead = [each.body for each in harness.dead(topic, "g")]
        assert harness.waiting(topic, "g") == [] or all(
            each.state == "dead" for each in harness.waiting(topic, "g")
        )
        assert app.store.verify(topic) == []
    once = Counter(succeeded)
    assert set(once) | set(dead) == set(range(len(plans)))
    if kind == "ordered":
        assert overtaken(log, plans) == []


def overtaken(log: list[list[int]], plans: list[Plan]) -> list[tuple[int, int]]:
    """Pairs of one key of which the later one was handled without the earlier, which came again.

    A key of which a message was kept by its user and let go does not count: it was in hand then.
    Nor does one that was acked before those ahead of it: it comes again if one of those does.
    """
    kept = {plan.key for plan in plans if plan.fate == "keep"} | {None}
    last = {number: place for place, call in enumerate(log) for number in call}
    return [
        (early, late)
        for place, call in enumerate(log)
        for late in call
        for early in range(late)
        if plans[late].key not in kept
        and plans[early].key == plans[late].key
        and plans[early].fate != "ack"
        and early not in call
        and last[early] > place
    ]
