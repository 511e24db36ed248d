"""The stores that the suite holds: each test runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench

from qframe.clock import VirtualClock
from qframe.stores.model.store import ModelStore
from qframe.stores.sql.store import SqlStore


@pytest.fixture(params=["model", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store with nothing in it, and a check of all topics afterwards."""
    clock = VirtualClock()
    store: ModelStore | SqlStore
    if request.param == "model":
        store = ModelStore(clock=clock)
    else:
        store = SqlStore(f"sqlite:///{tmp_path / 'store.db'}?synchronous=normal", clock=clock)
    bench = Bench(store, clock.advance, "topic")
    yield bench
    bench.check()
    store.close()
