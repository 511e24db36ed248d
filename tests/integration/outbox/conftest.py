"""The databases and stores of the tests of the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from business import engine_of
from checking import DATABASES, database_url
from sqlalchemy import Engine


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.gate), *DATABASES[1:]])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty business database."""
    return database_url(request, request.param, tmp_path)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine for the business database."""
    engine = engine_of(url)
    yield engine
    engine.dispose()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Engine]:
    """An engine for a business database in a file."""
    engine = engine_of(f"sqlite:///{tmp_path}/business.db")
    yield engine
    engine.dispose()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The URL of a message store in a file."""
    return f"sqlite:///{tmp_path}/qframe.db?synchronous=normal"
