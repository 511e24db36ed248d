"""Redis servers and the connections to them: which one has a key, and what is sent and read."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import redis as client
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.driver_info import DriverInfo
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadUrl
from qframe.redaction import check_user_info, shown_url

TRUSTED_S: Final = 1.0
PIECE: Final = 16_384
CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 10.0
LONGEST_TIMEOUT_S: Final = 86_400
SCHEMES: Final = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster",
                  "rediss+cluster")  # fmt: skip

BROKEN: Final = (client.ConnectionError, client.TimeoutError, OSError)
# All that a driver raises; what it says of a whole cluster is no RedisError.
FAILURES: Final = (RedisError, RedisClusterException, OSError)


class NoReply(NamedTuple):
    """In place of a reply that never came."""

    why: BaseException


class Node:
    """One server's connections; each is used by one thread at a time, and kept for the next.

    Attributes:
        breaks: how many connections have broken so far.
    """

    def __init__(self, pool: client.ConnectionPool) -> None:
        self._pool = pool
        self._free: deque[tuple[Any, float]] = deque()
        self.breaks: int = 0

    def begin(self) -> Sending:
        """A sequence of requests on one connection.

        Raises:
            one of `BROKEN`: if there is no connection to be had.
        """
        return Sending(self, self._checked_out())

    def give_back(self, connection: Any) -> None:
        """Keeps a connection for the next."""
        self._free.append((connection, SYSTEM_CLOCK.monotonic_s()))

    def give_up(self, connection: Any) -> None:
        """Closes a connection that has broken, and all others that nobody uses now."""
        self.breaks += 1
        self._close(connection)
        self.disconnect()

    def disconnect(self) -> None:
        """Closes the connections that nobody uses now."""
        while self._free:
            self._close(self._free.popleft()[0])

    def _checked_out(self) -> Any:
        while self._free:
            connection, used_s = self._free.pop()
            if SYSTEM_CLOCK.monotonic_s() - used_s < TRUSTED_S:
                return connection
            with suppress(*BROKEN):
                if not connection.can_read():
                    return connection
            self.breaks += 1
            self._close(connection)
        try:
            return self._pool.get_connection()
        except FAILURES:
            raise
        except BaseException:
            # By a signal's handler: the pool has a connection that is half made, and would give it.
            self._pool.disconnect(inuse_connections=False)
            raise

    def _close(self, connection: Any) -> None:
        with suppress(*BROKEN):
            connection.disconnect()
        self._pool.release(connection)


class Sending:
    """Requests on their way to one server, written in large pieces while more are made."""

    def __init__(self, node: Node, connection: Any) -> None:
        self._node = node
        self._connection = connection
        self._pending: list[bytes] = []
        self._size = 0
        self._broken: BaseException | None = None
        self.numbers: list[int] = []

    def add(self, number: int, packed: bytes) -> None:
        """Takes a request; its reply goes to `number`, or to nobody if that is negative."""
        self.numbers.append(number)
        self._pending.append(packed)
        self._size += len(packed)
        if self._size >= PIECE:
            self.flush()

    def flush(self) -> None:
        """Sends what is not sent yet."""
        if self._broken is None and self._pending:
            try:
                self._connection.send_packed_command([b"".join(self._pending)], check_health=False)
            except BROKEN as error:
                self._broken = error
        self._pending.clear()
        self._size = 0

    def replies(self) -> list[Any]:
        """A reply for each request: a value, an error, or `NoReply`."""
        replies: list[Any] = []
        try:
            while self._broken is None and len(replies) < len(self.numbers):
                try:
                    replies.append(self._connection.read_response())
                except (ResponseError, BusyLoadingError) as error:
                    replies.append(error)
                except BROKEN as error:
                    self._broken = error
        except BaseException:
            self.abandon()
            raise
        if self._broken is None:
            self._node.give_back(self._connection)
            return replies
        # What is still to come would answer somebody else.
        self.abandon()
        return replies + [NoReply(self._broken)] * (len(self.numbers) - len(replies))

    def abandon(self) -> None:
        """Gives up what was begun, since what was to be sent could not be made."""
        self._node.give_up(self._connection)


class RedisServers(Protocol):
    """Where requests go."""

    @property
    def breaks(self) -> int:
        """How many connections have broken so far."""

    def node_of(self, key: bytes) -> Node:
        """The server that has a key."""

    def asked(self, error: AskError) -> Node:
        """The server that a redirection names."""

    def look_again(self) -> None:
        """Finds out anew who has what."""

    def client_of(self, key: bytes) -> client.Redis:
        """A client of the server that has a key, for what is rare."""

    def all(self) -> list[client.Redis]:
        """A client of each server that takes writes."""

    def close(self) -> None:
        """Closes all connections."""


class _One:
    """A single server, or whichever is the primary behind Sentinels."""

    def __init__(self, server: client.Redis, sentinel: Sentinel | None = None) -> None:
        self._client = server
        self._sentinel = sentinel
        self._node = Node(server.connection_pool)

    @property
    def breaks(self) -> int:
        return self._node.breaks

    def node_of(self, key: bytes) -> Node:  # noqa: ARG002 - it has them all
        return self._node

    def asked(self, error: AskError) -> Node:  # noqa: ARG002 - nobody else is known
        return self._node

    def look_again(self) -> None:
        self._node.disconnect()

    def client_of(self, key: bytes) -> client.Redis:  # noqa: ARG002
        return self._client

    def all(self) -> list[client.Redis]:
        return [self._client]

    def close(self) -> None:
        self._node.disconnect()
        self._client.close()
        for sentinel in self._sentinel.sentinels if self._sentinel else ():
            sentinel.close()


class _Cluster:
    """A cluster; redis-py keeps the map of its slots."""

    def __init__(self, seeds: list[ClusterNode], options: dict[str, Any]) -> None:
        self._seeds = seeds
        self._options = options
        self._cluster: RedisCluster | None = None
        self._nodes: dict[str, Node] = {}

    @property
    def breaks(self) -> int:
        return sum(node.breaks for node in list(self._nodes.values()))

    @property
    def cluster(self) -> RedisCluster:
        """The cluster, found when it is first needed."""
        if self._cluster is None:
            self._cluster = RedisCluster(startup_nodes=self._seeds, **self._options)
        return self._cluster

    def node_of(self, key: bytes) -> Node:
        cluster = self.cluster
        return self._node(cluster.nodes_manager.get_node_from_slot(cluster.keyslot(key)))

    def asked(self, error: AskError) -> Node:
        node = self.cluster.get_node(host=error.host, port=error.port)
        if node is None:
            raise client.ConnectionError(f"no such node: {error.host}:{error.port}")
        return self._node(node)

    def look_again(self) -> None:
        self.cluster.nodes_manager.initialize()

    def client_of(self, key: bytes) -> client.Redis:
        cluster = self.cluster
        node = cluster.nodes_manager.get_node_from_slot(cluster.keyslot(key))
        return self._client(node)

    def all(self) -> list[client.Redis]:
        return [self._client(node) for node in self.cluster.get_primaries()]

    def close(self) -> None:
        for node in self._nodes.values():
            node.disconnect()
        if self._cluster is not None:
            self._cluster.close()

    def _client(self, node: ClusterNode) -> client.Redis:
        found: client.Redis = self.cluster.get_redis_connection(node)
        return found

    def _node(self, node: ClusterNode) -> Node:
        known = self._nodes.get(node.name)
        if known is None:
            known = self._nodes[node.name] = Node(self._client(node).connection_pool)
        return known


@cache
def _driver_info() -> DriverInfo:
    """The version that connections tell; it is read once, from the files of the package."""
    return DriverInfo()


def servers_of(url: str) -> tuple[RedisServers, str]:
    """Where a URL's requests go, and the URL without its password."""
    check_user_info("store", url)
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    shown = shown_url(url)  # without options, since one may be a password
    scheme = parts.scheme.lower()
    remedy = (
        "use redis://host:6379/0, redis+sentinel://host:26379/name or redis+cluster://host:6379"
    )
    if scheme not in SCHEMES or not hosts:
        raise BadUrl("store", shown, "it names no server", remedy)
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0), "protocol": 2, "socket_timeout": ANSWER_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S, "max_connections": 2**31 - 1,
        "driver_info": _driver_info(),
    }  # fmt: skip
    name, _, password = credentials.partition(":")
    if password:
        options["password"] = unquote(password)
    if name:
        options["username"] = unquote(name)
    if scheme.startswith("rediss"):
        options["ssl"] = True
    path = parts.path.strip("/")
    try:
        for option, value in parse_qsl(parts.query):
            options[option] = _seconds(option, value) if option.endswith("timeout") else value
        places = [
            _place(host, 26379 if "sentinel" in scheme else 6379) for host in hosts.split(",")
        ]
        if scheme.endswith("+cluster"):
            if path not in ("", "0"):
                raise BadUrl(
                    "store", shown, "a cluster has no numbered databases", "remove the path"
                )
            return _Cluster([ClusterNode(host, port) for host, port in places], options), shown
        if scheme.endswith("+sentinel"):
            service, _, database = path.partition("/")
            if not service:
                raise BadUrl("store", shown, "it names no service", remedy)
            own = {key: value for key, value in options.items() if key.startswith("s")}
            sentinel = Sentinel(places, sentinel_kwargs={**own, "protocol": 2})
            primary = sentinel.master_for(service, db=int(database or 0), **options)
            return _One(primary, sentinel), shown
        if len(places) > 1:
            raise BadUrl("store", shown, "it names several servers", remedy)
        [(host, port)] = places
        return _One(client.Redis(host=host, port=port, db=int(path or 0), **options)), shown
    except (ValueError, TypeError) as error:
        if isinstance(error, BadUrl):
            raise
        why = "its port is not a number" if "Port" in str(error) else str(error)
        raise BadUrl("store", shown, why, remedy) from None


def _seconds(option: str, text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= LONGEST_TIMEOUT_S:  # not a number is neither
        raise ValueError(f"{option}={text} is not above 0 and up to {LONGEST_TIMEOUT_S} s")
    return seconds


def _place(text: str, port: int) -> tuple[str, int]:
    parsed = urlsplit(f"//{text}")
    if not parsed.hostname:
        raise ValueError(f"{text!r} is not a host")
    return parsed.hostname, parsed.port or port
