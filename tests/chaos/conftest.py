"""The stores of the runs in which workers share slots: each run has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    with RedisServer(tmp_path / "redis") as server:
        yield server.url


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'qframe.db'}?synchronous=normal"
