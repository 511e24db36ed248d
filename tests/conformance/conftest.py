"""The stores that the suite holds: each test runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import STORES, Bench, KeptPool, opener_of
from servers import MariaDbServer, PostgresServer
from sqlalchemy.engine import make_url

from qframe.clock import VirtualClock
from qframe.drivers.sql_postgres import Postgres
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.sql.store import SqlStore


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tables and nothing in them."""
    file = tmp_path_factory.mktemp("sqlite") / "empty.db"
    SqlStore(f"sqlite:///{file}").close()
    return file


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """One database for all tests, with its tables made once; each test has a namespace."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def postgres_pool(postgres_url: str) -> Iterator[KeptPool]:
    """The connections of all tests to that database."""
    pool = KeptPool(
        Postgres(make_url(postgres_url))._connected,
        pool_size=8, max_overflow=64, reset_on_return=None,
    )  # fmt: skip
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def mariadb_url(mariadb: MariaDbServer) -> str:
    """One database for all tests, as that of PostgreSQL is.

    Unless told otherwise, its driver reads all certificates of the machine for each connection.
    """
    return f"{mariadb.new_database()}?ssl_disabled=true"


@pytest.fixture(params=["model", *STORES])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store with nothing in it, and a check of all topics afterwards."""
    clock = VirtualClock()

    def opened(namespace: str) -> Store:
        if request.param == "model":
            return ModelStore(namespace=namespace, clock=clock)
        return opener_of(request, request.param)(tmp_path, clock, namespace)

    bench = Bench(opened, clock.advance, "topic")
    if request.param == "redis-cluster":  # its nodes tell each other
        bench.await_words = request.getfixturevalue("redis_cluster").await_words
    try:
        yield bench
        bench.check()
    finally:
        bench.close()
