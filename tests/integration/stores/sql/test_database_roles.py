"""The roles of docs/database-roles.md: each can do what it must, and is refused the rest.

What a role must do is done by the classes that do it in a worker, with the role's own engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from eventually import eventually
from roles import REFUSED, Shop, is_refused, rights
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from qframe import (
    DatabaseChecker,
    Message,
    Outbox,
    Outgoing,
    QFrame,
    Topic,
    TransactionalChecker,
)
from qframe.errors import CheckerUnavailable
from qframe.idempotency.base import Claim, Scope, State
from qframe.tables import tables

SCOPE = Scope("n", "orders", "billing")
ORDERS = Topic("orders")
ROLES = ("handler", "publisher", "relay")
EFFECT = "INSERT INTO qframe_effects VALUES ('n', 'orders', 'billing', 'e', 1, 'token', 5, 9)"
ROW = "INSERT INTO qframe_outbox (line, topic, id, body, created_at) VALUES (1, 't', 'i', 'b', 1)"
MUST_NOT = {
    "handler": [
        "SELECT number FROM qframe_outbox", ROW, "DELETE FROM qframe_outbox",
        "SELECT line FROM qframe_lines", "UPDATE qframe_lines SET last = 0",
    ],
    "publisher": [
        "SELECT body FROM qframe_outbox", "UPDATE qframe_outbox SET topic = 'x'",
        "DELETE FROM qframe_outbox", "DELETE FROM qframe_lines", EFFECT,
        "SELECT effect FROM qframe_effects", "DELETE FROM qframe_effects",
    ],
    "relay": [
        ROW, "UPDATE qframe_outbox SET body = 'x'", "UPDATE qframe_outbox SET topic = 'x'",
        "UPDATE qframe_lines SET last = 0", "DELETE FROM qframe_lines", EFFECT,
        "SELECT effect FROM qframe_effects", "DELETE FROM qframe_effects",
    ],
}  # fmt: skip
ANYBODY_MUST_NOT = [
    "CREATE TABLE qframe_more (n INTEGER)",
    "DROP TABLE qframe_effects",
    "ALTER TABLE qframe_outbox ADD COLUMN more INTEGER",
    "TRUNCATE TABLE qframe_lines",
]


class Refused(Exception):
    """A role may not do what it was to do."""


@pytest.fixture(params=["PostgreSQL", "MariaDB and MySQL"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A deployment: roles, then tables by one of them, then the others' rights."""
    name = "postgres" if request.param == "PostgreSQL" else "mariadb"
    made = Shop(request.getfixturevalue(name), request.param)
    made.grant(0)
    with made.role("migrations").begin() as connection:
        tables().metadata.create_all(connection)
    made.grant(1, role="migrations" if request.param == "PostgreSQL" else None)
    yield made
    made.close()


def check(engine: Engine) -> None:
    """Claims, renews, finishes, releases, claims again and sweeps, by both checkers."""
    for kind in (DatabaseChecker, TransactionalChecker):
        checker: Any = kind(engine, retention="1ms", create_tables=False)
        checker.open()
        done, failed, again = Claim("done"), Claim("failed"), Claim("done")
        checker.claim_many(SCOPE, [done, failed], 60_000)
        assert [done.state, failed.state] == [State.CLAIMED] * 2
        assert checker.renew_many(SCOPE, [done], 60_000) == [True]
        assert checker.finish_many(SCOPE, [done]) == [True]
        assert checker.release_many(SCOPE, [failed]) == [True]
        checker.claim_many(SCOPE, [again], 60_000)
        assert again.state is State.DONE
        eventually(partial(checker.sweep, 10))


def publish(engine: Engine) -> None:
    """Publishes with keys and without, and counts what waits."""
    outbox = Outbox(engine, create_tables=False)
    before = outbox.pending()
    with Session(engine) as session:
        outbox.publish(session, ORDERS, 1, key="k")
        outbox.publish_many(session, ORDERS, [Outgoing(2, key="l"), 3])
        session.commit()
    assert outbox.pending() == before + 3


def relay(engine: Engine) -> None:
    """Brings what waits into its topic, and ends."""
    troubles: list[object] = []
    came: list[object] = []

    def listen(name: str, facts: dict[str, Any]) -> None:
        if name == "outbox.unavailable":
            troubles.append(facts["error"])
            app.stop()

    with QFrame(store="model://") as app:
        app.events.listen(listen)

        @app.consumer(ORDERS, group="g")
        def note(message: Message) -> None:
            came.append(message.body)

        app.relay(Outbox(engine, create_tables=False))
        app.run(burst=True)
    if troubles:
        raise Refused(troubles[0])
    assert sorted(came) == [1, 2, 3]  # type: ignore[type-var] # numbers


MUST: dict[str, Callable[[Engine], None]] = {"handler": check, "publisher": publish, "relay": relay}


def prepare(shop: Shop, role: str) -> None:
    """The tables as a migration leaves them; for a relay with something that waits."""
    for table in ("effects", "outbox", "lines"):
        shop.run(f"DELETE FROM qframe_{table}")
    if role == "relay":
        publish(shop.role("publisher"))
        shop.run("DELETE FROM qframe_lines")  # a migration fills none in


@pytest.mark.gate
@pytest.mark.parametrize("role", ROLES)
def test_a_role_can_do_what_it_must_and_is_refused_the_rest(shop: Shop, role: str) -> None:
    prepare(shop, role)
    MUST[role](shop.role(role))
    with shop.role(role).connect() as connection:
        for statement in [*MUST_NOT[role], *ANYBODY_MUST_NOT]:
            assert is_refused(connection, statement), statement


@pytest.mark.parametrize("role", ROLES)
def test_without_any_of_its_rights_a_role_cannot_do_what_it_must(shop: Shop, role: str) -> None:
    for right in rights(shop.heading, 1, role):
        prepare(shop, role)
        shop.take(right)
        with pytest.raises((DBAPIError, CheckerUnavailable, Refused), match=REFUSED):
            MUST[role](shop.role(role))
        shop.give(right)
    prepare(shop, role)
    MUST[role](shop.role(role))


def test_a_worker_that_may_not_remove_marks_says_so_and_handles_messages(shop: Shop) -> None:
    with shop.role("migrations").begin() as connection:
        connection.execute(text(EFFECT))  # it has expired
    [remove] = [each for each in rights(shop.heading, 1, "handler") if each.verb == "DELETE"]
    shop.take(remove)
    told: list[str] = []
    bodies: list[object] = []

    def listen(name: str, facts: dict[str, Any]) -> None:
        if name == "checker.unavailable":
            told.append(facts["error"])

    with QFrame(store="model://") as app:
        app.events.listen(listen)
        checker = TransactionalChecker(shop.role("handler"), create_tables=False)

        @app.consumer(ORDERS, group="billing", idempotent_checker=checker, max_attempts=1)
        def bill(message: Message, session: Session) -> None:
            bodies.append(message.body)
            eventually(lambda: told)

        app.publish(ORDERS, 1)
        app.run(burst=True)
    assert bodies == [1]
    assert re.search(REFUSED, told[0])
    assert "the rights of its user" in told[0]


def test_migrations_change_and_drop_what_they_have_made(shop: Shop) -> None:
    with shop.role("migrations").begin() as connection:
        connection.execute(text("ALTER TABLE qframe_effects ADD COLUMN more INTEGER"))
        connection.execute(text("CREATE INDEX more_of_it ON qframe_effects (more)"))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('1')"))
        tables().metadata.drop_all(connection)
