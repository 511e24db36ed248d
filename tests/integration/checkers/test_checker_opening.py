"""PostgreSQL: BEGIN goes with the mark and COMMIT with a look, or each alone, to the same end."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from checking import engine_of, new_scope
from database_servers import PostgresServer
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import IntegrityError

from qframe import TransactionalChecker
from qframe.errors import CheckerUnavailable, CommitRefused, EffectUnknown
from qframe.idempotency.base import Claim, Scope, State

PREPARED = text("SELECT count(*) FROM pg_prepared_statements WHERE name = 'qframe_effects_mark'")
MARKS = text("SELECT count(*) FROM qframe_effects WHERE state = 2")


class Marking:
    """A checker, a scope, and a thread that marks, since the main one goes the long way."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.thread = ThreadPoolExecutor(1)
        self.checker = TransactionalChecker(engine)
        self.checker.open()
        self.scope: Scope = new_scope()

    def claim(self, key: str | None = None) -> Claim:
        claim = Claim(key or f"id:{uuid.uuid4().hex}")
        self.thread.submit(self.checker.claim_many, self.scope, [claim], 1000).result()
        return claim

    def finish(self, claim: Claim) -> None:
        self.thread.submit(self.checker.finish_many, self.scope, [claim]).result()

    def finish_here(self, claim: Claim) -> None:
        self.checker.finish_many(self.scope, [claim])

    def release(self, claim: Claim) -> None:
        self.checker.release_many(self.scope, [claim])

    def is_absent(self, key: str) -> bool:
        claim = self.claim(key)
        is_mine = claim.state is State.CLAIMED
        self.release(claim)
        return is_mine

    def marks(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(MARKS).scalar_one())


@contextmanager
def marking_on(server: PostgresServer, **options: Any) -> Iterator[Marking]:
    with engine_of(server.new_database(), pool_size=1, max_overflow=1, **options) as engine:
        yield Marking(engine)


@pytest.fixture
def marking(postgres: PostgresServer) -> Iterator[Marking]:
    with marking_on(postgres) as made:
        yield made


def said(claim: Claim, statement: str) -> Any:
    """What the database answers in a claim's transaction."""
    connection: Connection = claim.transaction.connection
    return connection.execute(text(statement)).scalar_one()


@pytest.mark.gate
def test_the_mark_is_a_prepared_statement_that_begins_the_transaction(marking: Marking) -> None:
    for _ in range(3):
        claim = marking.claim()
        assert claim.state is State.CLAIMED
        assert claim.transaction.connection.execute(PREPARED).scalar_one() == 1
        marking.finish(claim)
    assert marking.marks() == 3


def test_the_main_thread_leaves_the_wait_to_the_driver_which_hears_signals(
    marking: Marking,
) -> None:
    claim = Claim("id:1")
    marking.checker.claim_many(marking.scope, [claim], 1000)
    assert claim.transaction.connection.execute(PREPARED).scalar_one() == 0
    marking.finish_here(claim)
    assert marking.claim("id:1").state is State.DONE


def test_the_commit_goes_with_a_last_look_whether_this_is_the_marks_transaction(
    postgres: PostgresServer, marking: Marking
) -> None:
    claim = marking.claim()
    pid = said(claim, "SELECT pg_backend_pid()")
    marking.finish(claim)
    [(last,)] = postgres.call(f"SELECT query FROM pg_stat_activity WHERE pid = {pid}")
    assert re.fullmatch(r"SELECT .*txid_current\(\).*; COMMIT", last)
    assert marking.marks() == 1


def test_what_listeners_do_as_a_transaction_begins_and_commits_stays_in_it(
    marking: Marking,
) -> None:
    with marking.engine.begin() as connection:
        connection.execute(text("CREATE TABLE commits (txid bigint)"))

    @event.listens_for(marking.engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL qframe.tenant = 'mine'")

    @event.listens_for(marking.engine, "commit")
    def note(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO commits SELECT txid_current()")

    claim = marking.claim()
    txid = said(claim, "SELECT txid_current()")
    assert said(claim, "SELECT current_setting('qframe.tenant')") == "mine"
    marking.finish(claim)
    with marking.engine.connect() as looking:
        assert txid in looking.execute(text("SELECT txid FROM commits")).scalars().all()
    assert marking.marks() == 1


@pytest.mark.gate
@pytest.mark.parametrize("in_thread", [True, False])
def test_another_transaction_than_the_marks_is_not_committed(
    marking: Marking, in_thread: bool
) -> None:
    with marking.engine.begin() as connection:
        connection.execute(text("CREATE TABLE paid (id integer)"))
    claim = marking.claim("id:1")
    connection = claim.transaction.connection
    connection.exec_driver_sql("ROLLBACK")
    connection.exec_driver_sql("INSERT INTO paid VALUES (1)")
    finish = marking.finish if in_thread else marking.finish_here
    with pytest.raises(CommitRefused, match="rolled back"):
        finish(claim)
    with marking.engine.connect() as looking:
        assert looking.execute(text("SELECT count(*) FROM paid")).scalar_one() == 0
    assert marking.is_absent("id:1")


def test_what_the_server_refuses_at_the_commit_is_the_handlers_error(marking: Marking) -> None:
    with marking.engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id integer PRIMARY KEY)"))
        connection.execute(
            text("CREATE TABLE lines (of_order integer REFERENCES orders INITIALLY DEFERRED)")
        )
    claim = marking.claim("id:1")
    claim.transaction.connection.execute(text("INSERT INTO lines VALUES (1)"))
    with pytest.raises(IntegrityError, match="lines_of_order_fkey") as raised:
        marking.finish(claim)
    assert raised.value.orig is not None
    assert raised.value.orig.diag.constraint_name == "lines_of_order_fkey"  # type: ignore[attr-defined]
    assert marking.marks() == 0
    assert marking.is_absent("id:1")


def test_a_session_that_ends_before_the_commit_leaves_the_answer_to_the_next_claim(
    postgres: PostgresServer, marking: Marking
) -> None:
    claim = marking.claim("id:1")
    pid = said(claim, "SELECT pg_backend_pid()")
    postgres.call(f"SELECT pg_terminate_backend({pid}, 5000)")
    with pytest.raises(EffectUnknown):
        marking.finish(claim)
    assert marking.is_absent("id:1")


def test_what_is_rolled_back_can_be_claimed_again_in_the_same_session(marking: Marking) -> None:
    for _ in range(3):
        for _ in range(8):  # psycopg prepares the handler's own, and forgets all in a rollback
            claim = marking.claim("id:1")
            assert claim.state is State.CLAIMED
            assert said(claim, "SELECT 1") == 1
            marking.release(claim)
    marking.finish(marking.claim("id:1"))
    assert marking.marks() == 1


def test_a_session_that_was_made_to_forget_its_statements_is_told_them_again(
    marking: Marking,
) -> None:
    @event.listens_for(marking.engine, "checkin")
    def forget(connection: Any, _record: object) -> None:
        connection.execute("DEALLOCATE ALL")
        connection.commit()

    for _ in range(5):
        claim = marking.claim()
        assert claim.transaction.connection.execute(PREPARED).scalar_one() == 1
        marking.finish(claim)
    assert marking.marks() == 5


@pytest.mark.parametrize("key", ["key:o'clock", "key:a\\", "key:$1", "key:%s", 'key:"; --'])
def test_a_key_is_marked_as_it_is_whatever_is_in_it(marking: Marking, key: str) -> None:
    marking.finish(marking.claim(key))
    assert marking.claim(key).state is State.DONE
    with marking.engine.connect() as connection:
        found = connection.execute(text("SELECT effect FROM qframe_effects")).scalars().all()
    assert found == [key]


@pytest.mark.parametrize(
    ("options", "question", "answer"),
    [
        ({"isolation_level": "SERIALIZABLE"}, "SHOW transaction_isolation", "serializable"),
        ({"connect_args": {"prepare_threshold": None}}, PREPARED.text, 0),
    ],
)
def test_a_transaction_is_as_its_engine_and_driver_were_told(
    postgres: PostgresServer, options: dict[str, Any], question: str, answer: Any
) -> None:
    with marking_on(postgres, **options) as marking:
        claim = marking.claim()
        assert said(claim, question) == answer
        marking.finish(claim)
        assert marking.marks() == 1


def test_where_the_server_refuses_the_short_way_marks_are_written_all_the_same(
    postgres: PostgresServer,
) -> None:
    with engine_of(postgres.new_database()) as engine:

        @event.listens_for(engine, "connect")
        def take_its_name(connection: Any, _record: object) -> None:
            connection.execute("PREPARE qframe_effects_mark AS SELECT 1")
            connection.commit()

        marking = Marking(engine)
        for number in range(6):
            marking.finish(marking.claim(f"id:{number}"))
            assert marking.claim(f"id:{number}").state is State.DONE
        assert marking.marks() == 6


def test_a_session_that_was_ended_costs_a_claim_and_no_mark(
    postgres: PostgresServer, marking: Marking
) -> None:
    marking.finish(marking.claim("id:1"))
    with marking.engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    postgres.call(f"SELECT pg_terminate_backend({pid}, 5000)")
    with pytest.raises(CheckerUnavailable):
        marking.claim("id:2")
    claim = marking.claim("id:2")
    assert claim.state is State.CLAIMED
    marking.finish(claim)
    assert marking.claim("id:1").state is State.DONE
    assert marking.marks() == 2
