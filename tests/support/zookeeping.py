"""What tests of the ZooKeeper driver share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from servers import ZooKeeperServer

from qframe.drivers.zookeeper import ZooKeeper

Open = Callable[..., ZooKeeper]


@contextmanager
def nobody(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client without a user, and without a chroot."""
    client = KazooClient(server.address)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def shorter_than(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


def ask(asked: Any) -> Any:
    return asked.get(timeout=60)


def root_of(url: str) -> str:
    return "/" + url.rpartition("/")[2]


def with_user(url: str, user: str) -> str:
    return url.replace("://", f"://{user}@")
