"""What integration tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import RedisServer
from zookeeping import Open

from qframe import QFrame
from qframe.drivers.zookeeper import ZooKeeper


@pytest.fixture(params=["sqlite", "redis"])
def each_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QFrame]:
    """An app on SQLite, then one on Redis; in the end the store's own audit finds nothing."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        app = QFrame(server.url, namespace=tmp_path.name, grace=5)
    else:
        app = QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal", grace=5)
    with app:
        yield app
        app.stop()
        for topic in app.store.topics():
            assert app.store.verify(topic) == []


@pytest.fixture
def open_zookeeper(zookeeper_url: str) -> Iterator[Open]:
    """Starts drivers, on the server of all tests unless told otherwise; closes them in the end."""
    opened: list[ZooKeeper] = []

    def open_zookeeper(
        url: str = zookeeper_url,
        session_s: float = 4.0,
        on_state: Callable[[], None] = lambda: None,
        within: float = 10.0,
    ) -> ZooKeeper:
        made = ZooKeeper(url, session_s=session_s, on_state=on_state)
        opened.append(made)
        made.start(within)
        return made

    yield open_zookeeper
    for each in opened:
        each.close()
