"""What is set for a group is applied by its running workers, and by those that start later."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apps import running
from eventually import eventually
from servers import PostgresServer, Proxy, RedisServer
from sqlalchemy import create_engine, text

from qframe import Batch, Message, NeedRetry, Outgoing, QFrame, RedisChecker, Topic
from qframe.options.tuning import Tuning

TOPIC = Topic("work", kind="ordered", slots=4)
Opened = Callable[..., QFrame]


class Worker:
    """A worker in a thread, whose handler waits at a gate, and what it has told."""

    def __init__(self, app: QFrame, topic: Topic = TOPIC, **options: Any) -> None:
        self.app = app
        self.gate = threading.Event()
        self.handled: list[Any] = []
        self.attempts: set[int] = set()
        self.at_once = 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=app.run)
        app.events.listen(lambda name, facts: self.events.append((name, facts)))
        app.consumer(topic, "g", **options)(self.handle)

    def handle(self, message: Message) -> None:
        with self._guard:
            self.at_once += 1
        self.gate.wait(60)
        with self._guard:
            self.at_once -= 1
            self.handled.append(message.body)
            self.attempts.add(message.attempt)

    def told(self, name: str) -> list[dict[str, Any]]:
        return [facts for each, facts in list(self.events) if each == name]

    def await_told(self, name: str, times: int = 1) -> dict[str, Any]:
        eventually(lambda: len(self.told(name)) >= times)
        return self.told(name)[times - 1]

    def __enter__(self) -> Worker:
        self._thread.start()
        eventually(lambda: self.told("worker.ready"))
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self.app.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture(params=["sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens apps on one store."""
    apps: list[QFrame] = []
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        store, namespace = server.url, tmp_path.name
    else:
        store, namespace = f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal", "shop"

    def opened(**options: Any) -> QFrame:
        apps.append(QFrame(store, namespace=namespace, grace=5, **options))
        return apps[-1]

    yield opened
    assert apps[0].admin.verify() == []
    for app in apps:
        app.close()


@pytest.fixture
def app(opened: Opened) -> QFrame:
    app = opened()
    app.declare(TOPIC)
    app.store.subscribe(TOPIC, "g")
    return app


def publish(app: QFrame, numbers: range) -> None:
    app.publish_many(TOPIC, [Outgoing(number, key=f"k{number}") for number in numbers])


@pytest.mark.gate
def test_threads_and_in_flight_are_what_is_set_and_then_what_the_code_says_again(
    app: QFrame,
) -> None:
    publish(app, range(200))
    with Worker(app, threads=3, max_in_flight=30) as worker:
        eventually(lambda: worker.at_once == 3)
        app.admin.tune("work", "g", threads=20, in_flight=100)
        eventually(lambda: worker.at_once == 20)
        [line] = app.parts.opened.worker._consumers  # type: ignore[union-attr]
        threads: Any = line.executor._threads  # type: ignore[attr-defined]
        eventually(lambda: 50 < len(line.in_flight) <= 100)
        app.admin.tune("work", "g", threads="reset", in_flight=5)
        eventually(lambda: len(threads.workers) == 20 and line.in_flight._max_messages == 5)
        worker.gate.set()
        eventually(lambda: len(threads.workers) == 3)
        eventually(lambda: len(worker.handled) == 200)
        app.admin.tune("work", "g", in_flight="reset")
        eventually(lambda: line.in_flight._max_messages == 30)
    assert Counter(worker.handled) == Counter(range(200))
    assert worker.attempts == {1}
    where = {"topic": "work", "group": "g", "rate": None}
    assert worker.told("consumer.tuned") == [
        {"threads": 20, "in_flight": 100, **where}, {"threads": None, "in_flight": 5, **where},
        {"threads": None, "in_flight": None, **where},
    ]  # fmt: skip


def test_a_rate_is_what_is_set_and_then_what_the_code_says_again(app: QFrame) -> None:
    with Worker(app, rate_limit="1000/s") as worker:
        flow = app.parts.opened.worker._consumers[0].flow  # type: ignore[union-attr]
        app.admin.tune("work", "g", rate="1/h")
        eventually(lambda: flow.limit is not None and flow.limit.per_ms == 3_600_000)
        worker.gate.set()
        publish(app, range(50))
        eventually(lambda: worker.handled)
        app.admin.tune("work", "g", rate="reset")
        eventually(lambda: len(worker.handled) == 50)
        assert worker.attempts == {1}
        assert worker.told("consumer.tuned")[0]["rate"] == "1/h"


def test_async_handlers_are_tuned_too(app: QFrame) -> None:
    at_once = 0
    gate = threading.Event()
    handled: list[int] = []

    @app.consumer(TOPIC, "g", threads=2)
    async def handle(message: Message) -> None:
        nonlocal at_once
        at_once += 1
        while not gate.is_set():
            await asyncio.sleep(0.01)
        at_once -= 1
        handled.append(message.body)

    publish(app, range(100))
    with running(app):
        eventually(lambda: at_once == 2)
        app.admin.tune("work", "g", threads=2000)
        eventually(lambda: at_once == 100)
        app.admin.tune("work", "g", threads=1)
        eventually(lambda: app.parts.opened.worker._consumers[0].executor.size == 1)  # type: ignore[union-attr]
        gate.set()
        eventually(lambda: len(handled) == 100)
        gate.clear()
        publish(app, range(100, 110))
        eventually(lambda: at_once == 1)
        app.admin.tune("work", "g", threads="reset")
        eventually(lambda: at_once == 2)
        gate.set()
        eventually(lambda: len(handled) == 110)
    assert sorted(handled) == list(range(110))


def test_a_worker_that_starts_later_begins_as_is_set(app: QFrame, opened: Opened) -> None:
    app.admin.tune("work", "g", threads=4)
    app.admin.pause("work", "g")
    publish(app, range(40))
    with Worker(opened(), threads=9) as worker:
        worker.await_told("consumer.paused")
        assert worker.handled == []
        assert app.admin.topic("work").groups[0].todo == 40
        app.admin.resume("work", "g")
        worker.await_told("consumer.resumed")
        eventually(lambda: worker.at_once == 4)
        worker.gate.set()
        eventually(lambda: len(worker.handled) == 40)
    assert worker.attempts == {1}


def test_what_a_handler_asks_to_be_tried_again_at_once_waits_for_the_end_of_a_pause(
    app: QFrame,
) -> None:
    calls: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    @app.consumer(TOPIC, "g", threads=1)
    def handle(message: Message) -> None:
        calls.append(message.attempt)
        if len(calls) == 1:
            begun.set()
            go_on.wait(60)
            raise NeedRetry

    publish(app, range(1))
    told: list[str] = []
    app.events.listen(lambda name, facts: told.append(name))
    with running(app):
        assert begun.wait(60)
        app.admin.pause("work", "g")
        eventually(lambda: "consumer.paused" in told)
        go_on.set()
        eventually(lambda: app.admin.topic("work").groups[0].todo == 1)
        assert calls == [1]
        app.admin.resume("work", "g")
        eventually(lambda: calls == [1, 1])
        eventually(lambda: app.admin.lag("work", "g") == 0)


@pytest.mark.parametrize("how", ["burst", "drain"])
def test_a_paused_consumer_holds_up_no_burst_and_no_drain(app: QFrame, how: str) -> None:
    other = Topic("other")
    handled: list[str] = []
    for topic in (TOPIC, other):

        @app.consumer(topic, "g")
        def handle(message: Message) -> None:
            handled.append(message.topic)

    publish(app, range(10))
    app.publish_many(other, [1, 2, 3])
    app.publish(TOPIC, 1, key="later", delay="1h")
    app.admin.pause("work", "g")
    app.run(**{how: True})
    assert handled == ["other"] * 3
    assert app.admin.lag("work", "g") == 11


def test_a_wrong_value_is_told_once_and_ignored_and_the_others_count(app: QFrame) -> None:
    publish(app, range(50))
    with Worker(app, threads=2) as worker:
        eventually(lambda: worker.at_once == 2)
        wrong = {"threads": "many", "rate": "fast", "paused": "perhaps", "colour": "red"}
        app.store.tune(TOPIC, "g", {**wrong, "in_flight": "40"})
        eventually(lambda: len(worker.told("tuning.ignored")) == 4)
        assert worker.await_told("consumer.tuned")["in_flight"] == 40
        app.store.tune(TOPIC, "g", dict.fromkeys(wrong) | {"threads": "1025"})
        assert "1024 or fewer" in worker.await_told("tuning.ignored", 5)["error"]
        [line] = app.parts.opened.worker._consumers  # type: ignore[union-attr]
        assert line.executor.size == 2
        assert app.admin.tuned("work", "g").in_flight == 40
        app.admin.tune("work", "g", threads=6)
        eventually(lambda: worker.at_once == 6)
        assert len(worker.told("tuning.ignored")) == 5
        worker.gate.set()
        eventually(lambda: len(worker.handled) == 50)


def test_a_group_that_is_dropped_and_comes_again_is_as_its_code_says(app: QFrame) -> None:
    app.admin.tune("work", "g", threads=5)
    app.admin.pause("work", "g")
    app.admin.drop_group("work", "g")
    app.store.subscribe(TOPIC, "g")
    publish(app, range(20))
    with Worker(app, threads=2) as worker:
        eventually(lambda: worker.at_once == 2)
        assert worker.told("consumer.tuned") == worker.told("consumer.paused") == []


def test_under_a_checker_a_pause_repeats_no_effect(
    app: QFrame, redis_server: RedisServer, tmp_path: Path
) -> None:
    checker = RedisChecker(redis_server.url)
    key = f"{tmp_path.name}-work"
    topic = Topic(key, slots=4)
    app.declare(topic)
    handled: list[int] = []
    told: list[str] = []
    app.events.listen(lambda name, facts: told.append(name))

    @app.consumer(topic, "g", threads=4, idempotent_checker=checker)
    def handle(message: Message) -> None:
        handled.append(message.body)

    with running(app):
        for start in range(0, 300, 100):
            app.publish_many(topic, range(start, start + 100))
            app.admin.pause(topic, "g")
            eventually(lambda count=start // 100 + 1: told.count("consumer.paused") == count)
            app.admin.resume(topic, "g")
            eventually(lambda count=start // 100 + 1: told.count("consumer.resumed") == count)
        eventually(lambda: len(handled) == 300)
        eventually(lambda: app.admin.lag(topic, "g") == 0)
    assert sorted(handled) == list(range(300))
    assert app.admin.dead(topic, "g") == []


def test_while_the_store_is_away_a_worker_goes_on_as_it_was_told_last(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with Proxy(redis_server.port) as proxy:
        near = QFrame(redis_server.url, namespace=tmp_path.name)
        far = QFrame(f"redis://127.0.0.1:{proxy.port}/0", namespace=tmp_path.name, grace=5)
        with near, far:
            near.declare(TOPIC)
            near.store.subscribe(TOPIC, "g")
            near.admin.tune("work", "g", threads=3)
            publish(near, range(30))
            with Worker(far, threads=1) as worker:
                eventually(lambda: worker.at_once == 3)
                proxy.refuse()
                proxy.reset_all()
                worker.await_told("store.unavailable")
                near.admin.tune("work", "g", threads=7)
                [line] = far.parts.opened.worker._consumers  # type: ignore[union-attr]
                assert line.executor.size == 3
                proxy.accept()
                eventually(lambda: worker.at_once == 7)
                worker.gate.set()
                eventually(lambda: set(worker.handled) == set(range(30)))


def test_where_zookeeper_shares_out_the_slots_the_store_says_how_the_group_is_tuned(
    app: QFrame, opened: Opened, zookeeper_url: str
) -> None:
    publish(app, range(30))
    with Worker(opened(coordinator=zookeeper_url), threads=1) as worker:
        eventually(lambda: worker.at_once == 1)
        app.admin.tune("work", "g", threads=5)
        eventually(lambda: worker.at_once == 5)
        app.admin.pause("work", "g")
        worker.await_told("consumer.paused")
        worker.gate.set()
        eventually(lambda: app.admin.topic("work").groups[0].doing == 0)
        app.admin.resume("work", "g")
        eventually(lambda: len(worker.handled) == 30)
    assert worker.attempts == {1}


def test_a_row_that_is_written_as_the_page_says_counts(postgres: PostgresServer) -> None:
    page = Path(__file__).parents[3] / "docs" / "tuning.md"
    [statement] = re.findall(
        r"^```sql\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    url = postgres.new_database()
    with QFrame(url) as app:
        app.declare(Topic("orders"))
        app.store.subscribe(Topic("orders"), "billing")
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()
        assert app.admin.tuned("orders", "billing") == Tuning(threads=16)


def test_handlers_of_batches_are_tuned_and_paused_too(app: QFrame) -> None:
    at_once = 0
    guard, gate = threading.Lock(), threading.Event()
    handled: list[int] = []
    told: list[str] = []
    app.events.listen(lambda name, facts: told.append(name))

    @app.consumer(TOPIC, "g", threads=1, batch=Batch(5, within=0.01))
    def handle(messages: list[Message]) -> None:
        nonlocal at_once
        with guard:
            at_once += 1
        gate.wait(60)
        with guard:
            at_once -= 1
            handled.extend(message.body for message in messages)

    publish(app, range(100))
    with running(app):
        eventually(lambda: at_once == 1)
        app.admin.tune("work", "g", threads=4)
        eventually(lambda: at_once == 4)
        app.admin.pause("work", "g")
        eventually(lambda: "consumer.paused" in told)
        # What no handler has in hand is given back: after that was told, and before the gate opens.
        eventually(lambda: 0 < app.admin.topic("work").groups[0].doing <= 4 * 5)
        app.admin.tune("work", "g", threads=2)
        gate.set()
        eventually(lambda: app.admin.topic("work").groups[0].doing == 0)
        before = len(handled)
        assert 0 < before < 100
        eventually(lambda: app.parts.opened.worker._consumers[0].executor.size == 2)  # type: ignore[union-attr]
        assert len(handled) == before
        gate.clear()
        app.admin.resume("work", "g")
        eventually(lambda: at_once == 2)
        gate.set()
        eventually(lambda: app.admin.lag("work", "g") == 0)
    assert sorted(handled) == list(range(100))
