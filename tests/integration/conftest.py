"""What integration tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from zookeeping import Open

from qframe.drivers.zookeeper import ZooKeeper


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
