"""The roles of docs/database-roles.md: each can do what it must, and is refused the rest.

What a role of a store must do is done by the real store, and what one of a database must do by the
classes that do it in a worker, with the role's own engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from eventually import eventually
from roles import REFUSED, Server, Shop, is_refused, rights
from sqlalchemy import Engine, MetaData, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from qframe import (
    DatabaseChecker,
    Kind,
    Message,
    Outbox,
    Outgoing,
    QFrame,
    Topic,
    TopicFull,
    TransactionalChecker,
)
from qframe.cli.main import cli
from qframe.errors import CheckerUnavailable, QFrameError
from qframe.idempotency.base import Claim, Scope, State
from qframe.stores.sql.schema import metadata
from qframe.stores.types import PullRequest, PullTerms
from qframe.tables import tables

HEADINGS = {"PostgreSQL": "PostgreSQL, a message store", "MariaDB": "MariaDB, a message store"}
EPOCH = "0" * 15 + "1"
TOPICS = [Topic(f"a-{kind}", kind, slots=1, dedupe_window=0.001) for kind in Kind]
DO = {
    "SELECT": "SELECT {column} FROM {table} WHERE 1 = 0",
    "INSERT": "INSERT INTO {table} SELECT {nulls} FROM (SELECT 1) AS nothing WHERE 1 = 0",
    "UPDATE": "UPDATE {table} SET {column} = {column} WHERE 1 = 0",
    "DELETE": "DELETE FROM {table} WHERE 1 = 0",
}


@pytest.fixture(params=HEADINGS)
def store(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A deployment: the tables by `qframe store migrate`, then the roles and their rights."""
    server: Server = request.getfixturevalue(
        "postgres" if request.param == "PostgreSQL" else "mariadb"
    )
    made = Shop(server, HEADINGS[request.param])
    answer = CliRunner().invoke(cli, ["store", "migrate", "--store", made.url])
    assert answer.exit_code == 0, answer.output
    made.grant(0)
    yield made
    made.close()


def fill(url: str) -> None:
    """A topic of each kind with a group, and something waiting, in hand and dead."""
    with QFrame(store=url) as app:
        for topic in TOPICS:
            app.declare(topic)
            app.store.subscribe(topic, "g")
            app.store.take(topic, "g", {0: EPOCH})
            app.publish_many(topic, [Outgoing(n, key=f"k{n}", id=f"now-{n}") for n in range(6)])
            asked = [PullRequest(0, EPOCH, 3)]
            app.store.pull(topic, "g", asked, PullTerms("r", 60_000, 9, run=1))


def produce(app: QFrame, run: int) -> None:
    """All that publishing may come to: new topics, duplicates, delays, sequences, timers."""
    new = [Topic(f"new-{kind}-{run}", kind, max_length=5000) for kind in Kind]
    for topic in [*TOPICS, *new]:
        for name, delay in (("now", None), ("later", 60)):
            items = [
                Outgoing(n, key=f"k{n}", id=f"{name}-{run}-{n}", delay=delay) for n in range(8)
            ]
            app.publish_many(topic, items)
            app.publish_many(topic, items)
        if topic.kind is Kind.ORDERED:
            for sequence in (3, 1, 2):
                app.publish(topic, "s", key=f"seq-{run}", sequence=sequence)
    full = Topic(f"full-{run}", "ordered", slots=1, max_length=1)
    app.publish(full, 1, key="k")
    with pytest.raises(TopicFull):  # which has to know how many are dead
        app.publish(full, 2, key="k")
    app.publish("a-merge", 1, key="k0", within=60)
    app.publish("a-priority", 1, key="k0", priority=4)
    app.timers.schedule("a-delay", "x", key="t", delay=60)
    app.timers.move("a-delay", "t", delay=90)
    app.timers.cancel("a-delay", "t")
    app.timers.get("a-delay", "k5")


def look(app: QFrame, run: int) -> None:
    """Looks at everything."""
    del run
    app.admin.topics()
    for topic in TOPICS:
        app.admin.stats(topic)
        app.admin.peek(topic, "g")
        app.admin.explain(topic, "now-1")
        app.admin.dead(topic, "g")
        app.admin.workers(topic)
        app.admin.owners(topic)
        app.admin.tuned(topic, "g")
        assert app.admin.verify(topic) == []


def work(app: QFrame, run: int) -> None:
    """Handles, fails, gives up, sweeps; then changes what an operator may change."""
    topics = [Topic(f"b-{kind}-{run}", kind, slots=2) for kind in Kind]
    for topic in topics:

        @app.consumer(topic, group="h", max_attempts=2, backoff="1ms")
        def handle(message: Message) -> None:
            if message.body % 2:
                raise ValueError(message.body)

        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(9)])
    app.run(drain=True)
    for topic in topics:
        app.store.sweep(topic)
        assert len(app.admin.dead(topic, "h")) == 4
        app.admin.dead_retry(topic, "h", "all")
        app.admin.dead_drop(topic, "h", "all")
        if topic.kind is Kind.STREAM:
            app.admin.seek(topic, "h", to="earliest")
        app.admin.tune(topic, "h", threads=3)
        app.admin.pause(topic, "h")
        app.admin.resume(topic, "h")
        assert app.store.draw(topic, "h", 2, rate=1, per_ms=1000, burst=5).granted == 2
        assert app.store.draw(topic, "h", 2, rate=1, per_ms=1000, burst=5).granted == 2
        assert app.admin.verify(topic) == []
        app.admin.drop_group(topic, "h")


TASKS: dict[str, Callable[[QFrame, int], None]] = {
    "producer": produce, "dashboard": look, "worker": work,
}  # fmt: skip


def do(store: Shop, role: str, run: int = 0) -> None:
    """A role's task, with its own user, by the store as it is."""
    with QFrame(store=store.url_of(role)) as app:
        TASKS[role](app, run)


def is_enough(store: Shop, role: str, run: int) -> bool:
    """Whether a role's rights are enough for its task; any error but a refusal is the test's."""
    try:
        do(store, role, run)
    except QFrameError as error:
        if not REFUSED.search(str(error)):
            raise
        return False
    return True


@pytest.mark.parametrize("role", TASKS)
def test_a_roles_rights_are_enough_for_its_work(store: Shop, role: str) -> None:
    fill(store.url)
    do(store, role)


def test_an_act_of_a_producer_is_kept_though_it_may_not_remove_old_acts(store: Shop) -> None:
    fill(store.url)
    told: list[str] = []
    with QFrame(store=store.url_of("producer")) as app:
        app.events.listen(lambda name, _facts: told.append(name))
        app.admin.cancel_timer("a-delay", "k5")
    assert told == ["admin.action"]
    with QFrame(store=store.url_of("dashboard")) as app:
        assert [each.verb for each in app.admin.audit()] == ["cancel_timer"]


def test_none_of_a_producers_rights_can_be_left_out(store: Shop) -> None:
    fill(store.url)
    needless = []
    for run, right in enumerate(rights(store.heading, 0, "producer")):
        store.take(right)
        if is_enough(store, "producer", run):
            needless.append(right)
        store.give(right)
    assert needless == []
    do(store, "producer", -1)


@pytest.mark.parametrize("role", TASKS)
def test_a_role_of_a_store_has_the_rights_of_the_page_and_no_other(store: Shop, role: str) -> None:
    check_rights(store, role, 0, metadata)


def check_rights(shop: Shop, role: str, part: int, tables: MetaData) -> None:
    """A role may do with each column what the page says, and nothing else."""
    granted = may_do(shop, role, part)
    with shop.role(role).connect() as connection:
        quoted = connection.dialect.identifier_preparer.quote
        for name, table in tables.tables.items():
            nulls = ", ".join(["NULL"] * len(table.columns))
            for column in (each.name for each in table.columns):
                for verb, statement in DO.items():
                    tried = statement.format(table=name, column=quoted(column), nulls=nulls)
                    allowed = bool({(name, verb), (name, f"{verb} {column}")} & granted)
                    assert is_refused(connection, tried) != allowed, tried
            for change in ("DROP TABLE {}", "TRUNCATE TABLE {}", "ALTER TABLE {} ADD COLUMN m INT"):
                assert is_refused(connection, change.format(name))
        assert is_refused(connection, "CREATE TABLE qframe_more (a INTEGER)")


def may_do(shop: Shop, role: str, part: int) -> set[tuple[str, str]]:
    """What the page lets a role do: table and verb, with a column where that is all."""
    found = set()
    for right in rights(shop.heading, part, role):
        verb, _, columns = right.verb.partition(" (")
        names = (
            [f"{verb} {name}" for name in columns.rstrip(")").split(", ")] if columns else [verb]
        )
        found |= {(right.on.removeprefix("shop."), name) for name in names}
    return found


# Of users' databases.

SCOPE = Scope("n", "orders", "billing")
ORDERS = Topic("orders")
ROLES = ("handler", "publisher", "relay")
EFFECT = "INSERT INTO qframe_effects VALUES ('n', 'orders', 'billing', 'e', 1, 'token', 5, 9)"
METADATA = tables().metadata


class Refused(Exception):
    """A role may not do what it was to do."""


@pytest.fixture(params=["PostgreSQL", "MariaDB and MySQL"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A deployment: roles, then tables by one of them, then the others' rights."""
    name = "postgres" if request.param == "PostgreSQL" else "mariadb"
    made = Shop(request.getfixturevalue(name), request.param)
    made.grant(0)
    with made.role("migrations").begin() as connection:
        METADATA.create_all(connection)
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
def test_a_role_can_do_what_it_must_and_has_the_rights_of_the_page_and_no_other(
    shop: Shop, role: str
) -> None:
    prepare(shop, role)
    MUST[role](shop.role(role))
    check_rights(shop, role, 1, METADATA)


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
        METADATA.drop_all(connection)
