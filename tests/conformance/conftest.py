"""The stores that the suite holds: each test runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench
from openers import BENCHES, await_words_of, opener_of

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
