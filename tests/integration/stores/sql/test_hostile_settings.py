"""Settings of a server, a database or a role change nothing of what is stored and compared."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pooler import Pooler
from servers import MariaDbServer, PostgresServer
from sqlalchemy import LargeBinary, cast, literal, select, text

from qframe import Message, Outgoing, QFrame, Reject, Topic
from qframe.drivers.sql import Database, Statement
from qframe.stores.sql.store import SqlStore

NUMBERS = (1, 8, 600)
BOTH = ("ordered", "stream")
WORDS = (
    "\\", "\\\\", r"\x41", r"\101", r"\N", r"\.", "'", "''", '"', "`", "%s", "%", ":a", "{}",
    "NULL", "null", "a", "A", "a ", " a", "a\tb", "a\nb", "a\r\nb", "ß", "ss", "ä",
    "a\u0308", "日本", "🐟",
    "\x01\x7f", "--", "/*", "E'\\\\'", "$1", "",
)  # fmt: skip
BODIES = (
    b"", b"\0", b"\0\0a", bytes(range(256)), b"\xff\xfe\x80", b"\\",
    *[word.encode() for word in WORDS],
)  # fmt: skip

POSTGRES_SETTINGS = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "client_encoding": "latin1",
    "client_min_messages": "debug1",
    "DateStyle": "'SQL, DMY'",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "escape_string_warning": "on",
    "exit_on_error": "on",
    "extra_float_digits": "-15",
    "IntervalStyle": "sql_standard",
    "plan_cache_mode": "force_generic_plan",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "shop",
    "session_replication_role": "replica",
    "standard_conforming_strings": "off",
    "TimeZone": "'Asia/Kolkata'",
    "transform_null_equals": "on",
}
MARIADB_SETTINGS = {
    "autocommit": "0",
    "character_set_client": "latin1",
    "character_set_connection": "latin1",
    "character_set_database": "latin1",
    "character_set_results": "latin1",
    "character_set_server": "latin1",
    "collation_connection": "latin1_german1_ci",
    "collation_server": "latin1_german1_ci",
    "completion_type": "CHAIN",
    "div_precision_increment": "0",
    "enforce_storage_engine": "InnoDB",
    "foreign_key_checks": "0",
    "group_concat_max_len": "4",
    "innodb_default_row_format": "compact",
    "innodb_strict_mode": "0",
    "max_recursive_iterations": "1",
    "max_sort_length": "64",
    "old_mode": "'UTF8_IS_UTF8MB3,ZERO_DATE_TIME_CAST'",
    "sql_auto_is_null": "1",
    "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION'",
    "sql_safe_updates": "1",
    "sql_select_limit": "2",
    "time_zone": "'+05:30'",
    "tx_isolation": "SERIALIZABLE",
    "unique_checks": "0",
}
OF_SUPERUSERS = {"enforce_storage_engine", "innodb_default_row_format"}


def check_that_nothing_is_changed(url: str, *kinds: str) -> None:
    """Publishes bodies, keys, ids and headers, and gets them all back as they were."""
    with QFrame(url) as app:
        for kind in kinds or ("ordered",):
            topic = Topic(f"awkward-{kind}", kind=kind, slots=2)
            sent = {
                f"{number}-{nth}": Outgoing(
                    BODIES[nth % len(BODIES)], id=f"{number}-{nth}", key=_key(number, nth),
                    headers={"of": WORDS[nth % len(WORDS)], "nth": f"{nth}"},
                )
                for number in NUMBERS
                for nth in range(number)
            }  # fmt: skip
            received: list[Message] = []

            @app.consumer(topic, group="billing")
            def receive(message: Message, received: list[Message] = received) -> None:
                received.append(message)
                if message.id == "600-7":
                    raise Reject("\\x41 '\\' ß 🐟")

            for number in NUMBERS:
                app.publish_many(topic, [sent[f"{number}-{nth}"] for nth in range(number)])
            again = app.publish_many(topic, [sent["600-3"]])
            assert [each.outcome for each in again] == ["duplicate"]
            app.run(burst=True)
            assert Counter(one.id for one in received) == Counter(list(sent))
            for one in received:
                outgoing = sent[one.id]
                assert (one.body, one.key, one.headers) == (
                    outgoing.body, outgoing.key, outgoing.headers
                )  # fmt: skip
            [dead] = app.admin.dead(topic, "billing")
            assert (dead.key, dead.error) == (sent["600-7"].key, "Reject: \\x41 '\\' ß 🐟")
            stats = app.admin.stats(topic, "billing")
            assert [sum(slot.settled for slot in stats), sum(slot.dead for slot in stats)] == [
                608,
                1,
            ]
            assert app.admin.verify(topic) == []


def _key(number: int, nth: int) -> str:
    return WORDS[nth % len(WORDS)] + ("" if nth % 3 else f"-{number}-{nth}") or "-"


@pytest.mark.parametrize("name", POSTGRES_SETTINGS)
def test_a_setting_of_a_role_changes_no_message_on_postgres(
    postgres: PostgresServer, name: str
) -> None:
    url = hostile(postgres, name)
    check_that_nothing_is_changed(url)


@pytest.mark.gate
def test_all_settings_of_a_role_together_change_no_message_on_postgres_behind_a_pooler(
    postgres: PostgresServer,
) -> None:
    """It passes on nothing of what the session asks for at its start."""
    url = hostile(postgres, *POSTGRES_SETTINGS)
    with Pooler(postgres.port, keeps_options=False) as pooler:
        check_that_nothing_is_changed(url.replace(f":{postgres.port}/", f":{pooler.port}/"), *BOTH)


def test_bytes_in_the_text_of_a_statement_are_the_same_under_either_kind_of_strings(
    postgres: PostgresServer,
) -> None:
    query = Statement(select(*[cast(literal(body), LargeBinary) for body in BODIES]), "")
    for names in ([], ["standard_conforming_strings"]):
        with closing(Database(hostile(postgres, *names))) as database:
            assert database.read(lambda it: it.rows(query)) == [BODIES]


def hostile(server: PostgresServer, *names: str) -> str:
    """The URL of a new database in which the role's settings are against us."""
    url = server.new_database()
    database = url.rpartition("/")[2]
    server.call("CREATE SCHEMA shop", database)
    for name in names:
        value = POSTGRES_SETTINGS[name]
        server.call(f'ALTER ROLE qframe IN DATABASE "{database}" SET {name} = {value}')
    return url


@pytest.fixture(scope="module")
def own_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """A server whose settings for all sessions are these tests' own."""
    config = {"character-set-client-handshake": "0", "character-set-server": "latin1"}
    with MariaDbServer(tmp_path_factory.mktemp("own-mariadb"), config=config) as server:
        yield server


@pytest.mark.parametrize("name", MARIADB_SETTINGS)
def test_a_setting_of_all_sessions_changes_no_message_on_mariadb(
    own_mariadb: MariaDbServer, name: str
) -> None:
    url = own_mariadb.new_database()
    own_mariadb.call(f"SET GLOBAL {name} = {MARIADB_SETTINGS[name]}")
    try:
        check_that_nothing_is_changed(url)
    finally:
        own_mariadb.call(f"SET GLOBAL {name} = DEFAULT")


@pytest.mark.gate
def test_all_that_a_mariadb_server_sets_at_connecting_changes_no_message(
    own_mariadb: MariaDbServer,
) -> None:
    """Of `init_connect` the driver hears nothing; a superuser's sessions are spared it."""
    url = own_mariadb.new_database()
    names = [name for name in MARIADB_SETTINGS if name not in OF_SUPERUSERS]
    words = ", ".join(f"{name} = {MARIADB_SETTINGS[name]}" for name in names)
    own_mariadb.call("CREATE USER plain IDENTIFIED BY ''")
    own_mariadb.call("GRANT ALL ON *.* TO plain")
    own_mariadb.call("REVOKE SUPER, CONNECTION ADMIN ON *.* FROM plain")
    own_mariadb.call(f'SET GLOBAL init_connect = "SET {words}"')
    try:
        check_that_nothing_is_changed(url.replace("//root@", "//plain@"), *BOTH)
        with closing(SqlStore(url.replace("//root@", "//plain@"))) as store:
            asked = "SELECT @@autocommit, @@unique_checks, @@max_sort_length, @@sql_mode"
            [found] = store._database.read_autocommit(
                lambda it: it.rows(Statement(text(asked), ""))
            )
        assert found == (1, 1, 2048, "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION")
    finally:
        own_mariadb.call("SET GLOBAL init_connect = DEFAULT")
        own_mariadb.call("DROP USER plain")


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_what_a_sqlite_file_was_made_with_changes_no_message(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        for pragma in (f"encoding = '{encoding}'", "page_size = 512", "auto_vacuum = FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE theirs (id)")
    check_that_nothing_is_changed(f"sqlite:///{path}", *BOTH)
