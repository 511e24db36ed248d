"""The databases of the tests of the SQL store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import MariaDbServer, PostgresServer

from qframe.stores.sql.store import SqlStore


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> PostgresServer | MariaDbServer:
    """Each database server."""
    found: PostgresServer | MariaDbServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def url(server: PostgresServer | MariaDbServer) -> str:
    """An empty database on it."""
    return server.new_database()


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    """A store in that database."""
    store = SqlStore(url)
    yield store
    store.close()
