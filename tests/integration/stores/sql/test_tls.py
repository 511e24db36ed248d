"""Databases over TLS: what the URL says holds, and what is wrong is told with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate
from database_servers import give_to_postgres
from databases import begun
from eventually import eventually
from servers import MariaDbServer, PostgresServer
from sqlalchemy import select, text

from qframe import BadUrl, StoreForbidden, StoreUnavailable
from qframe.drivers.sql import Statement
from qframe.stores.open import open_store
from qframe.stores.sql.store import SqlStore

CIPHER = Statement(
    select(text("variable_value")).select_from(text("information_schema.session_status"))
    .where(text("variable_name = 'Ssl_cipher'")), "",
)  # fmt: skip


@pytest.fixture(scope="module")
def mariadb_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaDbServer, Path]]:
    """A server that speaks TLS, and the certificate to trust."""
    folder = tmp_path_factory.mktemp("mariadb")
    made, key = certificate(folder / "tls", "server")
    with MariaDbServer(folder, config={"ssl-cert": str(made), "ssl-key": str(key)}) as server:
        yield server, made


@pytest.fixture(scope="module")
def postgres_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Path]]:
    """A server that speaks TLS, and the certificate to trust."""
    folder = tmp_path_factory.mktemp("postgres")
    with PostgresServer(folder) as server:
        made, key = certificate(server._data, "tls")
        for file in (made, key):
            give_to_postgres(file)
        for setting in ("ssl = on", f"ssl_cert_file = '{made}'", f"ssl_key_file = '{key}'"):
            server.call(f"ALTER SYSTEM SET {setting}")
        server.call("SELECT pg_reload_conf()")
        eventually(lambda: server.call("SHOW ssl") == [("on",)])
        trusted = folder / "trusted.crt"
        trusted.write_bytes(made.read_bytes())
        yield server, trusted


def test_a_file_of_mariadbs_url_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for option in ("ssl_ca", "ssl_cert"):
        with pytest.raises(BadUrl, match=f"{tmp_path}/absent cannot be used .No such file"):
            open_store(f"mysql://u:hunter2@h/d?{option}={tmp_path}/absent")
    with pytest.raises(BadUrl, match="ssl is not an option; use ssl_ca="):
        open_store("mysql://u:hunter2@h/d?ssl=true")


def test_a_password_of_a_key_for_mariadb_is_used(
    mariadb_tls: tuple[MariaDbServer, Path], tmp_path: Path
) -> None:
    server, trusted = mariadb_tls
    made, key = certificate(tmp_path, "client", password="hunter2")
    url = f"{server.new_database()}?ssl_ca={trusted}&ssl_cert={made}&ssl_key={key}"
    with pytest.raises(BadUrl, match=r"key has a password.; name its password in the URL"):
        open_store(url)
    # The server does not know who has signed it, which it says to a client that could read its key.
    with pytest.raises(StoreUnavailable, match=r"(not accept|breaks off).*\(ssl_cert=…, ssl_key="):
        open_store(f"{url}&ssl_key_password=hunter2")


@pytest.mark.gate
def test_users_of_whom_tls_is_required_are_told_so(
    postgres_tls: tuple[PostgresServer, Path], mariadb_tls: tuple[MariaDbServer, Path]
) -> None:
    server, _ = mariadb_tls
    server.call("CREATE OR REPLACE USER secure IDENTIFIED BY 'hunter2' REQUIRE SSL")
    url = server.new_database().replace("root@", "secure:hunter2@")
    with pytest.raises(StoreForbidden, match="user of whom TLS is required needs it"):
        open_store(f"{url}?ssl_disabled=true")
    served, _ = postgres_tls
    rules = served._data / "pg_hba.conf"
    before = rules.read_text()
    served.call("CREATE ROLE secure LOGIN")
    rules.write_text(f"hostssl all secure all trust\nhost all secure all reject\n{before}")
    served.call("SELECT pg_reload_conf()")
    url = served.new_database().replace("qframe@", "secure@")
    try:
        with pytest.raises(StoreForbidden, match=r"no encryption.*use TLS .sslmode=verify-full"):
            eventually(lambda: open_store(f"{url}?sslmode=disable").close())
    finally:
        rules.write_text(before)
        served.call("SELECT pg_reload_conf()")


def test_a_key_that_does_not_fit_and_one_with_a_password_are_told_as_such_by_postgresql(
    postgres_tls: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    server, trusted = postgres_tls
    (made, _), (_, wrong) = (certificate(tmp_path, name) for name in ("one", "two"))
    locked, secret = certificate(tmp_path, "three", password="hunter2")
    url = f"{server.new_database()}?sslmode=verify-ca&sslrootcert={trusted}"
    for options, remedy in (
        (f"sslcert={made}&sslkey={wrong}", "name the key to which .* in sslkey="),
        (f"sslcert={locked}&sslkey={secret}", "name the key's password in sslpassword="),
    ):
        with pytest.raises(StoreUnavailable, match=remedy):
            open_store(f"{url}&{options}")


def test_a_file_that_is_away_while_it_is_replaced_ends_no_worker(
    mariadb_tls: tuple[MariaDbServer, Path], tmp_path: Path
) -> None:
    server, trusted = mariadb_tls
    named = tmp_path / "authority.pem"
    named.write_bytes(trusted.read_bytes())
    store = SqlStore(f"{server.new_database()}?ssl_ca={named}")
    topic = begun(store, "stream")
    named.unlink()
    store.reconnect()
    with pytest.raises(StoreUnavailable, match=f"{named} cannot be used"):
        store.stats(topic)
    named.write_bytes(trusted.read_bytes())
    store.stats(topic)
    store.close()


@pytest.mark.parametrize(
    "options", ["ssl_disabled=false", "ssl_verify_cert=true", "ssl_verify_identity=1"]
)
def test_mariadbs_switches_are_read_as_yes_or_no_and_forget_no_file(
    mariadb_tls: tuple[MariaDbServer, Path], tmp_path: Path, options: str
) -> None:
    server, trusted = mariadb_tls
    url = server.new_database().replace("127.0.0.1", "localhost")
    store = SqlStore(f"{url}?ssl_ca={trusted}&{options}")
    assert store._database.read_autocommit(lambda it: it.row(CIPHER)) != ("",)
    store.close()
    other, _ = certificate(tmp_path, "other")
    with pytest.raises(StoreUnavailable, match="not trusted"):
        open_store(f"{url}?ssl_ca={other}&{options}")


@pytest.mark.gate
def test_a_server_whose_certificate_is_not_trusted_or_that_has_none_is_told_as_such(
    postgres_tls: tuple[PostgresServer, Path],
    mariadb_tls: tuple[MariaDbServer, Path],
    postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    other, _ = certificate(tmp_path, "other")
    for server, options in (
        (postgres_tls[0], f"sslmode=verify-full&sslrootcert={other}"),
        (mariadb_tls[0], f"ssl_ca={other}"),
    ):
        with pytest.raises(StoreUnavailable, match=r"not trusted.*the file of the authority"):
            open_store(f"{server.new_database()}?{options}")
    with pytest.raises(StoreUnavailable, match="does not speak TLS"):
        open_store(f"{postgres.new_database()}?sslmode=require")


def test_an_option_of_libpq_that_is_wrong_is_not_taken_for_a_server_that_refuses(
    postgres_tls: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    server, trusted = postgres_tls
    url = server.new_database()
    open_store(f"{url}?sslmode=verify-ca&sslrootcert={trusted}").close()
    with pytest.raises(StoreUnavailable, match=r"by TLS.*name PEM files that this user may read"):
        open_store(f"{url}?sslmode=verify-ca&sslrootcert={tmp_path}/absent")
    with pytest.raises(BadUrl, match=r"an option is wrong .*invalid sslmode"):
        open_store(f"{url}?sslmode=verify")
