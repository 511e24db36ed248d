"""Redis servers: which one has a key."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import redis as client
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import URL_QUERY_ARGUMENT_PARSERS
from redis.driver_info import DriverInfo
from redis.exceptions import AskError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from qframe.digits import decimal_number, whole_number
from qframe.drivers.redis_connections import Node
from qframe.drivers.tls import OF_REDIS, fault_of
from qframe.errors import BadUrl
from qframe.redaction import check_user_info, shown_url

CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 10.0
LONGEST_TIMEOUT_S: Final = 86_400
OF_SENTINELS: Final = "sentinel_"
OF_REPLICAS: Final = ("wait_replicas", "wait_timeout")
DURATIONS: Final = ("socket_timeout", "socket_connect_timeout")
_CHECKS: Final = ("none", "optional", "required")
SOCKET: Final = "unix"
SCHEMES: Final = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster",
                  "rediss+cluster", SOCKET)  # fmt: skip


class Replicas(NamedTuple):
    """How many replicas are to have a write before it counts, and how long that may take."""

    needed: int
    within_ms: int


class RedisServers(Protocol):
    """Where requests go.

    Attributes:
        is_one: whether one server has all keys.
    """

    is_one: bool

    @property
    def breaks(self) -> int:
        """How often connections were broken, or let go."""

    def node_of(self, key: bytes) -> Node:
        """The server that has a key."""

    def asked(self, error: AskError) -> Node:
        """The server that a redirection names."""

    def look_again(self) -> None:
        """Finds out anew who has what."""

    def all(self) -> list[client.Redis]:
        """A client of each server that takes writes."""

    def close(self) -> None:
        """Closes all connections."""


class Sentinels(Sentinel):
    """Sentinels that say why they could not be asked; redis-py has it in a text alone."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """The primary's address; a group of the errors is the cause where none names it."""
        faults: list[Exception] = []
        base: Sentinel = self
        sentinels: list[Any] = base.sentinels
        for number, sentinel in enumerate(sentinels):
            try:
                state = sentinel.sentinel_masters().get(service_name)
            except (client.ConnectionError, client.TimeoutError) as error:
                faults.append(error)
                continue
            if state and base.check_master_state(state, service_name):
                sentinels[0], sentinels[number] = sentinel, sentinels[0]  # it is asked first now
                return state["ip"], state["port"]
        is_one_asked = len(faults) < len(sentinels)
        why = "no Sentinel names a primary for it" if is_one_asked else "no Sentinel can be asked"
        raise MasterNotFoundError(why) from ExceptionGroup(why, faults) if faults else None


class _One:
    """A single server, or whichever is the primary behind Sentinels."""

    is_one = True

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

    def all(self) -> list[client.Redis]:
        return [self._client]

    def close(self) -> None:
        self._node.disconnect()
        self._client.close()
        for sentinel in self._sentinel.sentinels if self._sentinel else ():
            sentinel.close()


class _Cluster:
    """A cluster; redis-py keeps the map of its slots."""

    is_one = False

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

    def all(self) -> list[client.Redis]:
        return [self._client(node) for node in self.cluster.get_primaries()]

    def close(self) -> None:
        for node in list(self._nodes.values()):  # a copy: whoever still asks may find another
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
    check_user_info(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may have a part of the password
        raise BadUrl(
            "store", shown_url(url), "its brackets are not those of an IPv6 address",
            "write redis://[::1]:6379, and in a user or a password %5B for [, %5D for ]",
        ) from None  # fmt: skip
    credentials, _, hosts = parts.netloc.rpartition("@")
    shown = shown_url(url)  # without options, since one may be a password
    scheme = parts.scheme.lower()
    remedy = (
        "use redis://host:6379/0, redis+sentinel://host:26379/name, redis+cluster://host:6379 "
        "or unix:///run/redis.sock"
    )
    path = parts.path.strip("/")
    if scheme not in SCHEMES or not (path if scheme == SOCKET else hosts):
        raise BadUrl("store", shown, "it names no server", remedy)
    if scheme == SOCKET and hosts:
        why = f"it names the host {hosts} before the path"
        raise BadUrl("store", shown, why, "write unix:///run/redis.sock, with three slashes")
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
    if is_secure := scheme.startswith("rediss"):
        options["ssl"] = True
    try:
        for option, value in parse_qsl(parts.query):
            if option in OF_REPLICAS:
                continue
            if option == "protocol" and value != "2":  # replies of another have other shapes
                raise BadUrl(
                    "store", shown, f"qframe does not use protocol={value}", "leave it out"
                )
            if option == "ssl" or (option.startswith("ssl_") and not is_secure):
                raise BadUrl(
                    "store", shown, f"it has {option}, and the scheme says whether it uses TLS",
                    "write rediss://, rediss+sentinel:// or rediss+cluster:// for TLS",
                )  # fmt: skip
            options[option] = _parsed(option, value)
        if scheme == SOCKET:
            server = client.Redis(unix_socket_path=unquote(parts.path), **options)
            return _One(server), shown
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
            own = {
                name.removeprefix(OF_SENTINELS): value
                for name, value in options.items() if name.startswith("s")
            }  # fmt: skip
            made: type[Sentinel] = Sentinels  # redis-py has no types of its making
            own |= {"protocol": 2, "retry": options["retry"]}  # else each is asked four times
            sentinel = made(places, sentinel_kwargs=own)
            of_primary = {
                name: value for name, value in options.items() if not name.startswith(OF_SENTINELS)
            }
            primary = sentinel.master_for(service, db=whole_number(database or "0"), **of_primary)
            return _One(primary, sentinel), shown
        if len(places) > 1:
            raise BadUrl("store", shown, "it names several servers", remedy)
        [(host, port)] = places
        database = path or "0"
        return _One(client.Redis(host=host, port=port, db=whole_number(database), **options)), shown
    except (ValueError, TypeError) as error:
        if isinstance(error, BadUrl):
            raise
        why = "its port is not a number" if "Port" in str(error) else str(error)
        if isinstance(error, TypeError):
            why, remedy = f"an option is unknown ({error})", "see docs/configuration.md"
        raise BadUrl("store", shown, why, remedy) from None


def replicas_of(url: str, shown: str) -> Replicas | None:
    """The replicas that a URL asks to wait for.

    Raises:
        BadUrl: if its numbers make no sense.
    """
    options = dict(parse_qsl(urlsplit(url).query))
    if not any(name in options for name in OF_REPLICAS):
        return None
    longest_s = decimal_number(options.get("socket_timeout", f"{ANSWER_TIMEOUT_S}"))
    try:
        needed = whole_number(options["wait_replicas"])
        within_s = decimal_number(options.get("wait_timeout", "1"))
        if needed >= 1 and 0.001 <= within_s < longest_s:  # 0 ms are for ever
            return Replicas(needed, round(within_s * 1000))
    except (KeyError, ValueError):
        pass
    raise BadUrl(
        "store", shown, "its wait_replicas and wait_timeout are not what can be waited for",
        f"write wait_replicas=1&wait_timeout=1, in seconds below socket_timeout ({longest_s:g})",
    )  # fmt: skip


def check_files(url: str, shown: str) -> None:
    """Reads the files that a URL names, so that a wrong one is told from a server that is away.

    Raises:
        BadUrl: if one cannot be used.
    """
    options = dict(parse_qsl(urlsplit(url).query))
    if fault := fault_of(*map(options.get, OF_REDIS)):
        raise BadUrl("store", shown, fault.why, fault.remedy)


def _parsed(option: str, text: str) -> object:
    """An option's value, as redis-py reads it of a URL: its connections take "false" for true."""
    if option == "ssl_cert_reqs" and text not in _CHECKS:
        raise ValueError(f"{option}={text} is none of {', '.join(_CHECKS)}")
    own = option.removeprefix(OF_SENTINELS)
    if own not in DURATIONS:
        parsers: dict[Any, Any] = URL_QUERY_ARGUMENT_PARSERS
        parser = parsers.get(own, str)
        return {int: whole_number, float: decimal_number}.get(parser, parser)(text)
    seconds = decimal_number(text)
    if not 0 < seconds <= LONGEST_TIMEOUT_S:  # not a number is neither
        raise ValueError(f"{option}={text} is not above 0 and up to {LONGEST_TIMEOUT_S} s")
    return seconds


def _place(text: str, port: int) -> tuple[str, int]:
    parsed = urlsplit(f"//{text}")
    if not parsed.hostname:
        raise ValueError(f"{text!r} is not a host")
    return parsed.hostname, parsed.port or port
