"""Publishing inside a business transaction: what it may be given, and what it refuses."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databases import Together
from eventually import eventually
from servers import MariaDbServer
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    select,
    text,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from qframe import (
    BadBody,
    BadKey,
    BadOption,
    BadTopic,
    Message,
    Outbox,
    Outgoing,
    QFrame,
    Topic,
)
from qframe.outbox.commits import CommitListener

orders = Topic("orders", kind="ordered", slots=4)
bills = Table("bills", MetaData(), Column("number", Integer, primary_key=True))


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """The business database, with its table."""
    bills.metadata.create_all(engine)
    return engine


def relayed(store: str, outbox: Outbox) -> list[Message]:
    """What a worker that relays has handled."""
    messages: list[Message] = []

    def note(message: Message) -> None:
        messages.append(message)

    with QFrame(store=store) as app:
        app.consumer(orders, group="g")(note)
        app.relay(outbox)
        app.run(burst=True)
    return messages


def scoped(engine: Engine) -> Any:
    return scoped_session(sessionmaker(engine))


SHAPES: list[Callable[[Engine], Any]] = [
    Session, scoped, Engine.connect, Engine.raw_connection,
]  # fmt: skip


@pytest.mark.promise(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_committed_is_handled_and_what_is_rolled_back_never_was(
    engine: Engine, shape: Callable[[Engine], Any], store: str
) -> None:
    outbox = Outbox(engine)
    session = shape(engine)
    outbox.publish(
        session, orders, {"n": 1}, key="a", headers={"trace": "x"}, tags=["new"], id="mine"
    )
    outbox.publish(session, orders, b"\0bytes", key="a")
    session.commit()
    outbox.publish(session, orders, "never", key="a")
    session.rollback()
    session.close()
    with Session(engine) as nesting:
        outbox.publish(nesting, orders, 1, key="a")
        savepoint = nesting.begin_nested()
        outbox.publish(nesting, orders, "never", key="a")
        savepoint.rollback()
        outbox.publish(nesting, orders, 2, key="a")
        nesting.commit()
    one, two, *others = relayed(store, outbox)
    assert (one.id, one.body, one.key, one.headers, one.tags) == (
        "mine", {"n": 1}, "a", {"trace": "x"}, ("new",),
    )  # fmt: skip
    assert [each.body for each in (two, *others)] == [b"\0bytes", 1, 2]
    assert outbox.pending() == 0


@pytest.mark.promise(8)
def test_a_wrong_message_leaves_the_transaction_as_it_was(engine: Engine) -> None:
    outbox = Outbox(engine, max_body=100)
    wrong: list[tuple[type[Exception], Topic | str, object, dict[str, Any]]] = [
        (BadTopic, "no topic!", 1, {}),
        (BadTopic, 7, 1, {}),  # type: ignore[list-item]
        (BadBody, orders, object(), {"key": "k"}),
        (BadBody, orders, "x" * 200, {"key": "k"}),
        (BadOption, orders, 1, {"key": "k", "headers": {"n": 1}}),
        (BadOption, orders, 1, {"key": "k", "within": 5}),
        (BadKey, orders, 1, {}),
        (BadOption, "orders", 1, {"priority": 1}),
        (BadOption, "orders", 1, {"within": 5}),
    ]
    with Session(engine) as session:
        session.execute(insert(bills).values(number=1))
        for error, topic, body, options in wrong:
            with pytest.raises(error):
                outbox.publish(session, topic, body, **options)
        with pytest.raises(BadKey):
            outbox.publish_many(session, orders, [1, Outgoing(2, key="")])
        for one in ({"number": 1}, "abc", b"ab", None):
            with pytest.raises(BadBody, match=r"write Outgoing\(\*\*item\)"):
                outbox.publish_many(session, orders, [{"body": 1, "key": "k"}])
            with pytest.raises(BadOption, match="it is a single body"):
                outbox.publish_many(session, "orders", one)  # type: ignore[arg-type]
        session.commit()
        assert session.scalars(select(bills.c.number)).all() == [1]
    assert outbox.pending() == 0


def test_what_is_no_transaction_of_this_database_is_refused(local: Engine, tmp_path: Path) -> None:
    outbox = Outbox(local)
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    alone = create_engine(local.url, isolation_level="AUTOCOMMIT")
    driver = sqlite3.connect(str(local.url.database), isolation_level=None)
    for session in (Session(other), alone.connect(), driver, local, None, "session"):
        with pytest.raises(BadOption) as caught:
            outbox.publish(session, orders, 1, key="k")
        assert caught.value.what == "session"
        if isinstance(session, Session | Connection | sqlite3.Connection):
            session.close()
    other.dispose()
    alone.dispose()


def test_a_wrong_outbox_is_refused_and_the_same_is_given_to_an_app_once(local: Engine) -> None:
    memory, app = create_engine("sqlite://"), QFrame()
    outbox = app.relay(Outbox(local))
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: Outbox("sqlite://"), "engine"),  # type: ignore[arg-type]
        (lambda: Outbox(memory, prefix="No!"), "prefix"),
        (lambda: Outbox(memory, max_body=0), "max_body"),
        (lambda: app.relay("outbox"), "outbox"),  # type: ignore[arg-type]
        (lambda: app.relay(Outbox(memory)), "outbox"),
        (lambda: app.relay(outbox), "outbox"),
    ]
    for make, what in wrong:
        with pytest.raises(BadOption) as caught:
            make()
        assert caught.value.what == what


def test_tables_are_made_by_a_migration_where_that_is_asked(engine: Engine, store: str) -> None:
    outbox = Outbox(engine, prefix="shop_", create_tables=False)
    outbox._tables.metadata.create_all(engine)
    with Session(engine) as session:
        outbox.publish(session, orders, 1, key="a")
        session.commit()
    assert [message.body for message in relayed(store, outbox)] == [1]


def test_an_outbox_counts_what_its_session_sees_and_another_has_another_identity(
    local: Engine,
) -> None:
    outbox, other = Outbox(local), Outbox(local, prefix="other_")
    with Session(local) as session:
        outbox.publish(session, orders, 1, key="k")
        assert outbox.pending(session.connection()) == 1
        session.rollback()
    assert outbox.pending() == 0
    assert outbox.identity() == Outbox(local).identity() != other.identity()


def test_before_a_row_stand_those_of_its_line_in_its_own_topic_alone(local: Engine) -> None:
    outbox = Outbox(local)
    with local.begin() as connection:
        for name, message_id in (("bills", "m"), ("events", "m"), ("events", "n")):
            outbox.publish(connection, Topic(name), 1, id=message_id)
        outbox.publish(connection, Topic("events"), 1, id="m")
        *_, last = rows = outbox.rows.page(connection, limit=9)
        assert len({row.line for row in rows if row.id == "m"}) == 1
        before = outbox.rows.page(connection, limit=9, of=last)
        assert [(row.topic, row.id) for row in before] == [("events", "m")]


def test_a_row_keeps_when_it_was_handed_to_the_store_first(local: Engine) -> None:
    outbox = Outbox(local)
    with local.begin() as connection:
        outbox.publish(connection, orders, 1, key="k")
        [row] = outbox.rows.page(connection, limit=9)
        outbox.rows.mark(connection, [row.number])
        connection.execute(text(f"UPDATE {outbox.rows.channel} SET sent_at = 5"))
        outbox.rows.mark(connection, [row.number])
        assert [each.sent_at for each in outbox.rows.page(connection, limit=9)] == [5]
        outbox.rows.unmark(connection, {row.number: "another"})
        assert [each.sent_at for each in outbox.rows.page(connection, limit=9)] == [5]
        outbox.rows.unmark(connection, {row.number: row.id})
        assert [each.sent_at for each in outbox.rows.page(connection, limit=9)] == [None]


def test_a_commit_rings_and_a_rollback_does_not(local: Engine) -> None:
    outbox = Outbox(local)
    outbox.create()
    rung: list[int] = []
    outbox.bell.listen(lambda: rung.append(1))
    with Session(local) as session:
        outbox.publish(session, orders, 1, key="k")
        outbox.publish(session, orders, 2, key="k")
        session.rollback()
        assert rung == []
        outbox.publish(session, orders, 3, key="k")
        session.commit()
        assert rung == [1]
        session.execute(text("SELECT 1"))
        session.commit()
        assert rung == [1]
    with local.begin() as connection:
        outbox.publish(connection, orders, 4, key="k")
    assert rung == [1, 1]


@pytest.mark.promise(3)
@pytest.mark.parametrize(
    "url", [pytest.param("postgres", marks=pytest.mark.gate), "mariadb"], indirect=True
)
def test_a_message_of_a_key_comes_behind_all_of_the_transaction_that_it_waited_for(
    engine: Engine,
) -> None:
    outbox = Outbox(engine)
    outbox.create()
    waits = threading.Event()

    def publish_another() -> None:
        with engine.begin() as connection:
            event.listen(connection, "before_cursor_execute", told)
            outbox.publish(connection, orders, "other", key="k")

    def told(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(f"UPDATE {outbox.rows.lines_name}"):
            waits.set()

    with engine.begin() as connection:
        outbox.publish(connection, orders, "first", key="k")
        other = Together(publish_another)
        assert waits.wait(60)
        outbox.publish(connection, orders, "second", key="k")
    other.join()
    with engine.connect() as connection:
        rows = outbox.rows.page(connection, limit=9)
    assert [row.body for row in rows] == [b'"first"', b'"second"', b'"other"']


def test_on_postgres_a_commit_is_heard_elsewhere_and_a_rollback_is_not(
    postgres: Any,
) -> None:
    engine = create_engine(postgres.new_database())
    outbox = Outbox(engine)
    outbox.create()
    words: list[int] = []
    listener = CommitListener(
        engine, outbox.rows.channel, on_notification=lambda: words.append(1), on_failure=print
    )
    listener.start()
    eventually(lambda: words)  # whatever was missed before
    assert listener.connected
    assert words == [1]
    with Session(engine) as session:
        outbox.publish(session, orders, 1, key="k")
        session.rollback()
        outbox.publish(session, orders, 2, key="k")
        session.commit()
    eventually(lambda: len(words) > 1)
    listener.stop()
    assert words == [1, 1]
    engine.dispose()


@pytest.mark.parametrize("charset", ["utf8mb4", "utf8", "latin1"])
def test_a_charset_of_the_connection_changes_no_message(
    mariadb: MariaDbServer, store: str, charset: str
) -> None:
    """A server that is not strict would make question marks of what a charset lacks."""
    url = f"{mariadb.new_database()}?charset={charset}&init_command=SET+sql_mode=''"
    engine, topic = create_engine(url), Topic("orders", "ordered", slots=1)
    said = ["a", "é€", "🐟1", "🐢1"]
    handled: list[tuple[str | None, str, str]] = []
    with QFrame(store) as app:
        outbox = app.relay(Outbox(engine))

        @app.consumer(topic, "billing")
        def bill(message: Message) -> None:
            handled.append((message.key, message.body, message.headers["said"]))

        with Session(engine) as session:
            for each in said:
                outbox.publish(session, topic, each, key=each, headers={"said": each})
            session.commit()
        driver = engine.raw_connection()
        driver.cursor().execute("BEGIN")
        items = [Outgoing(each, key=each, headers={"said": each}) for each in said]
        outbox.publish_many(driver.driver_connection, topic, items)
        driver.commit()
        driver.close()
        assert [one.row.key for one in app.admin.outbox_waiting(outbox)] == said * 2
        app.run(burst=True)
    assert sorted(handled) == sorted([(each, each, each) for each in said * 2])
    engine.dispose()
