"""Asking ZooKeeper about many nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from qframe.drivers.zookeeper import FAILURES, ZooKeeper

AT_ONCE: Final = 500
MEMBERS: Final = "members"
RETIRING: Final = "retiring"

_ABOUT_NODES: Final = (
    BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency,
)  # fmt: skip


def gathered(
    zookeeper: ZooKeeper, send: Callable[[Any], Any], items: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Sends a request for each item, and gathers the replies; errors about nodes are replies.

    Raises:
        CoordinatorUnavailable: if a reply is lost.
    """
    if not zookeeper.connected:
        raise zookeeper.unavailable(ConnectionLoss())
    replies: list[tuple[Any, Any]] = []
    for start in range(0, len(items), AT_ONCE):
        sent = [(item, send(item)) for item in items[start : start + AT_ONCE]]
        for item, reply in sent:
            try:
                replies.append((item, reply.get(timeout=zookeeper.session_s)))
            except _ABOUT_NODES as error:
                replies.append((item, error))
            except FAILURES as error:
                raise zookeeper.unavailable(error) from error
    return replies


def children_of(zookeeper: ZooKeeper, path: str) -> list[tuple[str, Any]]:
    """The children of a node that exist, with their values."""
    client = zookeeper.client
    [(_, names)] = gathered(zookeeper, client.get_children_async, [path])
    if not is_good(names):
        return []
    replies = gathered(zookeeper, lambda name: client.get_async(f"{path}/{name}"), names)
    return [(name, reply) for name, reply in replies if is_good(reply)]


def is_good(reply: object) -> bool:
    """Whether a reply is not an error."""
    return not isinstance(reply, BaseException)


def owner_value(name: str, base: int) -> bytes:
    """The value of an owner node: the name of its member, and the base of its epoch."""
    return f"{name} {base:x}".encode()


def name_of(value: bytes) -> str:
    """The member's name in the value of an owner node."""
    return value.decode().partition(" ")[0]


def base_of(value: bytes) -> int:
    """The base in the value of an owner node."""
    return int(value.decode().partition(" ")[2], 16)


def epoch_of(base: int, czxid: int) -> str:
    """An owner's epoch: the number of the transaction that made its node, and no other node."""
    return f"{base + czxid:016x}"


def worker_of(name: str) -> str:
    """The worker of the member with this name, which ends with its session."""
    return name.partition("~")[0]
