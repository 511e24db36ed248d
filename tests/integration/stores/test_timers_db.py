"""Timers in a database beside Redis: each fires in time, whatever becomes of Redis."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from eventually import eventually
from firing import GROUP, TIMERS, Fired
from nursery import Child, Nursery
from servers import PostgresServer, RedisServer

from qframe import BadOption, Message, QFrame, StoreUnavailable, Topic, TopicMismatch
from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.doctor.examine import examine
from qframe.options.settings import Settings
from qframe.stores.base import Store
from qframe.stores.doubling import LEASE_MS, Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.stores.pair import StorePair
from qframe.stores.redis.store import RedisStore
from qframe.stores.sql.store import SqlStore

EVENTS = Topic("events", "stream", slots=2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "server") as server:
        yield server


def test_redis_is_flushed_and_killed_and_so_are_workers_and_every_timer_fires_in_time(
    server: RedisServer, tmp_path: Path
) -> None:
    timers_db, file = f"sqlite:///{tmp_path / 'timers.db'}", tmp_path / "fired"
    fired = Fired(file)
    with (
        QFrame(server.url, timers_db=timers_db) as app,
        Nursery("firing", tmp_path / "log") as nursery,
    ):
        app.declare(TIMERS)
        app.store.subscribe(TIMERS, GROUP)

        def start_worker() -> None:
            workers.append(nursery.start(server.url, timers_db, str(file)))

        workers: list[Child] = []
        start_worker()
        start_worker()
        begins_ms = app.store.now_ms(TIMERS) + 1500
        for number in range(150):  # those that are changed below are not due before that
            due_ms = begins_ms + number * 20 + (10_000 if number >= 100 else 0)
            app.timers.schedule(TIMERS, due_ms, key=f"k{number}", at=due_ms / 1000)
        with server.client() as client:
            assert client.dbsize() == 1  # the signpost
            client.flushall()
        for number in range(100, 150):
            if number % 2:
                assert app.timers.cancel(TIMERS, f"k{number}") == "done"
            else:
                later_ms = begins_ms + 3200 + number
                assert app.timers.change(TIMERS, f"k{number}", later_ms) == "done"
                assert app.timers.move(TIMERS, f"k{number}", at=later_ms / 1000) == "done"
        # A worker that is still starting when Redis is killed would end.
        eventually(lambda: len(app.store.roster(TIMERS, GROUP).members) == 2)  # type: ignore[union-attr]
        eventually(lambda: len(fired.keys()) > 20)
        workers[0].kill()
        server.kill()
        more = min(len(fired.keys()) + 20, 125)  # a slow machine may have few left by now
        eventually(lambda: len(fired.keys()) >= more)  # without Redis
        server.restart()
        start_worker()
        expected = {f"k{number}" for number in range(150) if number < 100 or not number % 2}
        eventually(lambda: expected <= fired.keys().keys())
        eventually(lambda: sum(one.settled for one in app.store.stats(TIMERS, GROUP)) == 125)
        assert fired.keys().keys() == expected
        assert fired.early() == []
        attempts = {key: [each[3] for each in fired.lines() if each[0] == key] for key in expected}
        # One worker was killed: what it had not acknowledged came again, once.
        assert all(each in (["1"], ["1", "2"], ["2"]) for each in attempts.values())
        assert app.store.verify(TIMERS) == []

        def is_signed() -> bool:
            app.store.sweep(TIMERS)  # the first may find that its connection was cut
            with server.client() as client:
                return int(client.dbsize()) == 1

        eventually(is_signed)
    assert (tmp_path / "log").read_text(encoding="utf-8").count("Traceback") == 0


@pytest.mark.gate
def test_who_has_not_been_given_the_database_is_refused_and_told_why(
    server: RedisServer, tmp_path: Path
) -> None:
    timers_db = f"sqlite:///{tmp_path / 'timers.db'}"
    with QFrame(server.url, timers_db=timers_db) as app, QFrame(server.url) as other:
        app.publish(TIMERS, 1, delay=60)
        app.publish(EVENTS, 1)
        for call in (
            lambda: other.publish(TIMERS, 2), lambda: other.publish("timers", 2),
            lambda: other.timers.find("timers"), lambda: other.store.stats(TIMERS),
        ):  # fmt: skip
            with pytest.raises(BadOption, match=r"timers_db.*'timers' lie in a database"):
                call()
        assert [topic.name for topic in other.store.topics()] == ["events"]
        other.publish("events", 2)
        with pytest.raises(TopicMismatch, match="kind=delay"):
            other.declare(Topic("timers", "merge", slots=4))
        assert len(app.timers.find("timers").records) == 1


@pytest.mark.gate
def test_a_topic_that_redis_has_already_is_not_shadowed(
    server: RedisServer, tmp_path: Path
) -> None:
    timers_db = f"sqlite:///{tmp_path / 'timers.db'}"
    with QFrame(server.url) as before, QFrame(server.url, timers_db=timers_db) as app:
        before.publish(TIMERS, 1, delay=60)
        before.publish(EVENTS, 1)
        with pytest.raises(BadOption, match="its messages lie in Redis"):
            app.publish(TIMERS, 2, delay=60)
        with pytest.raises(TopicMismatch, match="kind=stream"):
            app.declare(Topic("events", "delay", slots=2))
        while not before.store.delete(TIMERS):
            pass
        app.publish(TIMERS, 2, delay=60)
        while not app.store.delete(TIMERS):
            pass
        with QFrame(server.url) as after:
            after.publish(TIMERS, 3, delay=60)


@pytest.mark.gate
@pytest.mark.promise(1)
def test_who_has_been_given_another_database_is_refused_and_told_why(
    server: RedisServer, tmp_path: Path
) -> None:
    """Their timers were stored in a database that no worker served."""
    url, other = (f"sqlite:///{tmp_path / name}" for name in ("timers.db", "other.db"))
    with QFrame(server.url, timers_db=url) as app, QFrame(server.url, timers_db=other) as stray:
        app.publish(TIMERS, 1, delay=60)
        for _ in range(2):
            with pytest.raises(BadOption, match="'timers' lie in another database, which had"):
                stray.publish(TIMERS, 2, delay=60)
        app.publish(Topic("more", "delay", slots=1), 1, delay=60)
        with server.client() as client:
            client.flushall()
        app.store.sweep(TIMERS)
        with pytest.raises(BadOption, match="lie in another database"):
            stray.publish(TIMERS, 2, delay=60)
        assert stray.store.part_of(TIMERS).topic("timers") is None  # type: ignore[attr-defined]
    shutil.copy(tmp_path / "timers.db", tmp_path / "restored.db")
    with QFrame(server.url, timers_db=f"sqlite:///{tmp_path / 'restored.db'}") as app:
        app.publish(TIMERS, 3, delay=60)
        assert len(app.timers.find("timers").records) == 2


def test_of_processes_that_set_up_signposts_at_once_with_one_database_all_are_served(
    server: RedisServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'timers.db'}"
    topics = [Topic(name, "delay", slots=1) for name in ("a", "b", "c")]
    for _ in range(4):
        with server.client() as client:
            client.flushall()
        apps = [QFrame(server.url, timers_db=url) for _ in range(4)]
        with ThreadPoolExecutor(len(apps)) as pool:
            list(pool.map(lambda app: [app.declare(topic) for topic in topics], apps))
        for app in apps:
            assert [topic.name for topic in app.store.topics()] == ["a", "b", "c"]
            app.close()


@pytest.mark.gate
@pytest.mark.promise(7)
def test_a_topic_that_a_stray_process_has_declared_in_redis_keeps_no_worker_from_its_timers(
    server: RedisServer, tmp_path: Path
) -> None:
    """After a FLUSHALL one process without the database kept all workers from starting."""
    url = f"sqlite:///{tmp_path / 'timers.db'}"
    with QFrame(server.url, timers_db=url) as app:
        app.publish(TIMERS, 1)
    with server.client() as client:
        client.flushall()
    with QFrame(server.url) as stray:
        stray.publish(TIMERS, 2)
    app, seen = QFrame(server.url, timers_db=url), list[object]()

    @app.consumer(TIMERS, group=GROUP)
    def handle(message: Message) -> None:
        seen.append(message.body)

    app.run(burst=True)
    assert seen == [1]
    app.close()
    settings = Settings.load(store=server.url, timers_db=url)
    [found] = [each for each in examine(settings, SYSTEM_CLOCK).findings if each.level == "error"]
    assert found.check == "timers_db"
    assert "topic timers lies in Redis too, with 1 message" in found.what


def test_while_the_database_is_away_timers_wait_and_redis_goes_on(
    server: RedisServer, tmp_path: Path
) -> None:
    with PostgresServer(tmp_path / "postgres") as postgres:
        app = QFrame(server.url, timers_db=postgres.url, grace=2)
        seen: list[object] = []

        @app.consumer(TIMERS, group=GROUP)
        @app.consumer(EVENTS, group=GROUP)
        def handle(message: Message) -> None:
            seen.append(message.body)

        failed: list[BaseException] = []

        def run() -> None:
            try:
                app.run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        with app:
            app.publish(TIMERS, "before", delay=2)
            thread.start()
            app.publish(EVENTS, "first")
            eventually(lambda: failed or "first" in seen)
            eventually(lambda: failed or app.health().state == "serving")
            postgres.kill()
            with pytest.raises(StoreUnavailable, match=str(postgres.port)):
                app.publish(TIMERS, "during", delay=1)
            app.publish(EVENTS, "second")
            eventually(lambda: failed or "second" in seen)
            assert "before" not in seen
            postgres.restart()
            eventually(lambda: failed or "before" in seen)
            app.publish(TIMERS, "after", delay=0.01)
            eventually(lambda: failed or "after" in seen)
            app.stop()
            thread.join(60)
            assert failed == []
            assert "during" not in seen
            assert app.store.verify(TIMERS) == []


@pytest.mark.gate
def test_whether_the_growth_of_timers_is_taken_goes_by_the_clock_of_the_database(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    clock_of_redis, clock = VirtualClock(), VirtualClock()
    store = StorePair(
        RedisStore(redis_server.url, namespace=tmp_path.name, clock=clock_of_redis),
        SqlStore(f"sqlite:///{tmp_path / 'timers.db'}", clock=clock),
    )
    doubling = Doubling(
        cast("Store", store), TIMERS.name, owned=lambda *_: (), pause=lambda _: None
    )
    store.declare(TIMERS)
    doubling.begin(2 * TIMERS.slots)
    clock_of_redis.advance(LEASE_MS)
    with pytest.raises(GrowthTaken):
        doubling.go_on()
    clock.advance(LEASE_MS)
    assert doubling.go_on().growth.until_ms == clock.now_ms() + LEASE_MS
    store.close()
