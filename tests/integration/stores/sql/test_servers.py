"""What only databases on servers do: deadlocks, bells between processes, two sessions at once."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import Any

import pytest
from databases import EPOCH, Together, begun, entry, pulled
from eventually import eventually
from interleaving.points import Run, SteppedPool
from pooler import Pooler
from servers import MariaDbServer, PostgresServer
from sqlalchemy import select
from timer_acts import edit

from qframe import BadBody, BadUrl, Outgoing, QFrame, Reject, Topic, UnknownGroup
from qframe.drivers.sql import Statement, Transaction
from qframe.outcomes import Moved, Outcome
from qframe.stores.sql import groups
from qframe.stores.sql.cursors import lock_slots
from qframe.stores.sql.publish import publish
from qframe.stores.sql.schema import cursors
from qframe.stores.sql.store import SqlStore

# Those of one database: a session of another test's may take its time to end.
LISTENING = "FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'LISTEN%'"


@pytest.mark.gate
def test_of_two_who_wait_for_each_other_one_is_run_again_and_both_are_done(
    store: SqlStore,
) -> None:
    topic = begun(store, "stream", 2)
    place = store._ref(topic)
    met = threading.Barrier(2)
    runs: list[int] = []

    def crosswise(first: int) -> None:
        def act(transaction: Transaction) -> None:
            lock_slots(transaction, place, [first])
            runs.append(first)
            if len(runs) <= 2:
                met.wait(60)
            lock_slots(transaction, place, [1 - first])

        store._database.write(act)

    Together(lambda: crosswise(0), lambda: crosswise(1)).join()
    # The victim may lock its first slot again before the other wakes, and they meet once more.
    assert set(runs) == {0, 1}
    assert len(runs) >= 3


def test_publishing_while_the_group_is_dropped_leaves_no_row_behind(
    store: SqlStore, url: str
) -> None:
    topic = begun(store, "ordered", 1, "g", "h")
    place = store._ref(topic)
    inside, go_on = threading.Event(), threading.Event()

    def drop_slowly(transaction: Transaction) -> None:

        groups.drop(transaction, place, "g")
        inside.set()
        assert go_on.wait(60)

    dropping = Together(lambda: store._database.write(drop_slowly))
    assert inside.wait(60)
    publishing = Together(lambda: store.publish(topic, [entry(topic, 1, "k", "a")]))
    pulling = Together(lambda: pulled(store, topic, "r", "g"))
    go_on.set()
    dropping.join()
    publishing.join()
    with suppress(UnknownGroup):  # it may have looked before the group was gone, and found nothing
        pulling.join()
    with pytest.raises(UnknownGroup):
        pulled(store, topic, "r", "g")
    assert store.groups(topic) == ["h"]
    assert store.verify(topic) == []
    assert [one.body for one in pulled(store, topic, "r", "h").deliveries] == [b"1"]
    store.drop_group(topic, "h")
    found = store._database.read(lambda it: _counts(it, "cursors", "subjects", "backlog"))
    assert found == {"cursors": 1, "subjects": 0, "backlog": 0}


def _counts(transaction: Transaction, *tables: str) -> dict[str, int]:
    return {
        table: _rows(transaction, f"SELECT COUNT(*) FROM qframe_{table}")[0][0] for table in tables
    }


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_publishing_while_the_topic_is_deleted_leaves_no_row_behind(
    store: SqlStore, kind: str
) -> None:
    topic = begun(store, kind)
    store.drop_group(topic, "g")
    place = store._ref(topic)
    inside, go_on = threading.Event(), threading.Event()

    def publish_slowly(transaction: Transaction) -> None:
        publish(transaction, place, [entry(topic, 1, "k", "a")])
        inside.set()
        assert go_on.wait(60)

    publishing = Together(lambda: store._database.write(publish_slowly))
    assert inside.wait(60)
    deleting = Together(lambda: _delete_whole(store, topic))
    eventually(lambda: _waits_for_a_lock(store))
    go_on.set()
    publishing.join()
    deleting.join()
    assert store.topics() == []
    found = store._database.read(lambda it: _counts(it, "log", "marks", "subjects", "slots"))
    assert not any(found.values()), found


def _delete_whole(store: SqlStore, topic: Topic) -> None:
    while not store.delete(topic):
        pass


def _waits_for_a_lock(store: SqlStore) -> bool:
    """Whether a transaction waits for another one's lock.

    InnoDB goes on showing what it has shown until nobody has asked for 0.1 s.
    """
    threading.Event().wait(0.2)
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
        if store._database.has_partial_indexes
        else "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    )
    return bool(store._database.read_autocommit(lambda it: _rows(it, waiting)))


def _rows(transaction: Transaction, text: str) -> list[Any]:
    transaction._cursor.execute(text)
    return list(transaction._cursor.fetchall())


@pytest.mark.gate
@pytest.mark.promise(1)
def test_a_message_reaches_the_unclaimed_queue_if_the_last_group_is_dropped_meanwhile(
    store: SqlStore,
) -> None:
    topic = begun(store, "delay")

    def publish() -> None:
        for number in range(50):
            store.publish(topic, [entry(topic, number, f"k{number}", f"{number}")])

    def drop() -> None:
        for _ in range(20):
            store.drop_group(topic, "g")
            store.subscribe(topic, "g")

    Together(publish, drop).join()
    assert store.publish(topic, [entry(topic, 1, "last", "last")]) == [Outcome.STORED]
    assert store.verify(topic) == []
    store.take(topic, "g", {0: EPOCH})
    assert "last" in [one.key for one in pulled(store, topic, "r").deliveries]


@pytest.mark.gate
@pytest.mark.promise(4)
def test_a_timer_is_not_handed_out_to_a_group_that_subscribes_while_it_is_edited(
    store: SqlStore, url: str
) -> None:
    topic, other = begun(store, "delay"), SqlStore(url)
    unlocked = Statement(select(cursors.c.cursor).with_for_update(skip_locked=True), "")
    handed_out: list[str | None] = []

    def beside(_: object, text: str, run: Run) -> Any:
        if "qframe_cursors" in text and "FOR UPDATE" in text and other.subscribe(topic, "h"):
            other.take(topic, "h", {0: EPOCH})
            other.publish(topic, [entry(topic, 1, "k", "a")])
        is_saved = text.startswith("UPDATE qframe_subjects")
        if is_saved and other._database.write(lambda it: it.rows(unlocked)):  # else it would wait
            handed_out.extend(one.key for one in pulled(other, topic, "r1", "h").deliveries)
        return run()

    backend = store._database.backend
    backend.pool = SteppedPool(backend.pool, beside)  # type: ignore[assignment]
    with closing(other):
        assert edit(store, topic, "k", due_ms=1) is Moved.DONE
        handed_out.extend(one.key for one in pulled(other, topic, "r2", "h").deliveries)
        assert handed_out == ["k"]
        assert other.verify(topic) == []


@pytest.mark.gate
def test_keys_and_ids_are_told_apart_byte_by_byte(store: SqlStore) -> None:
    topic = begun(store, "ordered")
    keys = ["a", "A", "a ", "ä", "a\u0308", "ß", "ss", "日本", "\U0001f600", "x" * 512]
    for key in keys:
        store.publish(topic, [entry(topic, 1, key, f"id{keys.index(key)}")])
    assert {one.key for one in pulled(store, topic, "r").deliveries} == set(keys)
    for named in ("Id", "id"):
        one = entry(topic, 1, "k", "ignored")
        one.id = one.mark = named
        assert store.publish(topic, [one]) == [Outcome.STORED]


@pytest.mark.gate
def test_a_bell_of_postgres_rings_for_what_another_process_commits_and_names_the_slot(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_database()
    store, other = SqlStore(url), SqlStore(url)
    topic, aside = begun(store, "ordered", 4), begun(store, "stream")
    bell, roster = store.bell([topic]), store.roster_bell(topic, "g")
    assert roster is not None
    other.publish(aside, [entry(aside, 1, "k", "a")])
    assert not roster.wait(0)
    one = entry(topic, 1, "k", "b")
    bell.wait(0)
    bell.hints()
    other.publish(topic, [one])
    assert bell.wait(60)
    assert bell.hints() == {one.slot}
    other.heartbeat(topic, "g", "w", 1000)
    assert roster.wait(60)
    postgres.call("UPDATE qframe_cursors SET acked = acked + 1", url.rpartition("/")[2])
    while bell.wait(0):
        pass
    assert other.repair(topic)
    assert bell.wait(60)
    sessions = f"SELECT count(*) {LISTENING.format(url.rpartition('/')[2])}"
    assert postgres.call(sessions) == [(1,)]
    for each in (bell, roster):
        each.close()
    eventually(lambda: postgres.call(sessions) == [(0,)])
    store.close()
    other.close()


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "word", ["", "hello", "m", "m 1", "m x 0", "m 1 a", "r 1", f"m {'9' * 5000} 0"]
)
def test_a_bell_of_postgres_hears_on_after_a_word_of_another_program(
    postgres: PostgresServer, word: str
) -> None:
    """It ended the one listener of the process, whose bells never rang again."""
    url = postgres.new_database()
    store, other = SqlStore(url), SqlStore(url)
    topic = begun(store, "stream")
    bell = store.bell([topic])
    while bell.wait(0):
        pass
    postgres.call(f"SELECT pg_notify('qframe', '{word}')", url.rpartition("/")[2])
    other.publish(topic, [entry(topic, 1, "k", "a")])
    assert bell.wait(60)
    bell.hints()
    other.publish(topic, [entry(topic, 1, "k", "b")])
    assert bell.wait(60)
    assert bell.hints() == {0}
    bell.close()
    store.close()
    other.close()


@pytest.mark.gate
def test_a_bell_that_was_cut_off_rings_since_something_may_have_been_missed_and_hears_again(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_database()
    store, other = SqlStore(url), SqlStore(url)
    topic = begun(store, "stream")
    bell = store.bell([topic])
    while bell.wait(0):
        pass
    cut = f"SELECT pg_terminate_backend(pid) {LISTENING.format(url.rpartition('/')[2])}"
    assert postgres.call(cut) == [(True,)]
    assert bell.wait(60)
    other.publish(topic, [entry(topic, 1, "k", "a")])
    assert bell.wait(60)
    bell.close()
    store.close()
    other.close()


def test_an_idle_worker_behind_a_pooler_learns_of_what_others_publish(
    postgres: PostgresServer,
) -> None:
    """A session that it shares hears nothing, or for others; so it looks, as on MariaDB."""
    url = postgres.new_database()
    topic = Topic("orders", kind="ordered", slots=4)
    handled: list[int] = []
    with (
        Pooler(postgres.port) as pooler,
        QFrame(url.replace(f":{postgres.port}/", f":{pooler.port}/")) as app,
        QFrame(url) as other,
    ):

        @app.consumer(topic, group="billing")
        def bill(number: int) -> None:
            handled.append(number)

        assert app.store.capabilities.bell is False
        assert other.store.capabilities.bell is True
        worker = threading.Thread(target=app.run)
        worker.start()
        for number in range(3):
            other.publish(topic, number, key="a")
            eventually(lambda number=number: number in handled)
        app.stop()
        worker.join()


@pytest.mark.gate
def test_a_bell_of_mariadb_finds_what_another_process_has_published(
    mariadb: MariaDbServer,
) -> None:
    url = mariadb.new_database()
    store, other = SqlStore(url), SqlStore(url)
    topic, aside = begun(store, "delay", 4), begun(store, "stream")
    bells = [store.bell([topic]), store.bell([topic])]
    other.publish(aside, [entry(aside, 1, "k", "a")])
    assert not bells[0].wait(0.6)
    other.publish(topic, [entry(topic, 1, "k", "b")])
    assert [bell.wait(60) for bell in bells] == [True, True]
    for bell in bells:
        bell.close()
    store.close()
    other.close()


@pytest.mark.gate
@pytest.mark.promise(8)
def test_a_body_above_the_servers_limit_is_refused_as_such_and_harms_no_other(
    mariadb: MariaDbServer,
) -> None:
    [(limit,)] = mariadb.call("SELECT @@max_allowed_packet")
    assert isinstance(limit, int)
    topic = Topic("t", slots=1)
    with QFrame(mariadb.new_database(), max_body=4 * limit) as app:
        app.declare(topic)
        with pytest.raises(BadBody, match=f"of {limit} bytes.*max_allowed_packet is {limit}; pub"):
            app.publish(topic, b"x" * limit)
        with app.buffered(linger="1h", batch=3) as producer:
            futures = [producer.publish(topic, body) for body in (b"a", b"x" * limit, b"b")]
        assert isinstance(futures[1].exception(), BadBody)
        assert [futures[number].result().outcome for number in (0, 2)] == ["stored", "stored"]


def test_messages_that_fit_into_a_packet_only_one_by_one_are_published_together(
    mariadb: MariaDbServer,
) -> None:
    [(before,)] = mariadb.call("SELECT @@max_allowed_packet")
    mariadb.call("SET GLOBAL max_allowed_packet = 65536")
    try:
        with QFrame(mariadb.new_database()) as app:
            bodies = [Outgoing("x" * 25_000, key="k") for _ in range(6)]
            app.publish_many(Topic("orders", kind="ordered", slots=1), bodies)
            assert app.admin.verify("orders") == []
    finally:
        mariadb.call(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.parametrize(
    ("setting", "usual"),
    [
        ("sql_select_limit = 2", "sql_select_limit = DEFAULT"),
        ("sql_safe_updates = 1", "sql_safe_updates = DEFAULT"),
        (
            "max_join_size = 2, GLOBAL sql_big_selects = 0",
            "max_join_size = DEFAULT, GLOBAL sql_big_selects = DEFAULT",
        ),
        ("completion_type = 'CHAIN'", "completion_type = DEFAULT"),
    ],
)
def test_a_setting_that_the_server_has_for_all_sessions_hinders_nothing(
    mariadb: MariaDbServer, setting: str, usual: str
) -> None:
    mariadb.call(f"SET GLOBAL {setting}")
    try:
        check_that_all_is_handled(mariadb.new_database())
    finally:
        mariadb.call(f"SET GLOBAL {usual}")


def test_no_charset_of_a_url_keeps_a_character_out(
    mariadb: MariaDbServer, postgres: PostgresServer
) -> None:
    check_that_all_is_handled(f"{mariadb.new_database()}?charset=latin1")
    check_that_all_is_handled(f"{postgres.new_database()}?client_encoding=latin1")


def test_a_database_that_takes_any_text_keeps_every_character(postgres: PostgresServer) -> None:
    check_that_all_is_handled(encoded(postgres, "SQL_ASCII"))


def test_a_database_that_cannot_hold_every_character_is_refused(postgres: PostgresServer) -> None:
    """It would refuse the keys of some messages, and the errors of some dead letters."""
    with pytest.raises(BadUrl, match=r"its encoding LATIN1 does not hold every char.*UTF8"):
        SqlStore(encoded(postgres, "LATIN1"))


def encoded(server: PostgresServer, encoding: str) -> str:
    """The URL of a new database in an encoding."""
    name = server.new_database().rpartition("/")[2] + "_encoded"
    server.call(f"CREATE DATABASE {name} ENCODING {encoding} LOCALE 'C' TEMPLATE template0")
    return server.url_of(name)


def check_that_all_is_handled(url: str) -> None:
    with QFrame(url) as app:
        topic = Topic("orders", kind="ordered", slots=4)
        handled: list[int] = []

        @app.consumer(topic, group="billing")
        def bill(number: int) -> None:
            handled.append(number)
            if number == 7:
                raise Reject("ß, € and 🐟")

        items = [Outgoing(number, key=f"k{number} ß€🐟") for number in range(20)]
        app.publish_many(topic, items)
        app.run(burst=True)
        assert sorted(handled) == list(range(20))
        [dead] = app.admin.dead(topic, "billing")
        assert dead.key == "k7 ß€🐟"
        assert "ß, € and 🐟" in dead.error
        assert len(app.admin.stats(topic, "billing")) == topic.slots
        assert app.admin.verify(topic) == []
