"""A server that runs and refuses: its error names what it refuses, and the remedy for that."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from eventually import eventually
from servers import MariaDbServer, PostgresServer, RedisServer, free_port
from sqlalchemy import make_url

from qframe import BadUrl, QFrame, StoreUnavailable, Topic
from qframe.drivers import redis as driver
from qframe.drivers import sql_mariadb, sql_sqlite
from qframe.drivers.sql import Transaction
from qframe.stores.sql.cursors import lock_topic
from qframe.stores.sql.store import SqlStore

TOPIC = Topic("orders", kind="ordered", slots=2)
REPLICA = "name the primary in the URL, or its Sentinels"


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setattr(driver, "PATIENCE_S", 0.2)
    with RedisServer(tmp_path) as server:
        yield server


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("REPLICAOF", "127.0.0.1", free_port()), REPLICA),
        (("CONFIG", "SET", "min-replicas-to-write", 1), "bring a replica back, or lower"),
    ],
)
def test_a_redis_that_takes_no_writes_says_so_and_not_that_it_is_away(
    redis: RedisServer, words: tuple[str | int, ...], remedy: str
) -> None:
    with QFrame(redis.url) as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, "billing")
        redis.call(*words)
        with pytest.raises(StoreUnavailable, match=f"refuses writes: .*; {remedy}") as caught:
            app.publish(TOPIC, 1, key="a")
        assert remedy in caught.value.remedy


def test_a_redis_that_cannot_save_is_not_called_damaged(redis: RedisServer) -> None:
    with QFrame(redis.url) as app:
        app.declare(TOPIC)
        redis.call("CONFIG", "SET", "save", "3600 1")
        (redis.folder / "dump.rdb").mkdir()
        redis.call("SET", "something", "to save")
        with redis.client() as client:
            client.bgsave()
            eventually(lambda: not client.info("persistence")["rdb_bgsave_in_progress"])
        with pytest.raises(StoreUnavailable, match=r"refuses writes: .*; see in the server's log"):
            app.publish(TOPIC, 1, key="a")


def test_a_publish_within_a_transaction_of_the_stores_own_file_is_told_to_wait_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server is away, so nothing is to be started and the URL is right."""
    monkeypatch.setattr(sql_sqlite, "BUSY_TIMEOUT_MS", 50)
    with (
        QFrame(f"sqlite:///{tmp_path / 'shop.db'}") as app,
        closing(sqlite3.connect(tmp_path / "shop.db")) as shop,
    ):
        app.declare(TOPIC)
        shop.execute("CREATE TABLE goods (name TEXT)")
        shop.execute("INSERT INTO goods VALUES ('shoe')")
        with pytest.raises(StoreUnavailable, match="held by another transaction") as caught:
            app.publish(TOPIC, 1, key="a")
        assert "end that before you publish" in caught.value.remedy
        shop.commit()
        app.publish(TOPIC, 1, key="a")


def test_a_postgres_that_ends_statements_says_so(postgres: PostgresServer) -> None:
    with QFrame(postgres.new_database()) as app:
        app.declare(TOPIC)
        database = app.store.url.rpartition("/")[2]
        postgres.call(f'ALTER DATABASE "{database}" SET statement_timeout = 100')
        with (
            held(postgres, database),
            QFrame(postgres.url_of(database)) as other,
            pytest.raises(StoreUnavailable, match=r"ends statements .*timeout; raise its limit"),
        ):
            other.publish(TOPIC, 1, key="a")


def test_a_postgres_whose_tables_are_locked_says_so(postgres: PostgresServer) -> None:
    with QFrame(postgres.new_database()) as app:
        app.declare(TOPIC)
        database = app.store.url.rpartition("/")[2]
        url = f"{postgres.url_of(database)}?options=-c%20lock_timeout%3D100"
        with (
            held(postgres, database),
            QFrame(url) as other,
            pytest.raises(StoreUnavailable, match=r"is held up: .*lock timeout.*; end the trans"),
        ):
            other.publish(TOPIC, 1, key="a")


@contextmanager
def held(server: PostgresServer, database: str) -> Iterator[None]:
    """Keeps a table of a store from all others."""
    where = make_url(server.url_of(database)).set(drivername="postgresql")
    with psycopg.connect(where.render_as_string(False)) as connection:
        connection.execute("LOCK TABLE qframe_slots")
        yield


def test_a_mariadb_whose_rows_are_locked_says_so_at_the_end_of_one_wait(
    mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "innodb_lock_wait_timeout"
    assert sql_mariadb._SETTINGS[waits] == sql_mariadb.LOCK_WAIT_S
    monkeypatch.setitem(sql_mariadb._SETTINGS, waits, 1)
    url = mariadb.new_database()
    tries: list[int] = []

    def lock(transaction: Transaction) -> None:
        tries.append(1)
        lock_topic(transaction, place)

    with (
        closing(SqlStore(url)) as store,
        closing(mariadb._connect(url.rpartition("/")[2])) as other,
        other.cursor() as cursor,
    ):
        place = store._ref(store.declare(TOPIC))
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM qframe_topics FOR UPDATE")
        with pytest.raises(StoreUnavailable, match=r"is held up: .*timeout.*; end the trans"):
            store._database.write(lock)
    assert len(tries) == 1


def test_a_mariadb_that_ends_statements_says_so(mariadb: MariaDbServer) -> None:
    mariadb.call("SET GLOBAL max_statement_time = 0.0001")
    try:
        with (
            pytest.raises(StoreUnavailable, match=r"ends statements .*exceeded.*; raise its limit"),
            QFrame(mariadb.new_database()) as app,
        ):
            app.declare(TOPIC)
    finally:
        mariadb.call("SET GLOBAL max_statement_time = DEFAULT")


def test_a_sqlite_file_that_is_damaged_says_so(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with QFrame(f"sqlite:///{path}") as app:
        app.declare(TOPIC)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with (
        QFrame(f"sqlite:///{path}") as app,
        pytest.raises(BadUrl, match=r"the file is damaged .*restore a backup: docs/backup.md"),
    ):
        app.publish(TOPIC, 1, key="a")
