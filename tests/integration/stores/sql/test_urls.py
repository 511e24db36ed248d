"""URLs of database servers: what is refused says why and what to do, and shows no password."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest
from servers import MariaDbServer, PostgresServer

from qframe import BadUrl, StoreForbidden, StoreUnavailable
from qframe.drivers.sql import Transaction
from qframe.stores.open import open_store
from qframe.stores.sql.store import SqlStore

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql+psycopg://u:hunter2@h", "names no database"),
        ("mysql+pymysql://u:hunter2@h", "names no database"),
        ("postgresql+asyncpg://u:hunter2@h/d", "does not use the driver postgresql.asyncpg"),
        ("mysql+mysqldb://u:hunter2@h/d", "does not use the driver mysql.mysqldb"),
        ("postgresql://u:hunter2@h/d?prepare_threshold=often", "is not a number"),
        ("postgresql://u:hunter2@h/d?migrate=hunter", "is not an option"),
        ("postgres://u:hunter2@h/d?migrate=hunter", "is not an option"),
        ("mongodb://u:hunter2@h/d", r"store 'mongodb://\*\*\*@h/d': it names no store"),
        ("mongodb://h/d?password=hunter2", "store 'mongodb://h/d': it names no store"),
        ("redis://u:hunter2@h:port", "store 'redis://...@h:port': its port is not a number"),
        (
            "postgresql://u:hunter2@h:port/d",
            r"store 'postgresql://\*\*\*@h:port/d': it is not a URL",
        ),
        ("redis://u:a/hunter2@h", r"store 'redis://\*\*\*@h': there is an @ after .* %2F for /"),
        ("redis://u:a#hunter2@h", r"there is an @ after the host; .* %23 for #"),
        ("redis://u:a?hunter2@h", r"there is an @ after the host; .* %3F for \?"),
        (
            "redis+cluster://u:x@hunter2@h:1,i:2",
            r"'redis\+cluster://\*\*\*@h:1,i:2': there are two",
        ),
        ("postgresql://u:x@hunter2@h/d", "there are two @ before the host; .* write %40 for @"),
        ("mysql+pymysql://u:x@hunter2@h/d", "there are two @ before the host"),
        ("u:hunter2@h/0", r"store '\*\*\*@h/0': it names no store"),
        ("u:hunter2", r"store 'u:\*\*\*': it names no store"),
        ("model://?migrate=hunter2", "store 'model://': .* has neither a name nor options"),
        ("sqlite:///q.db?key=hunter2", "store 'sqlite:///q.db': key is not an option"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_before_anything_is_asked(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match=why) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [("psycopg", "postgresql://h/d", "postgres"), ("pymysql", "mariadb+pymysql://h/d", "mysql")],
)
def test_a_driver_that_is_not_installed_is_named_with_what_installs_it(
    module: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadUrl, match=rf"pip install 'qframe\[{extra}\]'"):
        open_store(url)


@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgresql+psycopg", "mysql", "mysql+pymysql", "mariadb+pymysql"]
)
def test_a_server_that_is_not_there_is_unavailable_and_its_password_is_not_told(
    scheme: str,
) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store(f"{scheme}://u:{SECRET}@127.0.0.1:9/d?connect_timeout=2")
    assert SECRET not in str(caught.value)


def test_short_schemes_name_the_same_stores(
    postgres: PostgresServer, mariadb: MariaDbServer
) -> None:
    for url in (
        postgres.new_database().replace("+psycopg", ""),
        postgres.new_database().replace("postgresql+psycopg", "postgres"),
        mariadb.new_database().replace("+pymysql", ""),
        mariadb.new_database().replace("mysql+", "mariadb+"),
    ):
        store = open_store(url)
        assert store.capabilities.bell is ("postgres" in url)
        assert store.topics() == []
        store.close()


def test_a_database_or_user_that_is_not_there_is_refused_with_what_to_check(
    postgres: PostgresServer, mariadb: MariaDbServer
) -> None:
    for url in (
        postgres.url_of("absent"),
        mariadb.url_of("absent"),
        postgres.new_database().replace("qframe@", f"stranger:{SECRET}@"),
        mariadb.new_database().replace("root@", f"stranger:{SECRET}@"),
    ):
        with pytest.raises(StoreForbidden, match="check user, password and database") as caught:
            open_store(url)
        assert SECRET not in str(caught.value)


def test_an_option_that_the_driver_does_not_know_or_take_is_refused(
    postgres: PostgresServer, mariadb: MariaDbServer
) -> None:
    for server in (postgres, mariadb):
        with pytest.raises(BadUrl, match="colour"):
            open_store(f"{server.new_database()}?colour={SECRET}")
        with pytest.raises(BadUrl, match="soon"):
            open_store(f"{server.new_database()}?connect_timeout=soon")


def test_a_search_path_in_the_url_takes_none_of_the_other_settings_away(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_database()
    postgres.call("CREATE SCHEMA shop", url.rpartition("/")[2])
    settings = ["search_path", "lock_timeout", "idle_in_transaction_session_timeout",
                "enable_seqscan", "jit"]  # fmt: skip

    def look(transaction: Transaction) -> list[str]:
        names = ", ".join(f"current_setting('{name}')" for name in settings)
        transaction._cursor.execute(f"SELECT {names}")
        return list(transaction._cursor.fetchone())

    chosen = "-csearch_path%3Dshop%20-c%20lock_timeout%3D5s"
    with closing(SqlStore(f"{url}?options={chosen}")) as store:
        assert store._database.read_autocommit(look) == ["shop", "5s", "30s", "off", "off"]


def test_a_search_path_without_a_schema_is_refused_with_what_to_check(
    postgres: PostgresServer,
) -> None:
    with pytest.raises(StoreForbidden, match="no schema has been selected to create in"):
        open_store(f"{postgres.new_database()}?options=-csearch_path%3Dabsent")
