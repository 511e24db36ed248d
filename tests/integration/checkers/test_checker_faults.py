"""A checker's server that is killed, and comes back, costs no message, no attempt and no effect."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from apps import Shop
from checking import DATABASES, database_url, engine_of
from eventually import eventually
from paying import GROUP, META, PAID, TOPIC
from redis.crc import key_slot
from servers import MariaDbServer, PostgresServer, RedisCluster3, RedisServer, SentinelSet
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from qframe import (
    Backoff,
    BadUrl,
    Batch,
    DatabaseChecker,
    Message,
    QFrame,
    RedisChecker,
    StoreFull,
    TransactionalChecker,
)
from qframe.idempotency.base import Claim, Scope, State
from qframe.idempotency.redis import SHARDS, call

SERVERS = {"postgres": PostgresServer, "mariadb": MariaDbServer}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Callable[..., Work]]:
    made: list[Work] = []

    def make(handler: Any, checker: Any, **options: Any) -> Work:
        made.append(Work(f"sqlite:///{tmp_path / 'queue.db'}", handler, checker, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Work(Shop):
    """A worker in a thread, and what it told."""

    def __init__(self, store: str, handler: Any, checker: Any, **options: Any) -> None:
        super().__init__(store, namespace=f"n{uuid.uuid4().hex}", grace=options.pop("grace", 5))
        options = {"threads": 4, "max_attempts": 2, **options}
        if options["max_attempts"] > 1:
            options["backoff"] = Backoff(first=0.01, cap=0.1)
        self.app.consumer(TOPIC, GROUP, idempotent_checker=checker, **options)(handler)

    def start(self) -> None:
        super().start()
        eventually(lambda: self.events["slot.taken"])

    def await_the_end(self) -> None:
        eventually(lambda: self.app.admin.lag(TOPIC, GROUP) == 0)

    def close(self) -> None:
        self.stop()
        self.app.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


@pytest.mark.promise(2)
@pytest.mark.parametrize("database", SERVERS)
def test_a_database_that_is_killed_in_the_middle_sees_each_effect_once(
    tmp_path: Path, work: Callable[..., Work], database: str
) -> None:
    with SERVERS[database](tmp_path / database) as server, engine_of(server.new_database()) as shop:
        META.create_all(shop)

        def pay(message: Message, session: Session) -> None:
            session.execute(insert(PAID).values(payment=message.id))

        working = work(pay, TransactionalChecker(shop))
        working.start()
        for round_ in range(3):
            working.app.publish_many(TOPIC, range(50))
            eventually(lambda n=round_: working.events["effect.committed"] > 100 * n + 10)
            server.kill()
            working.app.publish_many(TOPIC, range(50))  # should all before be done already
            eventually(lambda: working.events["checker.unavailable"])
            server.restart()
            eventually(lambda: working.app.admin.lag(TOPIC, GROUP) == 0)
            working.events["checker.unavailable"] = 0
        with shop.connect() as connection:
            counted = select(func.count()).select_from(PAID).group_by(PAID.c.payment)
            assert Counter(connection.scalars(counted)) == {1: 300}
    assert not working.events["delivery.dead"]
    assert not working.events["delivery.retried"]


@pytest.mark.promise(2)
@pytest.mark.parametrize("by_ack", [False, True])
def test_what_was_handled_while_redis_went_away_is_marked_and_not_handled_again(
    tmp_path: Path, work: Callable[..., Work], gate: threading.Event, by_ack: bool
) -> None:
    with RedisServer(tmp_path / "redis", aof=True) as server:
        checker = RedisChecker(server.url)
        seen = []

        def handle(message: Message) -> None:
            seen.append(message.body)
            assert gate.wait(60)
            if by_ack:
                message.auto_ack = False
                threading.Thread(target=message.ack).start()

        working = work(handle, checker, lease="60s")
        working.start()
        working.app.publish(TOPIC, 1)
        eventually(lambda: seen)
        server.kill()
        gate.set()
        eventually(lambda: working.events["checker.unavailable"])
        assert not working.events["delivery.settled"]
        server.restart()
        working.await_the_end()
        checker.close()
    assert seen == [1]
    assert working.events["effect.committed"] == 1


def test_a_handler_that_is_called_again_has_its_time_again(
    tmp_path: Path, work: Callable[..., Work]
) -> None:
    """Its first call took too long, but has acked; its transaction was lost with the server."""
    database = "postgres"
    with SERVERS[database](tmp_path / database) as server, engine_of(server.new_database()) as shop:
        META.create_all(shop)
        cancelled: list[bool] = []

        def pay(message: Message, session: Session) -> None:
            cancelled.append(message.cancelled)
            session.execute(insert(PAID).values(payment=message.id))
            if len(cancelled) == 1:
                eventually(lambda: message.cancelled)
                server.kill()
                message.ack()

        working = work(pay, TransactionalChecker(shop), timeout=2)
        working.start()
        working.app.publish(TOPIC, 1)
        eventually(lambda: working.events["checker.unavailable"])
        server.restart()
        working.await_the_end()
    assert cancelled == [False, False]
    assert working.events["delivery.overdue"] == 1
    assert not working.events["delivery.retried"]


@pytest.mark.gate
@pytest.mark.promise(6)
def test_messages_wait_for_a_checker_that_cannot_be_asked_and_lose_no_attempt(
    tmp_path: Path, work: Callable[..., Work]
) -> None:
    with RedisServer(tmp_path / "redis") as server:
        attempts = []

        def handle(message: Message) -> None:
            attempts.append(message.attempt)

        checker = RedisChecker(server.url)
        working = work(handle, checker)
        working.start()
        server.kill()
        working.app.publish_many(TOPIC, range(10))
        eventually(lambda: working.events["checker.unavailable"] >= 5)
        assert not attempts
        server.restart()
        working.await_the_end()
        checker.close()
    assert attempts == [1] * 10


@pytest.mark.parametrize("batch", [None, Batch(10, within=0.05)])
def test_a_dead_node_of_a_cluster_holds_up_only_what_is_marked_on_it(
    tmp_path: Path, work: Callable[..., Work], batch: Batch | None
) -> None:
    with RedisCluster3(tmp_path / "cluster", aof=True) as cluster:
        for server in cluster.servers:
            server.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
        checker = RedisChecker(cluster.url, key=lambda message: message.body)
        handled: Counter[str] = Counter()
        attempts: set[int] = set()

        def one(message: Message) -> None:
            attempts.add(message.attempt)
            handled[message.body] += 1

        def many(messages: list[Message]) -> None:
            for message in messages:
                one(message)

        working = work(many if batch else one, checker, batch=batch)
        working.start()
        scope = Scope(working.app.settings.namespace, TOPIC.name, GROUP)
        bodies = [f"b{number}" for number in range(60)]

        def node_of(body: str) -> int:
            shard = crc32(f"key:{body}".encode()) % SHARDS
            return cluster.node_of(key_slot(call("claim", scope, shard, (), []).key))

        there = {body for body in bodies if node_of(body) == 0}
        cluster.servers[0].kill()
        working.app.publish_many(TOPIC, bodies)
        eventually(lambda: set(handled) == set(bodies) - there)
        eventually(lambda: working.events["checker.unavailable"])
        cluster.servers[0].restart()
        working.await_the_end()
        checker.close()
    assert handled == Counter(bodies)
    assert attempts == {1}


@pytest.mark.promise(2)
def test_a_failover_of_the_marks_server_costs_no_message_and_no_attempt(
    tmp_path: Path, work: Callable[..., Work]
) -> None:
    with SentinelSet(tmp_path / "servers") as servers:
        attempts = []

        def handle(message: Message) -> None:
            attempts.append(message.attempt)

        checker = RedisChecker(servers.url)
        working = work(handle, checker)
        working.start()
        working.app.publish_many(TOPIC, range(10))
        working.await_the_end()
        servers.kill_primary()
        working.app.publish_many(TOPIC, range(10))
        working.await_the_end()
        checker.close()
    assert attempts == [1] * 20


@pytest.mark.promise(2)
@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("database", SERVERS)
def test_a_deadlock_is_tried_again_in_place_and_commits_nothing_where_it_is_swallowed(
    request: pytest.FixtureRequest, tmp_path: Path, work: Callable[..., Work], database: str,
    swallows: bool,
) -> None:  # fmt: skip
    with engine_of(database_url(request, database, tmp_path)) as shop:
        META.create_all(shop)
        with shop.begin() as connection:
            connection.execute(insert(PAID), [{"payment": "a"}, {"payment": "b"}])
        both = threading.Barrier(2)
        attempts = []

        def handle(message: Message, session: Session) -> None:
            attempts.append(message.attempt)
            is_first = len(attempts) <= 2
            first, second = (1, 2) if message.body == "ab" else (2, 1)
            change = PAID.update().values(payment="x")
            session.execute(change.where(PAID.c.number == first))
            if is_first:
                both.wait(60)
            with suppress(*[OperationalError] * swallows):
                session.execute(change.where(PAID.c.number == second))
            session.connection().execute(insert(PAID).values(payment=message.body))

        working = work(handle, TransactionalChecker(shop), max_attempts=4)
        working.start()
        working.app.publish_many(TOPIC, ["ab", "ba"])
        working.await_the_end()
        with shop.connect() as connection:
            paid = Counter(connection.scalars(select(PAID.c.payment)))
    assert paid == {"x": 2, "ab": 1, "ba": 1}
    assert len(attempts) >= 3  # who is tried again may meet the other a second time
    if swallows:
        return
    assert set(attempts) == {1}
    assert working.events["effect.committed"] == 2
    assert not working.events["delivery.retried"]
    assert working.events["effect.conflict"] == len(attempts) - 2
    assert not working.events["checker.unavailable"]  # it runs, and that is what a log would doubt


def test_a_worker_stops_though_the_database_of_a_message_taken_over_answers_no_more(
    tmp_path: Path, work: Callable[..., Work]
) -> None:
    taken: list[Message] = []

    def take_over(message: Message, session: Session) -> None:
        session.connection()
        message.auto_ack = False
        taken.append(message)

    with PostgresServer(tmp_path / "postgres") as server, engine_of(server.new_database()) as shop:
        working = work(take_over, TransactionalChecker(shop), grace=0)
        working.start()
        working.app.publish(TOPIC, 1)
        eventually(lambda: taken)
        eventually(lambda: working.app.parts.opened.worker._consumers[0]._acks)
        server.freeze()
        try:
            working.stop()
            assert taken[0].cancelled
        finally:
            server.thaw()
        eventually(lambda: shop.pool.checkedout() == 0)  # type: ignore[attr-defined] # of QueuePool


def test_a_handler_that_always_fails_for_a_lock_is_dead_in_the_end(
    tmp_path: Path, work: Callable[..., Work]
) -> None:
    with engine_of(f"sqlite:///{tmp_path / 'shop.db'}") as shop:
        tries = []

        def handle(message: Message, session: Session) -> None:
            tries.append(message.attempt)
            raise OperationalError("UPDATE", {}, Exception("database is locked"))

        working = work(handle, TransactionalChecker(shop), max_attempts=1)
        working.start()
        working.app.publish(TOPIC, 1)
        eventually(lambda: working.events["delivery.dead"])
    assert len(tries) == 17


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("kind", [DatabaseChecker, TransactionalChecker])
def test_what_has_expired_is_swept_in_steps_and_nothing_else(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, kind: Any
) -> None:
    with engine_of(database_url(request, database, tmp_path)) as shop:
        old, young = kind(shop, retention=0.001), kind(shop)
        old.open()
        for number in range(7):
            for checker in (old, young):
                scope = Scope("n", "t" if number % 2 else "u", "g")
                claim = Claim(f"{checker is old}:{number}")
                checker.claim_many(scope, [claim], 30_000)
                checker.finish_many(scope, [claim])
        swept: list[int] = []

        def sweep() -> bool:
            swept.append(young.sweep(3))
            return sum(swept) == 7

        eventually(sweep)
        assert max(swept) == 3
        assert young.sweep(100) == 0
        with shop.connect() as connection:
            left = connection.execute(text("SELECT count(*) FROM qframe_effects")).scalar_one()
        assert left == 7
        again = Claim("False:0")
        young.claim_many(Scope("n", "u", "g"), [again], 30_000)
        assert again.state is State.DONE


@pytest.mark.parametrize("database", DATABASES)
def test_workers_that_start_at_once_make_one_table(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    with engine_of(database_url(request, database, tmp_path)) as shop:
        both = threading.Barrier(4)
        failures: list[BaseException] = []

        def start() -> None:
            both.wait(60)
            try:
                TransactionalChecker(shop).open()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_would_evict_marks_is_refused(tmp_path: Path, policy: str) -> None:
    with RedisServer(tmp_path / "redis") as server:
        server.call("CONFIG", "SET", "maxmemory-policy", policy)
        checker = RedisChecker(server.url)
        with pytest.raises(BadUrl, match=rf"{policy}, which evicts marks; set maxmemory-policy"):
            checker.open()
        checker.close()


@pytest.mark.promise(1)
def test_a_full_redis_that_has_the_marks_too_is_drained(tmp_path: Path) -> None:
    """Claims were refused while it was full, and it stayed full since nothing was handled."""
    seen: Counter[int] = Counter()

    def handle(body: list[Any]) -> None:
        seen[body[0]] += 1

    with RedisServer(tmp_path / "redis") as server, QFrame(store=server.url) as app:
        app.consumer(TOPIC, GROUP, idempotent_checker=RedisChecker(server.url))(handle)
        app.declare(TOPIC)
        with server.client() as client:
            used = client.info("memory")["used_memory"]
            client.config_set("maxmemory", used + 2_000_000)
        published = 0
        with suppress(StoreFull):
            while True:
                app.publish(TOPIC, [published, "x" * 10_000], key=f"k{published}")
                published += 1
        with server.client() as client:
            client.config_set("maxmemory", used)  # it stays full while it is drained
        app.run(burst=True)
    assert seen == Counter(range(published))
