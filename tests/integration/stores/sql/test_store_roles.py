"""The roles of docs/database-roles.md for a message store: the real store does each one's work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from roles import REFUSED, Server, Shop, is_refused, rights
from typer.testing import CliRunner

from qframe import Kind, Message, Outgoing, QFrame, Topic, TopicFull
from qframe.cli.main import cli
from qframe.errors import QFrameError
from qframe.stores.sql.schema import metadata
from qframe.stores.types import PullRequest, PullTerms

HEADINGS = {"PostgreSQL": "PostgreSQL, a message store", "MariaDB": "MariaDB, a message store"}
EPOCH = "0" * 15 + "1"
TOPICS = [Topic(f"a-{kind}", kind, slots=1, dedupe_window=0.001) for kind in Kind]
DO = {
    "SELECT": "SELECT {column} FROM {table} WHERE 1 = 0",
    "INSERT": "INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0",
    "UPDATE": "UPDATE {table} SET {column} = {column} WHERE 1 = 0",
    "DELETE": "DELETE FROM {table} WHERE 1 = 0",
}


@pytest.fixture(params=HEADINGS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A deployment: the tables by `qframe migrate`, then the roles and their rights."""
    server: Server = request.getfixturevalue(
        "postgres" if request.param == "PostgreSQL" else "mariadb"
    )
    made = Shop(server, HEADINGS[request.param])
    answer = CliRunner().invoke(cli, ["migrate", "--store", made.url])
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


def do(shop: Shop, role: str, run: int = 0) -> None:
    """A role's task, with its own user, by the store as it is."""
    with QFrame(store=shop.url_of(role)) as app:
        TASKS[role](app, run)


def is_enough(shop: Shop, role: str, run: int) -> bool:
    """Whether a role's rights are enough for its task; any error but a refusal is the test's."""
    try:
        do(shop, role, run)
    except QFrameError as error:
        if not REFUSED.search(str(error)):
            raise
        return False
    return True


@pytest.mark.parametrize("role", TASKS)
def test_a_roles_rights_are_enough_for_its_work(shop: Shop, role: str) -> None:
    fill(shop.url)
    do(shop, role)


def test_an_act_of_a_producer_is_kept_though_it_may_not_remove_old_acts(shop: Shop) -> None:
    fill(shop.url)
    told: list[str] = []
    with QFrame(store=shop.url_of("producer")) as app:
        app.events.listen(lambda name, _facts: told.append(name))
        app.admin.cancel_timer("a-delay", "k5")
    assert told == ["admin.action"]
    with QFrame(store=shop.url_of("dashboard")) as app:
        assert [each.verb for each in app.admin.audit()] == ["cancel_timer"]


def test_none_of_a_producers_rights_can_be_left_out(shop: Shop) -> None:
    fill(shop.url)
    needless = []
    for run, right in enumerate(rights(shop.heading, 0, "producer")):
        shop.take(right)
        if is_enough(shop, "producer", run):
            needless.append(right)
        shop.give(right)
    assert needless == []
    do(shop, "producer", -1)


@pytest.mark.parametrize("role", TASKS)
def test_a_role_has_the_rights_of_the_page_and_no_other(shop: Shop, role: str) -> None:
    granted = may_do(shop, role)
    with shop.role(role).connect() as connection:
        quoted = connection.dialect.identifier_preparer.quote
        for name, table in metadata.tables.items():
            for column in (each.name for each in table.columns):
                for verb, statement in DO.items():
                    tried = statement.format(table=name, column=quoted(column))
                    allowed = bool({(name, verb), (name, f"{verb} {column}")} & granted)
                    assert is_refused(connection, tried) != allowed, tried
            assert is_refused(connection, f"DROP TABLE {name}")
        assert is_refused(connection, "CREATE TABLE qframe_more (a INTEGER)")


def may_do(shop: Shop, role: str) -> set[tuple[str, str]]:
    """What the page lets a role do: table and verb, with a column where that is all."""
    found = set()
    for right in rights(shop.heading, 0, role):
        verb, _, columns = right.verb.partition(" (")
        names = (
            [f"{verb} {name}" for name in columns.rstrip(")").split(", ")] if columns else [verb]
        )
        found |= {(right.on.removeprefix("shop."), name) for name in names}
    return found
