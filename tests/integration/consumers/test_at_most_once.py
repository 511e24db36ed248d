"""`at_most_once=True`: settled before its handler is called, and never handled twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from apps import handler, running, told
from eventually import eventually
from processes import Running
from servers import Proxy, RedisServer

from qframe import (
    AlreadySettled,
    BadOption,
    Message,
    Outgoing,
    QFrame,
    RedisChecker,
    Topic,
)
from qframe.options.consumer import consumer_options
from qframe.outcomes import Settled
from qframe.testing import Harness

KINDS = ("stream", "ordered")


def totals(app: QFrame, topic: Topic) -> tuple[int, int, int]:
    stats = app.store.stats(topic, "g")
    return sum(s.settled for s in stats), sum(s.doing for s in stats), sum(s.dead for s in stats)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_handled_once_and_many_are_settled_in_one_call(
    each_app: QFrame, kind: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("t", kind=kind, slots=4)
    seen: list[int] = []
    calls: list[int] = []
    settle = each_app.store.acknowledge

    def counted(topic: Topic, group: str, deliveries: Any, epochs: Any) -> Any:
        calls.append(len(deliveries))
        return settle(topic, group, deliveries, epochs)

    monkeypatch.setattr(each_app.store, "acknowledge", counted)
    each_app.consumer(topic, "g", at_most_once=True)(
        handler(is_async, lambda message: seen.append(message.body))
    )
    each_app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(500)])
    each_app.run(burst=True)
    assert sorted(seen) == list(range(500))
    assert totals(each_app, topic) == (500, 0, 0)
    assert sum(calls) == 500
    assert len(calls) < 250


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_store_knows_that_it_is_settled_when_its_handler_is_called(
    each_app: QFrame, kind: str, is_async: bool
) -> None:
    topic = Topic("t", kind=kind, slots=1)
    known: list[Any] = []

    def work(message: Message) -> None:
        known.append(totals(each_app, topic))
        with pytest.raises(AlreadySettled):
            message.ack()

    each_app.consumer(topic, "g", at_most_once=True)(handler(is_async, work))
    each_app.publish(topic, "x", key="k")
    each_app.run(burst=True)
    assert known == [(1, 0, 0)]


@pytest.mark.parametrize("is_async", [False, True])
def test_slots_that_move_to_another_worker_lose_nothing_and_repeat_nothing(
    redis_server: RedisServer, tmp_path: Path, is_async: bool
) -> None:
    topic = Topic("t", slots=8)
    seen: list[tuple[str | None, int]] = []
    apps = [QFrame(redis_server.url, namespace=tmp_path.name, grace=5) for _ in range(2)]
    for app in apps:

        def work(message: Message) -> None:
            threading.Event().wait(0.0005)
            seen.append((message.key, message.body))

        app.consumer(topic, "g", at_most_once=True)(handler(is_async, work))
    events = told(apps[1])
    workers = [threading.Thread(target=app.run) for app in apps]
    apps[0].publish_many(topic, [Outgoing(n, key=f"k{n % 50}") for n in range(3000)])
    workers[0].start()
    eventually(lambda: len(seen) > 100)
    workers[1].start()
    eventually(lambda: events["slot.taken"])  # before it serves it hears no stop
    eventually(lambda: totals(apps[0], topic)[0] == 3000 and len(seen) >= 3000)
    for app, worker in zip(apps, workers, strict=True):
        app.stop()
        worker.join()
    assert sorted(n for _, n in seen) == list(range(3000))
    by_key: dict[str | None, list[int]] = {}
    for key, n in seen:
        by_key.setdefault(key, []).append(n)
    assert all(each == sorted(each) for each in by_key.values())
    for app in apps:
        assert app.store.verify(topic) == []
        app.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_runs_too_long_is_told_and_nothing_comes_again(
    each_app: QFrame, is_async: bool
) -> None:
    topic = Topic("t", kind="ordered", slots=1)
    events = told(each_app)
    ended: list[str] = []
    mourned: list[str] = []

    async def hangs(message: Message) -> None:
        if message.body == "long":
            await asyncio.Event().wait()
        ended.append(message.body)

    def looks(message: Message) -> None:
        if message.body == "long":
            eventually(lambda: message.cancelled)
        ended.append(message.body)

    each_app.consumer(
        topic, "g", at_most_once=True, timeout="50ms",
        on_dead=lambda message, error: mourned.append(type(error).__name__),
    )(hangs if is_async else looks)  # fmt: skip
    each_app.publish_many(topic, [Outgoing(body, key="k") for body in ("long", "short")])
    each_app.run(drain=True)
    assert events["delivery.overdue"] == 1
    assert ended == (["short"] if is_async else ["long", "short"])
    assert mourned == (["HandlerTimeout"] if is_async else [])
    assert totals(each_app, topic) == (2, 0, 0)


@pytest.mark.gate
@pytest.mark.parametrize("is_async", [False, True])
def test_what_outlasts_the_grace_of_a_stop_does_not_come_again(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """Nor does the stop wait for it further: the store was told before it began."""
    monkeypatch.setattr("qframe.runtime.process.shutdown.LAST_WORDS_S", 120.0)
    topic = Topic("t", kind="ordered", slots=1)
    entered, go_on, left = threading.Event(), threading.Event(), threading.Event()
    begun: list[str] = []
    held: list[Message] = []

    async def stays_async(message: Message) -> None:
        begun.append(message.body)
        held.append(message)
        entered.set()
        if message.body == "first":
            await asyncio.Event().wait()

    def stays(message: Message) -> None:
        begun.append(message.body)
        held.append(message)
        entered.set()
        if message.body == "first":
            go_on.wait(20)
            left.set()

    with QFrame(redis_server.url, namespace=tmp_path.name, grace=0.2) as app:
        app.consumer(topic, "g", at_most_once=True)(stays_async if is_async else stays)
        app.publish_many(topic, [Outgoing(body, key="k") for body in ("first", "second")])
        with running(app):
            assert entered.wait(60)
        assert not left.is_set()
        assert held[0].cancelled
        assert begun == ["first"]
        go_on.set()
        app.run(burst=True)
        assert begun == ["first", "second"]
        assert totals(app, topic) == (2, 0, 0)
        assert app.store.verify(topic) == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_what_is_being_settled_when_the_grace_is_over_is_given_back_at_once(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str,
    is_async: bool,
) -> None:  # fmt: skip
    topic = Topic("t", kind=kind, slots=1)
    stands, go_on = threading.Event(), threading.Event()
    seen: list[tuple[int, int]] = []
    asked: list[int] = []
    namespace = f"{tmp_path.name}-{kind}-{is_async}"
    with QFrame(redis_server.url, namespace=namespace, grace=0.2) as app:
        settle = app.store.acknowledge

        def slow(topic: Topic, group: str, deliveries: Any, epochs: Any) -> Any:
            if len(deliveries) > 1 and not stands.is_set():
                asked.append(len(deliveries))
                stands.set()
                go_on.wait(120)
            return settle(topic, group, deliveries, epochs)

        monkeypatch.setattr(app.store, "acknowledge", slow)
        app.consumer(topic, "g", at_most_once=True, threads=1 if not is_async else 64)(
            handler(is_async, lambda message: seen.append((message.body, message.attempt)))
        )
        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(500)])
        worker = threading.Thread(target=app.run)
        worker.start()
        try:
            assert stands.wait(60)
            app.stop()
            worker.join(60)
            assert not worker.is_alive()
            before = len(seen)
        finally:
            go_on.set()
        assert asked[0] > 1
        app.run(burst=True)
        assert before < 500
        assert sorted(seen) == [(n, 1) for n in range(500)]  # given back, and not counted
        assert app.store.verify(topic) == []


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_settled_and_not_answered_is_not_lost_by_a_renewal(
    each_app: QFrame, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A lost lease of a stream would cost the worker its slot."""
    topic = Topic("t", kind=kind, slots=1)
    events = told(each_app)
    settle, renew = each_app.store.acknowledge, each_app.store.renew
    renewed: list[int] = []
    answers = threading.Event()

    def done_and_not_answered(topic: Topic, group: str, deliveries: Any, epochs: Any) -> Any:
        results = settle(topic, group, deliveries, epochs)
        return results if answers.is_set() else [Settled.AWAY] * len(results)

    def counted(topic: Topic, group: str, leases: Any, lease_ms: int) -> Any:
        found = renew(topic, group, leases, lease_ms)
        renewed.append(len(found.gone))
        return found

    monkeypatch.setattr(each_app.store, "acknowledge", done_and_not_answered)
    monkeypatch.setattr(each_app.store, "renew", counted)
    each_app.consumer(topic, "g", at_most_once=True, lease="600ms")(
        handler(False, lambda message: None)
    )
    each_app.publish(topic, 1, key="k")
    with running(each_app, answers):
        eventually(lambda: sum(renewed) > 1)  # a round after the one that found it gone
        assert events["delivery.cancelled"] == 0
    assert totals(each_app, topic) == (1, 0, 0)


BESIDE = """
import os, sys
from qframe import Message, QFrame
app = QFrame(sys.argv[1], namespace=sys.argv[2], session_timeout=0.5)

@app.consumer("t", "g", at_most_once=True, lease="500ms", threads=4)
def handle(message: Message) -> None:
    os.write(1, f"{message.body}\\n".encode())  # in one piece: there are four threads

app.run()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_workers_that_are_frozen_or_killed_have_no_message_handled_twice(
    redis_server: RedisServer, tmp_path: Path, is_killed: bool
) -> None:
    topic = Topic("t", slots=8)
    handled: list[int] = []
    namespace = f"{tmp_path.name}-{is_killed}"
    with QFrame(redis_server.url, namespace=namespace, grace=5, session_timeout=0.5) as app:
        app.consumer(topic, "g", at_most_once=True, lease="500ms")(
            work_of(lambda message: handled.append(message.body))
        )
        app.declare(topic)
        app.store.subscribe(topic, "g")
        with Running(
            [sys.executable, "-c", BESIDE, redis_server.url, namespace], tmp_path,
            {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        ) as beside:  # fmt: skip
            app.publish_many(topic, [Outgoing(n, key=f"k{n % 200}") for n in range(4000)])
            eventually(lambda: len(beside.lines) > 200)
            beside.signal(signal.SIGKILL if is_killed else signal.SIGSTOP)
            if is_killed:
                beside.code()
            app.publish_many(topic, [Outgoing(n, key=f"k{n % 200}") for n in range(4000, 8000)])
            with running(app):
                eventually(lambda: totals(app, topic)[0] == 8000)
                if not is_killed:
                    beside.signal(signal.SIGCONT)
                    beside.signal(signal.SIGTERM)
                    beside.code()
        seen = Counter(handled + [int(line) for line in beside.lines if line.isdigit()])
        assert max(seen.values()) == 1
        # Lost is what was settled and not handled: of each of four threads one run at most.
        assert 8000 - len(seen) <= 4 * 64
        assert app.store.verify(topic) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_no_handler_is_called_while_the_store_cannot_be_told(
    redis_server: RedisServer, tmp_path: Path, is_async: bool
) -> None:
    topic = Topic("t", slots=1)
    seen: list[int] = []
    with (
        Proxy(redis_server.port) as proxy,
        QFrame(redis_server.url, namespace=tmp_path.name) as direct,
        QFrame(proxy.url + "?socket_timeout=1", namespace=tmp_path.name, grace=5) as app,
    ):
        events = told(app)

        def work(message: Message) -> None:
            if message.body == 0:
                proxy.stop()
            seen.append(message.body)

        app.consumer(topic, "g", at_most_once=True, threads=1)(handler(is_async, work))
        direct.declare(topic)
        worker = threading.Thread(target=app.run)
        direct.publish_many(topic, [Outgoing(n, key="k") for n in range(5)])
        worker.start()
        try:
            eventually(lambda: events["store.unavailable"] >= 3)
            assert seen == [0]
            proxy.accept()
            eventually(lambda: len(seen) == 5)
            eventually(lambda: totals(direct, topic) == (5, 0, 0))
        finally:
            proxy.accept()
            app.stop()
            worker.join()
        assert seen == [0, 1, 2, 3, 4]
        assert direct.store.verify(topic) == []


@pytest.mark.gate
@pytest.mark.parametrize("seed", range(3))
def test_lost_answers_repeat_no_message(
    redis_server: RedisServer, tmp_path: Path, seed: int
) -> None:
    topic = Topic("t", kind="ordered" if seed % 2 else "stream", slots=4)
    seen: Counter[int] = Counter()
    with (
        Proxy(redis_server.port) as proxy,
        QFrame(redis_server.url, namespace=f"{tmp_path.name}-{seed}") as direct,
        QFrame(proxy.url, namespace=f"{tmp_path.name}-{seed}", grace=5) as app,
    ):

        def work(message: Message) -> None:
            seen[message.body] += 1
            if sum(seen.values()) % 97 == 0:
                proxy.drop_replies(1)

        app.consumer(topic, "g", at_most_once=True, threads=4)(work_of(work))
        direct.declare(topic)
        direct.store.subscribe(topic, "g")
        direct.publish_many(topic, [Outgoing(n, key=f"k{n % 40}") for n in range(1500)])
        with running(app):
            eventually(lambda: totals(direct, topic)[0] == 1500)
        assert max(seen.values()) == 1
        # What is lost is what was settled by a call whose answer was lost: one call each time.
        assert len(seen) > 1500 - 64 * 4 * (1500 // 97 + 1)
        assert direct.store.verify(topic) == []


def work_of(work: Any) -> Any:
    return handler(False, work)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"auto_ack": False},
            "auto_ack False: with at_most_once=True the message is already acknowledged",
        ),
        (
            {"idempotent_checker": RedisChecker("redis://localhost")},
            "with at_most_once=True nothing comes again; leave one of the two out",
        ),
        ({"backoff": "5s"}, "backoff Backoff.*: with at_most_once=True nothing is retried; leave"),
        ({"local_retries": 3}, "local_retries 3: with at_most_once=True nothing is retried"),
        ({"at_most_once": 1}, "at_most_once 1: it must be True or False"),
    ],
)
def test_what_has_no_meaning_beside_it_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        consumer_options(**{"at_most_once": True, **options})


def test_a_backoff_before_retries_that_never_come_is_refused() -> None:
    with pytest.raises(BadOption, match=r"backoff Backoff.*: with max_attempts=1 nothing is retr"):
        consumer_options(max_attempts=1, backoff="5s")
    consumer_options(max_attempts=1, local_retries=2)  # which are none of its attempts


def test_a_harness_that_redelivers_everything_leaves_out_what_cannot_come_again() -> None:
    app = QFrame()
    seen: list[str] = []
    for group, once in (("once", True), ("again", False)):
        app.consumer(Topic("t"), group, at_most_once=once)(
            handler(False, lambda message: seen.append(message.group))
        )
    with Harness(app) as harness:
        harness.redeliver_everything()
        harness.publish("t", "x")
        harness.drain()
        harness.assert_all_done()
    assert Counter(seen) == {"once": 1, "again": 2}
