"""The stores that the suite holds: each test runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import STORES, Bench, opener_of
from servers import MariaDbServer, PostgresServer

from qframe.clock import VirtualClock
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """One database for all tests, with its tables made once; each test has a namespace."""
    return postgres.new_database()


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
