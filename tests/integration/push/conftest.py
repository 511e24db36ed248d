"""Each test of pushes has a receiver, an app on SQLite or Redis, and runs it in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from receiving import Receiver
from redis_servers import RedisServer

from qframe import QFrame


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(params=["sqlite", "redis"])
def app(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> Iterator[QFrame]:
    url = redis_server.url if request.param == "redis" else f"sqlite:///{tmp_path / 'push.db'}"
    with QFrame(store=url, namespace=f"push-{tmp_path.name}"[-60:], grace=2) as made:
        yield made


@pytest.fixture
def running(app: QFrame) -> Iterator[Callable[[], None]]:
    threads: list[threading.Thread] = []

    def run() -> None:
        threads.append(threading.Thread(target=app.run))
        threads[-1].start()

    yield run
    app.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
