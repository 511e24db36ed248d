"""The stores that the suite holds: each test runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import SERVERS, Bench

from qframe.clock import VirtualClock
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.redis.store import RedisStore
from qframe.stores.sql.store import SqlStore


@pytest.fixture(params=["model", "sqlite", *SERVERS])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store with nothing in it, and a check of all topics afterwards."""
    clock = VirtualClock()

    def opened(namespace: str) -> Store:
        if request.param == "model":
            return ModelStore(namespace=namespace, clock=clock)
        if request.param in SERVERS:
            server = request.getfixturevalue(SERVERS[request.param])
            return RedisStore(server.url, namespace=f"{tmp_path.name}-{namespace}", clock=clock)
        url = f"sqlite:///{tmp_path / 'store.db'}?synchronous=normal"
        return SqlStore(url, namespace=namespace, clock=clock)

    bench = Bench(opened, clock.advance, "topic")
    try:
        yield bench
        bench.check()
    finally:
        bench.close()
