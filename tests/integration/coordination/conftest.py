"""Workers that share slots, on every coordinator there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis_servers import RedisServer
from sharing import Shop

from qframe import Message, Topic


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.gate),
        "redis",
        "sqlite+zookeeper",
        pytest.param("redis+zookeeper", marks=pytest.mark.gate),
    ]
)
def shop(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> Callable[..., Shop]:
    """Makes workers of one store and coordinator."""
    store, _, coordinator = request.param.partition("+")
    url = redis_server.url if store == "redis" else f"sqlite:///{tmp_path / 'shop.db'}"
    where = request.getfixturevalue("zookeeper").url if coordinator else ""

    def make(topic: Topic, handle: Callable[[Message], None], **options: Any) -> Shop:
        return Shop(url, where, tmp_path.name[-60:], topic, handle, **options)

    return make
