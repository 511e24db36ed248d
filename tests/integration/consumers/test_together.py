"""Options of a consumer that meet: each keeps its promise beside the others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from apps import batched, handler, running, settled, told
from eventually import eventually
from sqlalchemy import Connection, NullPool, create_engine

from qframe import (
    Backoff,
    Batch,
    Breaker,
    DatabaseChecker,
    Message,
    Middleware,
    NeedRetry,
    Outgoing,
    QFrame,
    RateLimit,
    Reject,
    Topic,
    TransactionalChecker,
)
from qframe.testing import Harness

BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    """An app on SQLite; in the end the store's own audit finds nothing."""
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal", grace=5) as app:
        yield app
        app.stop()
        for topic in app.store.topics():
            assert app.store.verify(topic) == []


def effective(how: str, work: Any) -> Any:
    """A handler of batches under that checker."""

    def handle(messages: list[Message], connection: Connection) -> None:
        assert not connection.closed
        for message in messages:
            work(message)

    return handle if how.startswith("transaction") else batched(False, work)


# At most once.


@BOTH
@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("limit", ["100/s", None])
def test_at_most_once_what_waits_for_a_token_is_not_settled(
    app: QFrame, kind: str, is_async: bool, limit: str | None
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    seen: list[int] = []

    def work(message: Message) -> None:
        seen.append(message.body)
        if len(seen) in (20, 40):
            app.stop()

    app.consumer(
        topic, "g", at_most_once=True, rate_limit=limit, breaker=None if limit else Breaker(3)
    )(handler(is_async, work))
    app.publish_many(topic, [Outgoing(n, key=f"k{n % 7}") for n in range(60)])
    while settled(app, topic) < 60:
        app.run(burst=True)
        assert settled(app, topic) == len(seen)
    assert sorted(seen) == list(range(60))


@BOTH
@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("limit", ["1000/s", None])
def test_at_most_once_what_is_unwanted_is_settled_before_what_is_behind_it(
    app: QFrame, kind: str, is_async: bool, limit: str | None
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    events = told(app)
    seen: list[int] = []

    def work(message: Message) -> None:
        seen.append(message.body)

    app.consumer(topic, "g", at_most_once=True, tags="red", rate_limit=limit)(
        handler(is_async, work)
    )
    app.publish_many(
        topic,
        [Outgoing(n, key=f"k{n % 3}", tags=["red"] if n // 3 % 2 else None) for n in range(90)],
    )
    app.run(burst=True)
    for key in range(3):
        assert [n for n in seen if n % 3 == key] == [n for n in range(key, 90, 3) if n // 3 % 2]
    assert (events["delivery.skipped"], events["delivery.settled"]) == (45, 90)
    assert (events["delivery.stale"], events["delivery.lost"]) == (0, 0)
    assert settled(app, topic) == 90


@BOTH
def test_at_most_once_a_pause_gives_back_what_has_not_begun(app: QFrame, is_async: bool) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    seen: list[int] = []
    calls = count(1)

    def work(message: Message) -> None:
        seen.append(message.body)
        if next(calls) == 3:
            app.admin.pause(topic, "g")

    # However late the pause is heard of, there are no tokens for all.
    limit = RateLimit("1/h", burst=20)
    app.consumer(topic, "g", at_most_once=True, rate_limit=limit)(handler(is_async, work))
    app.publish_many(topic, [Outgoing(n, key=f"k{n % 7}") for n in range(40)])
    app.run(burst=True)
    assert 3 <= len(seen) == settled(app, topic) < 40
    assert sum(slot.doing for slot in app.store.stats(topic, "g")) == 0
    app.admin.resume(topic, "g")
    app.admin.tune(topic, "g", rate="1000/s")
    app.run(burst=True)
    assert sorted(seen) == list(range(40))
    assert settled(app, topic) == 40


@BOTH
def test_at_most_once_a_late_handler_is_a_failure_for_the_breaker(
    app: QFrame, is_async: bool
) -> None:
    topic = Topic("t", slots=1)
    events = told(app)

    async def hangs(message: Message) -> None:
        if message.body < 2:
            await asyncio.Event().wait()

    def looks(message: Message) -> None:
        while message.body < 2 and not message.cancelled:
            threading.Event().wait(0.001)

    app.consumer(
        topic, "g", at_most_once=True, threads=1, timeout="300ms", breaker=Breaker(2, pause="20ms")
    )(hangs if is_async else looks)  # fmt: skip
    app.publish_many(topic, list(range(6)))
    app.run(burst=True)
    # A quick one may be late as well, where the machine stands still.
    assert events["consumer.tripped"] >= 1
    assert events["consumer.recovered"] >= 1
    assert settled(app, topic) == 6


# Tags and batches.


CHECKERS = ("none", "marks", "transaction")


def checked(how: str, tmp_path: Path, **options: Any) -> dict[str, Any]:
    """A consumer's checker, and how its batches are committed."""
    batch = Batch(8, "5ms")
    if how == "none":
        return {"batch": batch}
    engine = create_engine(
        f"sqlite:///{tmp_path / 'effects.db'}", connect_args={"timeout": 30}, poolclass=NullPool
    )
    make = DatabaseChecker if how == "marks" else TransactionalChecker
    checker = make(engine, **options)
    return {"batch": batch, "idempotent_checker": checker}


def tagged(count: int, keys: int) -> list[Outgoing]:
    """Messages of which each third is `red`."""
    return [
        Outgoing(number, key=f"k{number % keys}", tags=[] if number % 3 else ["red"])
        for number in range(count)
    ]


@BOTH
@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_list_handler_has_only_what_bears_the_tags_and_the_rest_is_acknowledged(
    app: QFrame, kind: str, is_async: bool
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    seen: list[int] = []
    events = told(app)
    app.consumer(topic, "g", tags="red", batch=Batch(8, "5ms"))(
        batched(is_async, lambda message: seen.append(message.body))
    )
    app.publish_many(topic, tagged(120, keys=7 if kind in ("stream", "ordered") else 120))
    app.run(burst=True)
    assert sorted(seen) == list(range(0, 120, 3))
    assert settled(app, topic) == 120
    assert (events["delivery.skipped"], events["delivery.settled"]) == (80, 120)
    assert events["delivery.stale"] == 0


@pytest.mark.parametrize("how", CHECKERS)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_in_batches_what_is_unwanted_costs_no_claim_and_no_token(
    app: QFrame, kind: str, how: str, tmp_path: Path
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    seen: list[int] = []
    events = told(app)
    app.consumer(
        topic, "g", tags="red", rate_limit=RateLimit("1/h", burst=21), **checked(how, tmp_path)
    )(effective(how, lambda message: seen.append(message.body)))
    app.publish_many(topic, tagged(60, keys=7))
    app.run(burst=True)  # with two tokens less it would not end
    assert sorted(seen) == list(range(0, 60, 3))
    assert (events["delivery.skipped"], settled(app, topic)) == (40, 60)
    assert events["delivery.claimed"] == (0 if how == "none" else 20)


@pytest.mark.gate
@pytest.mark.parametrize("how", CHECKERS)
@pytest.mark.parametrize("serial", [False, True])
def test_an_unwanted_message_behind_one_that_is_retried_comes_back_with_it_in_order(
    app: QFrame, how: str, serial: bool, tmp_path: Path
) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    seen: dict[str | None, list[int]] = {}
    failed: set[int] = set()
    events = told(app)

    def work(message: Message) -> None:
        if message.body % 7 == 0 and message.body not in failed:
            failed.add(message.body)
            raise ValueError(message.body)
        if message.body not in seen.setdefault(message.key, []):  # a batch is tried in halves
            seen[message.key].append(message.body)

    app.consumer(
        topic, "g", tags="red", serial=serial, backoff=Backoff(first=0.02, cap=0.02),
        **checked(how, tmp_path),
    )(effective(how, work))  # fmt: skip
    app.publish_many(topic, tagged(200, keys=5))
    app.run(burst=True)
    assert sorted(n for each in seen.values() for n in each) == list(range(0, 200, 3))
    assert all(each == sorted(each) for each in seen.values())
    assert settled(app, topic) == 200
    assert (events["delivery.skipped"], events["delivery.stale"]) == (133, 0)


def test_behind_a_list_handler_that_runs_an_unwanted_message_waits_for_its_turn(
    app: QFrame,
) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    entered, go_on = threading.Event(), threading.Event()
    events = told(app)

    @app.consumer(topic, "g", tags="red", batch=Batch(8, "5ms"))
    def handle(messages: list[Message]) -> None:
        entered.set()
        go_on.wait(60)

    app.publish_many(topic, [Outgoing("slow", key="a", tags=["red"]), Outgoing(1, key="a"),
                             Outgoing(2, key="b")])  # fmt: skip
    with running(app, go_on):
        assert entered.wait(60)
        eventually(lambda: settled(app, topic) == 1)
        eventually(lambda: events["delivery.skipped"] == 1)
    app.run(burst=True)
    assert (settled(app, topic), events["delivery.skipped"]) == (3, 2)


# Rates, breakers, checkers and hooks around batches.


@pytest.mark.parametrize("how", CHECKERS)
def test_in_batches_each_message_costs_one_token_and_what_was_done_before_none(
    app: QFrame, how: str, tmp_path: Path
) -> None:
    topic = Topic("t", slots=1)
    seen: list[int] = []
    events = told(app)
    options = checked(how, tmp_path, key=lambda message: str(message.body))
    app.consumer(
        topic, "g", rate_limit=RateLimit("1/h", burst=21 if how == "none" else 11), **options
    )(effective(how, lambda message: seen.append(message.body)))
    app.publish_many(topic, list(range(10)))
    app.publish_many(topic, list(range(10)))
    app.run(burst=True)  # with two tokens less it would not end
    assert Counter(seen) == dict.fromkeys(range(10), 2 if how == "none" else 1)
    assert settled(app, topic) == 20
    if how != "none":
        assert events["delivery.duplicate"] == 10


# What is tuned, and pulls.


def test_a_pull_of_a_paused_group_hands_out_nothing_until_it_is_resumed(app: QFrame) -> None:
    topic = app.declare(Topic("t", kind="ordered", slots=2))
    events = told(app)
    app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(20)])
    with app.pull(topic, "g") as messages:
        first = messages.take()
        assert first is not None
        app.admin.pause(topic, "g")
        eventually(lambda: events["consumer.paused"])
        eventually(lambda: sum(slot.doing for slot in app.store.stats(topic, "g")) == 1)
        assert messages.take("50ms") is None
        first.ack()
        eventually(lambda: settled(app, topic) == 1)
        assert messages.take("50ms") is None
        app.admin.resume(topic, "g")
        for _ in range(19):
            message = messages.take("30s")
            assert message is not None
            assert message.attempt == 1
            message.ack()
    assert settled(app, topic) == 20


def test_a_rate_that_is_set_counts_what_a_pull_hands_out(app: QFrame) -> None:
    topic = app.declare(Topic("t", slots=2))
    events = told(app)
    app.publish_many(topic, list(range(40)))
    app.store.subscribe(topic, "g")
    app.admin.tune(topic, "g", rate="1/h")
    with app.pull(topic, "g") as messages:
        first = messages.take("30s")
        assert first is not None
        first.ack()
        assert messages.take("50ms") is None
        app.admin.tune(topic, "g", rate="10000/s")
        eventually(lambda: events["consumer.tuned"] == 2)
        for _ in range(39):
            message = messages.take("30s")
            assert message is not None
            message.ack()
    assert settled(app, topic) == 40


@pytest.mark.parametrize("how", ["plain", "async", "batch"])
def test_what_waits_for_a_token_for_an_hour_follows_when_another_rate_is_set(
    app: QFrame, how: str
) -> None:
    topic = Topic("t", slots=1)
    seen: list[int] = []

    def work(message: Message) -> None:
        if message.local_retries == 0:
            raise NeedRetry  # it waits in the worker, and its token is gone
        seen.append(message.body)

    options: dict[str, Any] = {"batch": Batch(4, "1ms")} if how == "batch" else {}
    app.consumer(topic, "g", rate_limit="1/h", **options)(
        batched(False, work) if how == "batch" else handler(how == "async", work)
    )
    app.publish(topic, 1)
    with running(app):
        eventually(lambda: any(group.doing for group in app.admin.topic(topic).groups))
        app.admin.tune(topic, "g", rate="1000/s")
        eventually(lambda: seen)


# Hooks around batches.


class Noting(Middleware):
    """Notes each hook with the message's body; refuses the bodies it is told to, by an error."""

    def __init__(self, refused: frozenset[int] = frozenset()) -> None:
        self.calls: list[tuple[str, int]] = []
        self._refused = refused

    def before(self, message: Message) -> None:
        self.calls.append(("before", message.body))
        if message.body in self._refused:
            raise Reject("by a hook")

    def after(self, message: Message, elapsed: float) -> None:
        self.calls.append(("after", message.body))

    def on_failure(self, message: Message, error: BaseException) -> None:
        self.calls.append(("on_failure", message.body))

    def count(self, hook: str) -> Counter[int]:
        return Counter(body for name, body in self.calls if name == hook)


@BOTH
def test_a_before_that_refuses_one_message_of_a_batch_costs_the_others_nothing(
    app: QFrame, is_async: bool
) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    noting, refused = Noting(frozenset({3, 17})), {3, 17}
    seen: list[int] = []
    app.consumer(topic, "g", batch=Batch(8, "5ms"), middleware=noting)(
        batched(is_async, lambda message: seen.append(message.body))
    )
    app.publish_many(topic, [Outgoing(n, key=f"k{n % 5}") for n in range(40)])
    app.run(burst=True)
    assert sorted(seen) == [n for n in range(40) if n not in refused]
    assert sorted(int(letter.body) for letter in app.admin.dead(topic, "g")) == [3, 17]
    assert noting.count("after") == dict.fromkeys(seen, 1)
    # Whose `before` was called is told of the end; of the refused ones there was no beginning.
    for body, times in noting.count("before").items():
        ends = noting.count("after")[body] + noting.count("on_failure")[body]
        assert ends == (0 if body in refused else times)


@BOTH
@pytest.mark.parametrize("batch", [None, Batch(8, "1ms")], ids=["single", "batch"])
def test_no_hook_hears_of_a_message_that_an_open_breaker_holds_back(
    app: QFrame, is_async: bool, batch: Batch | None
) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    noting = Noting()
    events = told(app)
    calls: list[int] = []

    def work(message: Message) -> None:
        calls.append(message.body)
        if len(calls) <= 5:
            raise ConnectionError("nobody answers")

    make = handler if batch is None else batched
    app.consumer(
        topic, "g", threads=1, batch=batch, middleware=noting, backoff=Backoff("20ms", cap="20ms"),
        breaker=Breaker(3, pause="20ms", longest="20ms"),
    )(make(is_async, work))  # fmt: skip
    app.publish_many(topic, [Outgoing(n, key=f"k{n % 7}") for n in range(60)])
    app.run(burst=True)
    assert settled(app, topic) == 60
    assert (events["consumer.recovered"], events["delivery.dead"]) == (1, 0)
    assert noting.count("after") == dict.fromkeys(range(60), 1)
    begun, ended = noting.count("before"), noting.count("after") + noting.count("on_failure")
    assert begun == ended
    if batch is None:
        assert sum(begun.values()) == len(calls) == 65


# The harness.


@BOTH
@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("batch", [None, Batch(4, "1s")], ids=["single", "batch"])
def test_a_harness_has_tags_limits_and_hooks_together(
    app: QFrame, kind: str, is_async: bool, batch: Batch | None
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    noting = Noting(frozenset({9}))
    events = told(app)
    seen: list[int] = []
    make = handler if batch is None else batched
    app.consumer(
        topic, "g", tags="red", rate_limit=RateLimit("5/s", burst=2), batch=batch,
        middleware=noting, breaker=Breaker(3),
    )(make(is_async, lambda message: seen.append(message.body)))  # fmt: skip
    with Harness(app) as harness:
        harness.app.publish_many(topic, tagged(60, keys=5))
        harness.run_until_idle()
        assert len(noting.calls) > 0
        assert sum(noting.count("before").values()) <= 2
        harness.drain()
        assert sorted(seen) == [n for n in range(0, 60, 3) if n != 9]
        assert noting.count("after") == dict.fromkeys(seen, 1)
        assert events["delivery.skipped"] == 40
        assert [int(letter.body) for letter in app.admin.dead(topic, "g")] == [9]


@BOTH
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_harness_has_at_most_once_with_tags_limits_and_breakers(
    app: QFrame, kind: str, is_async: bool
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    calls: list[int] = []

    def work(message: Message) -> None:
        calls.append(message.body)
        if len(calls) <= 4:
            raise ConnectionError("nobody answers")

    app.consumer(
        topic, "g", at_most_once=True, tags="red", rate_limit=RateLimit("5/s", burst=2),
        breaker=Breaker(3, pause="30s"),
    )(handler(is_async, work))  # fmt: skip
    with Harness(app) as harness:
        app.publish_many(topic, tagged(60, keys=5))
        harness.run_until_idle()
        assert len(calls) == 2
        harness.advance(seconds=10)
        assert len(calls) == 3  # it is open now
        harness.advance(seconds=21)
        assert len(calls) == 4  # a probe, which has failed
        harness.drain()
        assert sorted(calls) == list(range(0, 60, 3))
        harness.assert_all_done()


@pytest.mark.parametrize("how", CHECKERS)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_poison_message_is_found_in_its_batch_though_tokens_are_few(
    app: QFrame, kind: str, how: str, tmp_path: Path
) -> None:
    topic = Topic("t", kind=kind, slots=1)
    seen: list[int] = []

    def work(message: Message) -> None:
        if message.body == 3:
            raise Reject("it is poison")
        seen.append(message.body)

    app.consumer(
        topic, "g", rate_limit=RateLimit("40/s", burst=4), threads=1, **checked(how, tmp_path)
    )(effective(how, work))
    app.publish_many(topic, [Outgoing(n, key=f"k{n % 5}") for n in range(12)])
    app.run(burst=True)
    assert set(seen) == set(range(12)) - {3}
    assert [int(letter.body) for letter in app.admin.dead(topic, "g")] == [3]


class Crossed(DatabaseChecker):
    """Has a message acknowledged by another thread at the moment when its claim is given up."""

    def __init__(self, url: str) -> None:
        super().__init__(create_engine(url))
        self.at_release: list[Message] = []

    def release_many(self, scope: Any, claims: Any) -> list[bool]:
        answers = super().release_many(scope, claims)
        if self.at_release:
            other = threading.Thread(target=self.at_release.pop().ack)
            other.start()
            other.join()
        return answers


@BOTH
def test_an_ack_that_crosses_its_handlers_error_leaves_nothing_in_hand(
    app: QFrame, tmp_path: Path, is_async: bool
) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    checker = Crossed(f"sqlite:///{tmp_path / 'c.db'}")
    seen: list[int] = []

    def work(message: Message) -> None:
        seen.append(message.body)
        if message.body == 0:
            message.auto_ack = False
            checker.at_release.append(message)
            raise ConnectionError("it failed, and somebody says that it is done")

    app.consumer(topic, "g", idempotent_checker=checker, backoff=0)(handler(is_async, work))
    app.publish_many(topic, [Outgoing(n, key="k") for n in range(3)])
    worker = threading.Thread(target=lambda: app.run(burst=True), daemon=True)
    worker.start()
    eventually(lambda: not worker.is_alive())
    assert seen == [0, 1, 2]
    assert settled(app, topic) == 3
