"""One session of Spark for all tests that need one, with two threads and four tries for a task."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from servers import RedisServer
from sessions import session
from topics import Space


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in which the format is registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    started = session(tmp_path_factory.mktemp("spark"))
    yield started
    started.stop()


@pytest.fixture(params=["sqlite", "redis"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Space]:
    """A place for topics that is this test's alone, on either store."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").url
    else:
        url = f"sqlite:///{tmp_path / 'store.db'}?synchronous=normal"
    space = Space(url, f"test-{uuid.uuid4().hex[:12]}")
    yield space
    space.close()


@pytest.fixture
def redis_space(redis_server: RedisServer) -> Iterator[Space]:
    """A place for topics that is this test's alone, on Redis."""
    space = Space(redis_server.url, f"test-{uuid.uuid4().hex[:12]}")
    yield space
    space.close()
