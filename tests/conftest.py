"""What all tests share: no settings but their own, and servers that are started when first used."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from absence import pytest_runtest_makereport  # noqa: F401 - pytest finds it here
from closing_words import ClosingWords, ServerLogs
from file_order import in_order
from gate import (
    PARTS,
    is_in_gate,
    is_in_part,
    may_be_in_gate,
    seed_of_today,
    server_of,
)
from hypothesis import HealthCheck, settings
from loopback import guard, refused
from namespaces import placed
from promises import HELD, held
from servers import (
    MariaDbServer,
    PostgresServer,
    RedisCluster3,
    RedisServer,
    SentinelSet,
    ZooKeeperServer,
)

# No test is timed: a machine may be busy.
settings.register_profile("qframe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("qframe")


# Each connection to MariaDB and each HTTP client reads all authorities that the machine trusts,
# which takes longer than most tests. For all processes of the tests it is one, which signs nothing.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "nobody.crt")

guard()

SIZES = ("QFRAME_CHAOS_", "QFRAME_SPARK_")
WITH_A_SPARK_OF_THEIR_OWN = ("test_failing_tasks.py", "test_stream_kills.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", action="store_true", help="what tests/gate.py says of `make test`")
    parser.addoption(
        "--draw",
        type=int,
        metavar="SEED",
        help="what the gate draws: -1 is nothing",
    )
    parser.addoption("--parts", metavar="NAMES", help=f"tests of these alone: {', '.join(PARTS)}")


def pytest_configure(config: pytest.Config) -> None:
    """Checks the parts, and draws once for all processes: midnight may come between them."""
    if unknown := set(_parts(config)) - PARTS.keys():
        raise pytest.UsageError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if config.option.draw is None:
        config.option.draw = seed_of_today()
    config.pluginmanager.register(ServerLogs())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ClosingWords())


def pytest_report_header(config: pytest.Config) -> str | None:
    """The seed of the gate's share, which repeats it on another day."""
    seed = config.option.draw
    return f"gate: drawn by seed {seed}, again by --draw {seed}" if config.option.gate else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files without a test that is asked for; they need not be imported."""
    if not collection_path.match("test_*.py"):
        return None
    if config.option.gate and not may_be_in_gate(collection_path):
        return True
    parts = _parts(config)
    return True if parts and not any(is_in_part(collection_path, each) for each in parts) else None


def _parts(config: pytest.Config) -> list[str]:
    return (config.option.parts or "").split()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage while tests are collected, nor ever again among what is there then.

    That is half a million objects, which stay till the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Notes the promises that tests hold, keeps those of the gate, and puts files in order.

    A run of a given size takes the time it takes.
    """
    config.stash[HELD] = held(items)
    if config.option.gate:
        left_out = [item for item in items if not is_in_gate(item, config.option.draw)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_in_gate(item, config.option.draw)]
    items[:] = in_order(map(placed, items))
    if any(name.startswith(SIZES) for name in os.environ):
        for item in items:
            item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where files stay whole, all that use the session of Spark stay together: it is one JVM.

    So do, in the gate, the tests of stores on one server: one process starts it, not each.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if "/spark/" in file and not file.endswith(WITH_A_SPARK_OF_THEIR_OWN):
                return "spark"
            return (config.option.gate and server_of(nodeid)) or file

    return OneSession(config, log)


@pytest.fixture(autouse=True)
def no_connection_beyond_loopback() -> Iterator[None]:
    """Fails a test that has tried to reach another machine, also where it took that for a no."""
    refused.clear()
    yield
    assert not refused, f"this test tried to reach {', '.join(refused)}"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes QFRAME_ variables out of the environment."""
    for name in [name for name in os.environ if name.startswith("QFRAME_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests: nobody kills it or flushes it, each has a namespace of its own."""
    with RedisServer(tmp_path_factory.mktemp("redis-server")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster3]:
    """One cluster for all tests, shared as the server is; its slots may be moved."""
    with RedisCluster3(tmp_path_factory.mktemp("redis-cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def redis_sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelSet]:
    """One primary behind Sentinels for all tests of a module, shared as the server is.

    Few modules need it, and five processes that ask each other cost more than their start.
    """
    with SentinelSet(tmp_path_factory.mktemp("redis-sentinel")) as servers:
        yield servers


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for all tests: nobody kills it, each has a chroot of its own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zookeeper_url(zookeeper: ZooKeeperServer) -> str:
    """The server that all tests share, with a chroot that is this test's alone."""
    return f"{zookeeper.url}/test-{uuid.uuid4()}"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One server for all tests: nobody kills it, each has a database or a namespace of its own."""
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """One server for all tests, shared as that of PostgreSQL is."""
    with MariaDbServer(tmp_path_factory.mktemp("mariadb")) as server:
        yield server
