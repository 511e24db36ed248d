"""The stores that the suite holds: each test runs on each of them.

Tests of what is written once, above the operations of stores, run on one store of each sort: other
databases, and a cluster, have no code of their own for it (`written_once`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench
from openers import ALIKE, BENCHES, await_words_of, opener_of

from qframe.clock import VirtualClock


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store with nothing in it, and a check of all topics afterwards."""
    clock = VirtualClock()
    opener = opener_of(request, request.param)
    bench = Bench(lambda namespace: opener(tmp_path, clock, namespace), clock.advance, "topic")
    bench.await_words = await_words_of(request, request.param)
    try:
        yield bench
        bench.check()
    finally:
        bench.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves what is written once to one store of each sort."""
    items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    chosen = getattr(item, "callspec", None)
    is_once = item.get_closest_marker("written_once") is not None
    return is_once and chosen is not None and chosen.params.get("bench") in ALIKE
