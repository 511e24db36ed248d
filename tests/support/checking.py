"""Checkers of every sort, each on a server that is real and a scope that is its test's alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from qframe.idempotency.base import Claim, Scope
from qframe.idempotency.database import DatabaseChecker
from qframe.idempotency.redis import RedisChecker
from qframe.idempotency.transactional import TransactionalChecker

DATABASES = ("sqlite", "postgres", "mariadb")
REDIS = ("redis", "redis-cluster", "redis-sentinel")
MARKING = ("redis", *(f"database-{name}" for name in DATABASES))
TRANSACTIONAL = tuple(f"transactional-{name}" for name in DATABASES)
KINDS = {"database": DatabaseChecker, "transactional": TransactionalChecker}


def database_url(request: pytest.FixtureRequest, name: str, folder: Path) -> str:
    """An empty database."""
    if name == "sqlite":
        return f"sqlite:///{folder / f'{uuid.uuid4().hex}.db'}"
    url: str = request.getfixturevalue(name).new_database()
    return url


@contextmanager
def engine_of(url: str, **options: Any) -> Iterator[Engine]:
    """An engine, closed at the end."""
    engine = create_engine(url, **options)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def checker_of(
    request: pytest.FixtureRequest, name: str, folder: Path, **options: Any
) -> Iterator[Any]:
    """A checker by its name: `redis-cluster`, `database-postgres`, `transactional-sqlite`, …"""
    if name in REDIS:
        if "retention" in options:
            options["ttl"] = options.pop("retention")
        server = "redis_server" if name == "redis" else name.replace("-", "_")
        checker = RedisChecker(request.getfixturevalue(server).url, **options)
        checker.open()
        try:
            yield checker
        finally:
            checker.close()
        return
    kind, database = name.split("-")
    with engine_of(database_url(request, database, folder)) as engine:
        made = KINDS[kind](engine, **options)
        made.open()
        yield made


def new_scope() -> Scope:
    return Scope(f"n{uuid.uuid4().hex[:12]}", "t", "g")


Claims = Callable[..., Claim]
