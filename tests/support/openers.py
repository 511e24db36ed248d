"""The stores that the suite of conformance holds to the contract, and how each is opened, empty.

`qframe/conformance/openers.py` takes the place of this file where the suite is run from a wheel.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import pytest
import redis.cluster
from redis._parsers import CommandsParser
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from qframe.clock import VirtualClock
from qframe.drivers import sql_postgres
from qframe.drivers.sql_postgres import Postgres
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.redis.store import RedisStore
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import Capabilities

REDIS = {"redis": "redis_server", "redis-cluster": "redis_cluster"}
DATABASES = ("postgres", "mariadb")
STORES = ("sqlite", *DATABASES, *REDIS)
BENCHES = ("model", *STORES)
ALIKE = (*DATABASES, "redis-cluster")
"""Those that have their code from another one, for what is written once."""
HALVES = {"postgres": 0, "mariadb": 1, "redis": 0, "redis-cluster": 1}
"""Where another store has the same code: every second life, from here.
So each life is led by one of the two databases, and one of the two kinds of Redis."""

Opener = Callable[[Path, VirtualClock, str], Store]
Kept = TypeVar("Kept")
_KEPT = pytest.StashKey[dict[str, Any]]()


class KeptCommands(CommandsParser):
    """What a cluster's nodes say of their commands, asked once.

    The answer has a few hundred entries, and to read it costs more than most tests do.
    """

    kept: ClassVar[dict[str, Any]] = {}

    def initialize(self, r: Any) -> None:
        """Asks, where nobody has."""
        if not self.kept:
            super().initialize(r)
            self.kept.update(self.commands)
        self.commands = self.kept


class KeptPool(QueuePool):
    """Connections that stores leave open for the next test.

    To PostgreSQL a new one costs as much as most tests do, since each has a process whose caches
    are empty.
    """

    def dispose(self) -> None:
        """Leaves them open."""

    def recreate(self) -> Self:
        """The same pool."""
        return self

    def close(self) -> None:
        """Closes them."""
        super().dispose()


def opener_of(request: pytest.FixtureRequest, name: str) -> Opener:
    """What opens a store by name: with nothing in it, by a folder, a clock and a namespace."""
    if name == "model":
        return lambda _, clock, namespace: ModelStore(namespace=namespace, clock=clock)
    if name in REDIS:
        return _redis_opener(request.getfixturevalue(REDIS[name]).url)
    if name == "postgres":
        return _postgres_opener(request)
    if name == "mariadb":
        return _mariadb_opener(request)
    return _sqlite_opener(_kept(request, "sqlite", lambda: _empty_file(request)))


def await_words_of(request: pytest.FixtureRequest, name: str) -> Callable[[], None]:
    """What returns when all that was said to a store's bells has come to them."""
    if name != "redis-cluster":
        return lambda: None
    await_words: Callable[[], None] = request.getfixturevalue("redis_cluster").await_words
    return await_words  # its nodes tell each other


def share_of(store: str, part: int = 0, parts: int = 1, *, in_gate: bool = False) -> slice:
    """Which of the lives are led on a store; of several parts of them one.

    Where they are led whole, the gate leads every second one of these on servers that cost much.
    """
    if store not in HALVES:
        return slice(None)
    every = 4 if in_gate and parts == 1 and store != "redis" else 2
    return slice(HALVES[store] + every * part, None, every * parts)


def _kept(request: pytest.FixtureRequest, name: str, make: Callable[[], Kept]) -> Kept:
    """What is made once, for all tests of this process."""
    kept = request.config.stash.setdefault(_KEPT, {})
    if name not in kept:
        kept[name] = make()
    made: Kept = kept[name]
    return made


def _redis_opener(url: str) -> Opener:
    def opened(folder: Path, clock: VirtualClock, namespace: str) -> Store:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(redis.cluster, "CommandsParser", KeptCommands)
            return RedisStore(url, namespace=f"{folder.name}-{namespace}", clock=clock)

    return opened


def _mariadb_opener(request: pytest.FixtureRequest) -> Opener:
    """One database for all tests, as that of PostgreSQL is.

    Unless told otherwise, its driver reads all certificates of the machine for each connection.
    """
    server = request.getfixturevalue("mariadb")
    url = _kept(request, "mariadb", lambda: f"{server.new_database()}?ssl_disabled=true")

    def opened(folder: Path, clock: VirtualClock, namespace: str) -> Store:
        return SqlStore(url, namespace=f"{folder.name}-{namespace}", clock=clock)

    return opened


def _postgres_opener(request: pytest.FixtureRequest) -> Opener:
    """One database for all tests, with its tables made once; each test has a namespace."""
    server = request.getfixturevalue("postgres")
    url = _kept(request, "postgres", server.new_database)
    pool = _kept(request, "postgres pool", lambda: _pool_of(request, url))

    def opened(folder: Path, clock: VirtualClock, namespace: str) -> Store:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sql_postgres, "QueuePool", lambda *_, **__: pool)
            store = SqlStore(url, namespace=f"{folder.name}-{namespace}", clock=clock)
        # It asks the connections that it makes itself.
        store._database.backend.notifies = True
        store.capabilities = Capabilities(bell=True)
        return store

    return opened


def _pool_of(request: pytest.FixtureRequest, url: str) -> KeptPool:
    """The connections of all tests to a database; they are closed before its server is."""
    connect = Postgres(make_url(url))._connected
    pool = KeptPool(connect, pool_size=8, max_overflow=64, reset_on_return=None)
    request.session.addfinalizer(pool.close)
    return pool


def _empty_file(request: pytest.FixtureRequest) -> Path:
    """A file with all tables and nothing in them."""
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    file = factory.mktemp("sqlite") / "empty.db"
    SqlStore(f"sqlite:///{file}").close()
    return file


def _sqlite_opener(empty: Path) -> Opener:
    """What opens a store on a copy of a file that has all tables: copied, they cost nothing."""

    def opened(folder: Path, clock: VirtualClock, namespace: str) -> Store:
        file = folder / "store.db"
        if not file.exists():
            shutil.copyfile(empty, file)
        return SqlStore(f"sqlite:///{file}?synchronous=normal", namespace=namespace, clock=clock)

    return opened
