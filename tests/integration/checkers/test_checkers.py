"""Consumers with an idempotent checker: one effect for each message, however often it comes."""

from __future__ import annotations

import gc
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from apps import running, told
from checking import DATABASES, MARKING, TRANSACTIONAL, checker_of, database_url, engine_of
from eventually import eventually
from servers import RedisServer
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from qframe import (
    AlreadySettled,
    Backoff,
    BadHandler,
    BadOption,
    Batch,
    CommitRefused,
    DatabaseChecker,
    Message,
    NeedRetry,
    QFrame,
    RedisChecker,
    Topic,
    TransactionalChecker,
)
from qframe.idempotency.base import Claim, Scope
from qframe.runtime.executors.thread_executor import LONG_RUN_S

TOPIC = Topic("payments", slots=2)
QUICK = Backoff(first=0.01, cap=0.05)
ON_REDIS = pytest.param("redis", marks=pytest.mark.gate)
META = MetaData()
# No unique constraint: what is done twice is seen twice.
EFFECTS = Table("paid", META, Column("number", Integer, primary_key=True),
                Column("payment", String(64)))  # fmt: skip


class Shop:
    """A worker whose handler pays, in a thread, and what it has paid."""

    def __init__(self, folder: Path, engine: Engine, grace: float = 5) -> None:
        self.engine = engine
        META.create_all(engine)
        # Who shares a Redis with other tests has effects of its own.
        self.app = QFrame(
            store=f"sqlite:///{folder / 'queue.db'}", namespace=f"n{uuid.uuid4().hex}", grace=grace
        )
        self.errors: list[BaseException] = []
        self.events = told(self.app, self.errors)

    def consume(self, handler: Any, checker: Any, **options: Any) -> None:
        options = {"threads": 4, "backoff": QUICK, "max_attempts": 4, **options}
        self.app.consumer(TOPIC, "g", idempotent_checker=checker, **options)(handler)

    def publish(self, *payments: Any, **options: Any) -> None:
        for payment in payments:
            self.app.publish(TOPIC, {"payment": payment}, **options)

    def run(self) -> None:
        self.app.run(burst=True)

    def paid(self) -> Counter[str]:
        counted = select(EFFECTS.c.payment, func.count()).group_by(EFFECTS.c.payment)
        with self.engine.connect() as connection:
            return Counter({row[0]: row[1] for row in connection.execute(counted)})

    def marks(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM qframe_effects")).scalar_one())


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.gate), *DATABASES[1:]])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with engine_of(database_url(request, request.param, tmp_path)) as engine:
        made = Shop(tmp_path, engine)
        with made.app:
            yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Shop]:
    with engine_of(f"sqlite:///{tmp_path / 'shop.db'}") as engine:
        made = Shop(tmp_path, engine)
        with made.app:
            yield made


class MySession(Session):
    """What a user's sessionmaker makes."""


def pay(message: Message, session: Session) -> None:
    session.execute(insert(EFFECTS).values(payment=str(message.body["payment"])))


@pytest.mark.promise(2)
@pytest.mark.parametrize("name", [ON_REDIS, *MARKING[1:]])
def test_a_message_that_is_published_again_is_acknowledged_and_not_handled_again(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.body["payment"])

    with checker_of(request, name, tmp_path, key="payment") as checker:
        small.consume(handle, checker)
        small.publish(*range(20), *range(20), 5)
        small.run()
    assert sorted(seen) == list(range(20))
    assert small.events["delivery.duplicate"] == 21


@pytest.mark.parametrize("name", [*MARKING, *TRANSACTIONAL])
def test_keys_that_differ_in_spaces_or_case_are_different_effects(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    payments = ["ann", "ann ", "ann  ", " ann", "Ann", "änn"]
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.body["payment"])

    def change(message: Message, _: Session) -> None:
        handle(message)

    with checker_of(request, name, tmp_path, key=lambda it: it.body["payment"]) as checker:
        small.consume(change if name in TRANSACTIONAL else handle, checker)
        small.publish(*payments, *payments)
        small.run()
    assert sorted(seen) == sorted(payments)
    assert not small.errors


@pytest.mark.promise(2)
def test_a_change_and_its_mark_are_committed_together(shop: Shop) -> None:
    shop.consume(pay, TransactionalChecker(shop.engine, key="payment"))
    shop.publish(*range(20), *range(20))
    shop.run()
    assert shop.paid() == Counter({str(number): 1 for number in range(20)})
    assert shop.marks() == 20
    assert shop.events["delivery.duplicate"] == 20


def test_a_session_is_made_by_the_users_factory_and_a_connection_takes_its_place(
    small: Shop,
) -> None:
    kinds = []

    def handle(message: Message, session: MySession) -> None:
        kinds.append(type(session))
        pay(message, session)

    def connected(connection: Connection, message: Message) -> None:
        connection.execute(insert(EFFECTS).values(payment=str(message.body["payment"])))

    checker = TransactionalChecker(small.engine, session=sessionmaker(class_=MySession))
    small.consume(handle, checker)
    small.app.consumer(TOPIC, "another", idempotent_checker=checker)(connected)
    small.publish(1, 2)
    small.run()
    assert [issubclass(kind, MySession) for kind in kinds] == [True] * 2
    assert small.paid() == Counter({"1": 2, "2": 2})  # groups have effects of their own


@pytest.mark.promise(2)
def test_a_handler_that_fails_leaves_neither_change_nor_mark(shop: Shop) -> None:
    def handle(message: Message, session: Session) -> None:
        pay(message, session)
        session.flush()
        if message.attempt < 3:
            raise ValueError

    shop.consume(handle, TransactionalChecker(shop.engine))
    shop.publish(1, 2)
    shop.run()
    assert shop.paid() == Counter({"1": 1, "2": 1})
    assert shop.events["delivery.retried"] == 4


@pytest.mark.promise(2)
@pytest.mark.parametrize("name", MARKING)
def test_a_handler_that_fails_leaves_no_mark_and_a_retry_in_place_keeps_its_claim(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    attempts = []

    def handle(message: Message) -> None:
        attempts.append((message.attempt, message.local_retries))
        if message.attempt < 3:
            raise ValueError
        if message.local_retries < 2:
            raise NeedRetry

    with checker_of(request, name, tmp_path) as checker:
        small.consume(handle, checker)
        small.publish(1)
        small.run()
    assert attempts == [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2)]
    assert small.events["delivery.claimed"] == 3
    assert not small.events["delivery.awaited"]


def test_a_message_that_is_dead_leaves_no_mark_and_is_handled_when_it_is_retried(
    small: Shop,
) -> None:
    good = threading.Event()

    def handle(message: Message, session: Session) -> None:
        pay(message, session)
        if not good.is_set():
            raise ValueError

    small.consume(handle, TransactionalChecker(small.engine))
    small.publish(1)
    small.run()
    assert small.events["delivery.dead"] == 1
    assert small.paid() == Counter()
    good.set()
    small.app.admin.dead_retry(TOPIC, "g", "all")
    small.run()
    assert small.paid() == Counter({"1": 1})


@pytest.mark.promise(2)
@pytest.mark.parametrize("attempts", [1, 2])
def test_what_is_acknowledged_from_another_thread_is_committed_there(
    shop: Shop, attempts: int
) -> None:
    threads: list[threading.Thread] = []

    def handle(message: Message, session: Session) -> None:
        message.auto_ack = False
        pay(message, session)
        error = ValueError("not yet") if message.attempt < attempts else None
        thread = threading.Thread(target=message.ack, kwargs={"error": error})
        threads.append(thread)
        thread.start()

    shop.consume(handle, TransactionalChecker(shop.engine))
    shop.publish(*range(5))
    shop.run()
    for thread in threads:
        thread.join()
    assert shop.paid() == Counter({str(number): 1 for number in range(5)})
    assert shop.events["effect.committed"] == 5
    assert len(threads) == 5 * attempts


@pytest.mark.parametrize("name", MARKING + TRANSACTIONAL)
def test_an_ack_inside_the_handler_ends_the_effect_there(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    def transactional(message: Message, session: Session) -> None:
        marking(message)

    def marking(message: Message) -> None:
        message.ack()
        states.append(small.events["effect.committed"])

    states: list[int] = []
    with checker_of(request, name, tmp_path) as checker:
        small.consume(transactional if checker.is_transactional else marking, checker)
        small.publish(1)
        small.run()
    assert states == [1]


@pytest.mark.promise(2)
def test_a_message_that_is_taken_over_and_forgotten_is_rolled_back_and_handed_back(
    shop: Shop,
) -> None:
    def handle(message: Message, session: Session) -> None:
        message.auto_ack = message.attempt > 1
        pay(message, session)
        session.flush()

    shop.consume(handle, TransactionalChecker(shop.engine), lease="60s")
    shop.publish(*range(3))
    with running(shop.app):
        eventually(lambda: gc.collect() >= 0 and sum(shop.paid().values()) == 3)
        eventually(lambda: shop.app.admin.lag(TOPIC, "g") == 0)
    assert shop.paid() == Counter({str(number): 1 for number in range(3)})
    assert shop.events["delivery.leaked"] == 3


HALF = insert(EFFECTS).values(payment="half")
ROLLBACK, BEGIN = text("ROLLBACK"), text("BEGIN")


def swallows(session: Session) -> None:
    with suppress(CommitRefused):
        session.commit()


ENDS: dict[str, Callable[[Session], object]] = {
    "commits": Session.commit,
    "rolls back": Session.rollback,
    "closes": Session.close,
    "swallows": swallows,
    "rolls back and goes on": lambda it: (it.rollback(), it.execute(HALF)),
    "swallows and goes on": lambda it: (swallows(it), it.connection().commit()),
    "commits the connection": lambda it: it.connection().commit(),
    "SQL": lambda it: (it.execute(ROLLBACK), it.execute(HALF)),
    "SQL begins": lambda it: (it.execute(ROLLBACK), it.execute(BEGIN), it.execute(HALF)),
    "the driver": lambda it: it.connection().connection.rollback(),
    "the driver goes on": lambda it: (it.connection().connection.rollback(), it.execute(HALF)),
}


@pytest.mark.promise(2)
@pytest.mark.parametrize("end", ENDS)
def test_a_handler_that_ends_its_transaction_is_refused_and_nothing_is_committed(
    shop: Shop, end: str
) -> None:
    def handle(message: Message, session: Session) -> None:
        pay(message, session)
        session.flush()
        ENDS[end](session)

    shop.consume(handle, TransactionalChecker(shop.engine), max_attempts=2)
    shop.publish(1)
    shop.run()
    assert (shop.paid(), shop.marks(), shop.events["delivery.dead"]) == ({}, 0, 1)
    refusals = (CommitRefused, InvalidRequestError)  # or SQLAlchemy's, where one was swallowed
    assert all(isinstance(error, refusals) for error in shop.errors), shop.errors


@pytest.mark.promise(2)
def test_a_batch_that_ends_its_transaction_in_sql_is_refused_whole(shop: Shop) -> None:
    def handle(messages: list[Message], session: Session) -> None:
        for message in messages:
            pay(message, session)
        session.flush()
        session.execute(ROLLBACK)

    checker = TransactionalChecker(shop.engine)
    shop.consume(handle, checker, max_attempts=2, batch=Batch(3, within="5ms"))
    shop.publish(*range(3))
    shop.run()
    assert (shop.paid(), shop.marks(), shop.events["delivery.dead"]) == ({}, 0, 3)


def test_a_part_of_a_transaction_can_be_rolled_back(shop: Shop) -> None:
    def handle(message: Message, session: Session) -> None:
        pay(message, session)
        with session.begin_nested() as part:
            session.execute(insert(EFFECTS).values(payment="half"))
            part.rollback()

    shop.consume(handle, TransactionalChecker(shop.engine))
    shop.publish(1)
    shop.run()
    assert shop.paid() == Counter({"1": 1})


@pytest.mark.promise(2)
@pytest.mark.parametrize("name", [ON_REDIS, *MARKING[1:], *TRANSACTIONAL])
def test_a_repeat_waits_for_the_first_and_is_acknowledged_only_then(
    request: pytest.FixtureRequest, tmp_path: Path, small: Shop, name: str
) -> None:
    """It meets the running one more often than it has attempts, and is not buried for that."""
    gate = threading.Event()
    seen = []

    def marking(message: Message) -> None:
        seen.append(message.id)
        assert gate.wait(60)

    def transactional(message: Message, session: Session) -> None:
        marking(message)

    with checker_of(request, name, tmp_path, key="payment") as checker:
        handle = transactional if checker.is_transactional else marking
        small.consume(handle, checker, max_attempts=2)
        small.publish(1)
        small.publish(1)
        with running(small.app):
            eventually(lambda: small.events["delivery.awaited"] >= 5)
            assert not small.events["delivery.settled"]
            gate.set()
            eventually(lambda: small.app.admin.lag(TOPIC, "g") == 0)
    assert len(seen) == 1
    assert small.events["delivery.duplicate"] == 1
    assert not small.events["delivery.dead"]


def test_a_checker_is_named_before_it_is_registered_and_what_has_no_key_is_dead(
    small: Shop,
) -> None:
    for name, options, words in (
        ("shop", {}, r"no checker of this name.*app\.checker\('shop'"),
        ("bare", {"create_tables": False}, "there is no table qframe_effects"),
    ):
        with QFrame(small.app.settings.store, namespace=name) as app:
            app.consumer(TOPIC, "g", idempotent_checker=name)(pay)
            if options:
                app.checker(name, TransactionalChecker(small.engine, **options))
            with pytest.raises(BadOption, match=words):
                app.run(burst=True)
    small.consume(pay, "the-shop")
    small.app.checker("the-shop", TransactionalChecker(small.engine, key="payment"))
    small.publish(1, 2)
    small.app.publish(TOPIC, {})
    small.run()
    assert small.paid() == Counter({"1": 1, "2": 1})
    assert small.events["delivery.dead"] == 1


def plain(message: Message) -> None: ...


def test_a_session_needs_a_checker_that_gives_one(small: Shop) -> None:
    transactional = TransactionalChecker(small.engine)
    for handler, checker, words in (
        (pay, None, "no TransactionalChecker; add idempotent_checker="),
        (pay, DatabaseChecker(small.engine), "no TransactionalChecker; add idempotent_checker="),
        (plain, transactional, "does not ask for its TransactionalChecker's"),
    ):
        with pytest.raises(BadHandler, match=words):
            small.consume(handler, checker)
    small.consume(plain, "named")
    small.app.checker("named", transactional)
    with pytest.raises(BadHandler, match="does not ask for its TransactionalChecker's"):
        small.run()


@pytest.mark.parametrize("kind", [RedisChecker, DatabaseChecker, TransactionalChecker])
def test_who_forgets_before_the_last_retry_is_refused_at_start(
    request: pytest.FixtureRequest, small: Shop, kind: Any
) -> None:
    at = request.getfixturevalue("redis_server").url if kind is RedisChecker else small.engine
    checker = kind(at, **{"ttl" if kind is RedisChecker else "retention": "1m"})
    handle = pay if checker.is_transactional else plain
    small.consume(handle, checker, backoff=Backoff("1m", cap="1h"), max_attempts=3, lease=10)
    with pytest.raises(BadOption, match=r"a message 210s after .*=210"):
        small.run()
    checker.close()


@pytest.mark.parametrize("database", DATABASES)
def test_an_engine_that_commits_each_statement_is_refused_at_start(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, small: Shop
) -> None:
    url = database_url(request, database, tmp_path)
    with engine_of(url, isolation_level="AUTOCOMMIT") as engine:
        small.consume(pay, TransactionalChecker(engine))
        with pytest.raises(BadOption, match="its rollback undoes nothing"):
            small.run()


def test_a_checker_that_cannot_work_is_not_made() -> None:
    file, memory = create_engine("sqlite:///x.db"), create_engine("sqlite://")
    shared = scoped_session(sessionmaker())
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: DatabaseChecker("sqlite:///x.db"), "not an Engine"),  # type: ignore[arg-type]
        (lambda: DatabaseChecker(memory), "in memory is lost"),
        (lambda: TransactionalChecker(memory), "in memory is lost"),
        (lambda: DatabaseChecker(file, retention=0), "retention"),
        (lambda: DatabaseChecker(file, retention="x"), "retention"),
        (lambda: DatabaseChecker(file, prefix="Drop "), "prefix"),
        (lambda: DatabaseChecker(file, key=5), "key 5"),  # type: ignore[arg-type]
        (lambda: TransactionalChecker(file, key=()), "key"),
        (lambda: TransactionalChecker(file, session=5), "session"),  # type: ignore[arg-type]
        (lambda: TransactionalChecker(file, session=shared), "use a sessionmaker"),
        (lambda: RedisChecker("redis://localhost", ttl=0), "ttl"),
        (lambda: RedisChecker("redis://localhost", key=["a", ""]), "key"),
    ]
    for make, words in wrong:
        with pytest.raises(BadOption, match=words):
            make()


def test_what_is_taken_over_and_not_ended_in_time_is_rolled_back_and_given_back_uncounted(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    taken: list[Message] = []

    def handle(message: Message, session: Session) -> None:
        message.auto_ack = bool(taken)
        taken.append(message)
        pay(message, session)
        session.flush()

    with engine_of(database_url(request, "postgres", tmp_path)) as engine:
        shop = Shop(tmp_path, engine, grace=0)
        shop.consume(handle, TransactionalChecker(engine))
        shop.publish(1)
        with shop.app:
            with running(shop.app):
                eventually(lambda: taken)
                eventually(lambda: shop.app.parts.opened.worker._consumers[0]._acks)
            assert taken[0].cancelled
            assert shop.paid() == Counter()
            with pytest.raises(AlreadySettled):
                taken[0].ack()
            shop.run()
        assert [message.attempt for message in taken] == [1, 1]
        assert shop.paid() == Counter({"1": 1})


def test_a_run_whose_claims_are_asked_for_at_the_end_of_the_grace_is_given_back_uncounted(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    gate, asking, handled = threading.Event(), threading.Event(), []
    gate.set()

    def key(message: Message) -> str:
        if not gate.is_set():
            asking.set()
            gate.wait(60)
        return message.id

    def handle(message: Message) -> None:
        handled.append((message.body, message.attempt))

    with engine_of(f"sqlite:///{tmp_path / 'shop.db'}") as engine:
        shop = Shop(tmp_path, engine, grace=0.1)
        with shop.app:
            shop.consume(handle, RedisChecker(redis_server.url, key=key), threads=1)
            # Runs are long once the handler is known to be quick.
            shop.app.publish_many(TOPIC, range(300))
            with running(shop.app):
                eventually(lambda: len(handled) == 300)
                gate.clear()
                shop.app.publish_many(TOPIC, range(300, 340))
                asking.wait(60)
            assert sum(each.doing for each in shop.app.store.stats(TOPIC, "g")) == 0
            gate.set()
            shop.run()
            assert sorted(handled) == [(number, 1) for number in range(340)]


def test_claims_of_quick_handlers_are_asked_for_by_runs_however_slow_their_server_is(
    small: Shop, redis_server: RedisServer
) -> None:
    calls: list[int] = []

    class SlowChecker(RedisChecker):
        def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
            calls.append(len(claims))
            time.sleep(2 * LONG_RUN_S)
            super().claim_many(scope, claims, lease_ms)

        def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
            time.sleep(2 * LONG_RUN_S)
            return super().finish_many(scope, claims)

    handled: list[object] = []

    def handle(message: Message) -> None:
        handled.append(message.body)

    small.consume(handle, SlowChecker(redis_server.url), threads=1)
    small.app.publish_many(TOPIC, range(200))
    small.run()
    assert sorted(handled) == list(range(200))  # type: ignore[type-var]
    assert sum(calls) == 200
    assert len(calls) < 100


@pytest.mark.promise(2)
def test_an_error_of_the_database_that_is_swallowed_does_not_lose_the_effect(shop: Shop) -> None:
    """PostgreSQL would answer COMMIT by rolling back, and the message would be acknowledged."""

    def handle(message: Message, connection: Connection) -> None:
        connection.execute(insert(EFFECTS).values(number=message.body["payment"], payment="1"))
        if message.attempt == 1:
            with suppress(DBAPIError):
                connection.execute(text("SELECT nothing FROM nowhere"))

    shop.consume(handle, TransactionalChecker(shop.engine))
    shop.publish(1)
    shop.run()
    assert shop.paid() == Counter({"1": 1})
    assert shop.marks() == 1
