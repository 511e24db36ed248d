"""Errors and URLs of Redis: what each means, and where requests go."""

from __future__ import annotations

import re
from functools import partial
from socket import gaierror
from types import SimpleNamespace
from typing import Any

import pytest
import redis as client
from redis.connection import URL_QUERY_ARGUMENT_PARSERS
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

from qframe.drivers import redis_servers
from qframe.drivers.redis import Redis
from qframe.drivers.redis_errors import translated
from qframe.drivers.redis_servers import Sentinels, servers_of
from qframe.errors import BadUrl, StoreDamaged, StoreForbidden, StoreFull, StoreUnavailable

ONE, CLUSTER, TLS = "redis://h:1", "redis+cluster://h:1", "rediss://h:1"


def after(error: Exception, cause: Exception, *, raised: bool = False) -> Exception:
    """An error in whose midst another came, or from which it was raised."""
    if raised:
        error.__cause__ = cause
    else:
        error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("shown", "error", "kind", "words"),
    [
        (ONE, AuthenticationError("WRONGPASS"), StoreForbidden, "refuses its user"),
        (ONE, AuthorizationError("x"), StoreForbidden, "refuses its user"),
        (ONE, ResponseError("NOAUTH Authentication required."), StoreForbidden, "refuses its user"),
        (ONE, NoPermissionError("NOPERM x"), StoreForbidden, "refuses its user"),
        (ONE, ResponseError("The user executing the script can't"), StoreForbidden, "its user"),
        (ONE, InvalidResponse("Protocol error"), BadUrl, "is not Redis"),
        (ONE, OutOfMemoryError("OOM x"), StoreFull, "maxmemory"),
        (ONE, MovedError("1 h:2"), BadUrl, "one node of a cluster"),
        (CLUSTER, MovedError("1 h:2"), StoreUnavailable, ""),
        (CLUSTER, AskError("1 h:2"), StoreUnavailable, ""),
        (ONE, ResponseError("unknown command 'SENTINEL', with args"), BadUrl, "is no Sentinel"),
        (ONE, ResponseError("unknown command 'HELLO', with args"), BadUrl, "lacks a command"),
        (ONE, ResponseError("Unknown Redis command called from script"), BadUrl, "lacks a command"),
        (ONE, BusyLoadingError("loading"), StoreUnavailable, "cannot be reached"),
        (ONE, ClusterDownError("CLUSTERDOWN x"), StoreUnavailable, "cannot be reached"),
        (ONE, TryAgainError("x"), StoreUnavailable, "cannot be reached"),
        (
            ONE, ReadOnlyError("You can't write against a read only replica."), StoreUnavailable,
            "refuses writes.*name the primary",
        ),
        (ONE, ResponseError("MISCONF x"), StoreUnavailable, "refuses writes.*full disk"),
        (ONE, ResponseError("NOREPLICAS x"), StoreUnavailable, "refuses writes.*bring a replica"),
        (ONE, MasterDownError("x"), StoreUnavailable, "cannot be reached"),
        (ONE, ResponseError("UNBLOCKED x"), StoreUnavailable, "cannot be reached"),
        (ONE, ResponseError("BUSY Redis is busy"), StoreUnavailable, "cannot be reached"),
        (ONE, ResponseError("BUSYKEY x"), StoreDamaged, ""),
        (ONE, ResponseError("WRONGTYPE x"), StoreDamaged, "WRONGTYPE"),
        (ONE, client.TimeoutError(), StoreUnavailable, "TimeoutError"),
        (ONE, OSError("broken pipe"), StoreUnavailable, "broken pipe"),
        (
            ONE, client.ConnectionError("Error while reading from h:1"), StoreUnavailable,
            "speaks TLS there, write rediss://",
        ),
        (ONE, client.ConnectionError("Connection refused"), StoreUnavailable, "check that it runs"),
        (
            ONE, after(client.ConnectionError("x"), gaierror("unknown")), StoreUnavailable,
            "correct the host's name",
        ),
        (
            "rediss+cluster://h:1",
            after(client.TimeoutError("x"), OSError("_ssl.c: The handshake operation timed out")),
            StoreUnavailable, r"does not answer in TLS.*write redis\+cluster://",
        ),
        *[
            (TLS, after(client.ConnectionError("x"), fault), StoreUnavailable, "reached by TLS")
            for fault in (FileNotFoundError("ca.pem"), PermissionError("ca.pem"))
        ],
        (
            TLS, client.ConnectionError("certificate verify failed"), StoreUnavailable,
            "not trusted.*ssl_ca_certs=",
        ),
        (TLS, client.ConnectionError("Error while reading from h:1"), StoreUnavailable, "check"),
        (
            CLUSTER, after(RedisClusterException("x"), AuthenticationError("y"), raised=True),
            StoreForbidden, "refuses its user",
        ),
        (CLUSTER, RedisClusterException("no nodes"), StoreUnavailable, "no nodes"),
        (ONE, MasterNotFoundError("none"), StoreUnavailable, "none"),
        (
            ONE,
            after(
                MasterNotFoundError("none"),
                ExceptionGroup("", [client.TimeoutError("t"), AuthenticationError("a")]),
                raised=True,
            ),
            StoreForbidden, "sentinel_password",
        ),
        (
            ONE,
            after(
                MasterNotFoundError("none"),
                ExceptionGroup(
                    "",
                    [
                        after(client.ConnectionError("gone"), OSError("refused")),
                        after(client.ConnectionError("unknown"), gaierror("x")),
                        after(client.ConnectionError("away"), OSError("refused")),
                    ],
                ),
                raised=True,
            ),
            StoreUnavailable, "none: away: unknown; correct the host's name",
        ),
    ],
)  # fmt: skip
def test_an_error_of_redis_has_one_meaning(
    shown: str, error: Exception, kind: type[Exception], words: str
) -> None:
    told = translated(shown, error)
    assert type(told) is kind
    assert re.search(words, str(told))


def test_an_error_of_something_else_stays_itself() -> None:
    error = KeyError("x")
    assert translated(ONE, error) is error


class AskedSentinel:
    """A Sentinel that names a primary, knows none, or is away."""

    def __init__(self, told: Any) -> None:
        self.told = told
        self.asked = 0

    def sentinel_masters(self) -> Any:
        self.asked += 1
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


def primary(ip: str, **state: Any) -> dict[str, Any]:
    usual = {"is_master": True, "is_sdown": False, "is_odown": False, "num-other-sentinels": 2}
    return {"shop": {"ip": ip, "port": 6379, **usual, **state}}


def sentinels_of(*told: Any) -> Any:
    made: Any = Sentinels([])  # type: ignore[no-untyped-call]
    made.sentinels = [AskedSentinel(each) for each in told]
    return made


def test_the_sentinel_that_has_named_the_primary_is_asked_first_from_then_on() -> None:
    away = client.ConnectionError("away")
    made = sentinels_of(away, {}, primary("10.0.0.9", is_sdown=True), primary("10.0.0.1"))
    assert made.discover_master("shop") == ("10.0.0.1", 6379)
    asked = made.sentinels[0]
    assert made.discover_master("shop") == ("10.0.0.1", 6379)
    assert asked.asked == 2
    assert sorted(one.asked for one in made.sentinels) == [1, 1, 1, 2]


def test_sentinels_that_are_away_are_told_from_those_that_know_no_primary() -> None:
    faults = [client.ConnectionError("away"), client.TimeoutError("slow")]
    with pytest.raises(MasterNotFoundError, match="no Sentinel can be asked") as raised:
        sentinels_of(*faults).discover_master("shop")
    assert isinstance(raised.value.__cause__, ExceptionGroup)
    assert raised.value.__cause__.exceptions == tuple(faults)
    with pytest.raises(MasterNotFoundError, match="no Sentinel names a primary"):
        sentinels_of(faults[0], primary("x", is_odown=True)).discover_master("shop")
    with pytest.raises(MasterNotFoundError, match="no Sentinel names") as raised:
        sentinels_of({}).discover_master("shop")
    assert raised.value.__cause__ is None


def made_by(url: str) -> Any:
    servers, _ = servers_of(url)
    return servers


def test_a_url_of_one_server_names_its_place_its_user_and_its_options() -> None:
    servers = made_by("redis://u%40:p%3A@h/3?socket_timeout=2.5&health_check_interval=7")
    options = servers.all()[0].connection_pool.connection_kwargs
    wanted = {
        "host": "h", "port": 6379, "db": 3, "username": "u@", "password": "p:",
        "socket_timeout": 2.5, "socket_connect_timeout": 3.0, "health_check_interval": 7,
    }  # fmt: skip
    assert {name: options[name] for name in wanted} == wanted
    assert servers.is_one
    assert servers.node_of(b"a") is servers.node_of(b"b") is servers.asked(None)
    secure = made_by("rediss://[::1]:7?ssl_check_hostname=false").all()[0].connection_pool
    assert secure.connection_class is client.SSLConnection
    assert secure.connection_kwargs["ssl_check_hostname"] is False
    assert (secure.connection_kwargs["host"], secure.connection_kwargs["port"]) == ("::1", 7)


OF_EACH_TYPE: dict[Any, tuple[str, object]] = {
    bool: ("false", False), int: ("7", 7), float: ("2.5", 2.5),
}  # fmt: skip


@pytest.mark.parametrize("before", ["", "sentinel_"])
@pytest.mark.parametrize("option", sorted(URL_QUERY_ARGUMENT_PARSERS))
def test_an_option_of_a_url_has_the_type_that_redis_py_gives_it(option: str, before: str) -> None:
    parser = URL_QUERY_ARGUMENT_PARSERS[option]
    kind = bool if parser is URL_QUERY_ARGUMENT_PARSERS["socket_keepalive"] else parser
    text, value = OF_EACH_TYPE.get(kind, ("", None))
    if text:
        parsed = redis_servers._parsed(before + option, text)
        assert (type(parsed), parsed) == (type(value), value)


@pytest.mark.filterwarnings("ignore:.*retry_on_timeout:DeprecationWarning")  # of redis-py
@pytest.mark.parametrize("text", ["true", "false"])
def test_a_flag_that_is_named_after_a_timeout_is_no_duration(text: str) -> None:
    assert made_by(f"redis://h?retry_on_timeout={text}").is_one
    with pytest.raises(BadUrl, match="socket_timeout=0 is not above 0"):
        made_by("redis://h?socket_timeout=0")


def test_sentinels_have_options_of_their_own_beside_those_of_the_primary() -> None:
    servers = made_by(
        "redis+sentinel://u:p@a,b:1/shop/2?sentinel_password=s&socket_timeout=2&client_name=c"
    )
    sentinel = servers._sentinel
    places = [one.connection_pool.connection_kwargs for one in sentinel.sentinels]
    assert [(one["host"], one["port"]) for one in places] == [("a", 26379), ("b", 1)]
    assert {(one["password"], one["socket_timeout"]) for one in places} == {("s", 2.0)}
    assert all("client_name" not in one or one["client_name"] is None for one in places)
    assert {(one["retry"].get_retries(), one["protocol"]) for one in places} == {(0, 2)}
    options = servers.all()[0].connection_pool.connection_kwargs
    found = {options[name] for name in ("username", "password", "db", "client_name")}
    assert found == {"u", "p", 2, "c"}
    assert not any(name.startswith("sentinel_") for name in options)
    # Its version is read from files: once for all connections of a process.
    [other] = servers_of(ONE)[0].all()
    assert other.connection_pool.connection_kwargs["driver_info"] is options["driver_info"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://", "names no server"), ("http://h", "names no server"),
        ("redis://a,b", "several servers"), ("redis+sentinel://a", "names no service"),
        ("redis+cluster://a/1", "no numbered databases"), ("redis://a,:1", "is not a host"),
        ("redis://h:x", "its port is not a number"), ("redis://h?ssl_certfile=x", "uses TLS"),
        ("redis://h?ssl=true", "uses TLS"), ("rediss://h?ssl_cert_reqs=maybe", "is none of none"),
        ("redis://h?colour=red", "an option is unknown"), ("redis://h?protocol=3", "protocol=3"),
        ("redis://h?socket_timeout=86401", "is not above 0"),
        ("redis://h?socket_timeout=0", "is not above 0"),
        ("redis://h?socket_connect_timeout=nan", "is not a number in"),
        ("redis+cluster://h?ssl_ca_certs=/ca.pem", "write rediss://"),
        ("redis://h?socket_timeout=inf", "is not a number in"),
        *[(f"redis://h?socket_timeout={each}", "is not above") for each in ("-1", "1e300")],
        ("redis://h?socket_timeout=soon", "is not a number in"),
        *[
            (f"{scheme}://{place}", r"brackets.*%5B for \[")
            for place in ("u:p[1]r@h", "u:p]r@h", "[::1")
            for scheme in ("redis", "redis+cluster", "redis+sentinel")
        ],
        *[
            (f"redis://h?{options}", "write wait_replicas=1&wait_timeout=1")
            for options in (
                "wait_replicas=0", "wait_replicas=one", "wait_timeout=1",
                "wait_replicas=1&wait_timeout=0", "wait_replicas=1&wait_timeout=10",
                "wait_replicas=1&wait_timeout=nan", "wait_replicas=1&socket_timeout=0.5",
            )
        ],
        ("unix://", "it names no server"), ("redis:///run/redis.sock", "it names no server"),
        ("unix://run/redis.sock", "it names the host run before the path; .*three slashes"),
        ("unix:///r.sock?ssl_ca_certs=/ca", "uses TLS"),
        ("unix:///r.sock?db=x", "is not a whole number"),
        ("rediss://h?ssl_ca_certs=/absent.pem", "/absent.pem cannot be used"),
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words) as raised:
        Redis(url)
    assert str(raised.value).count("store ") == 1
    assert "]r" not in str(raised.value)  # a part of a password


def test_the_longest_timeout_and_the_only_database_of_a_cluster_may_be_named() -> None:
    assert made_by("redis://h?socket_timeout=86400&protocol=2").is_one
    assert not made_by("redis+cluster://h,i:7000/0").is_one


def test_a_redirection_to_a_node_that_is_not_there_is_a_connection_that_there_is_not() -> None:
    servers = made_by("redis+cluster://h")
    pool = SimpleNamespace(disconnect=lambda: None)
    node = SimpleNamespace(name="h:7001")
    servers._cluster = SimpleNamespace(
        get_node=lambda host, port: node if port == 7001 else None,
        get_redis_connection=lambda _: SimpleNamespace(connection_pool=pool),
        get_primaries=lambda: [node],
    )
    assert servers.asked(AskError("1 h:7001")) is servers.asked(AskError("1 h:7001"))
    with pytest.raises(client.ConnectionError, match="no such node: h:7002"):
        servers.asked(AskError("1 h:7002"))
    servers.asked(AskError("1 h:7001")).disconnect()
    assert servers.breaks == 1


def noting(done: list[str], **words: str) -> Any:
    """An object whose methods do nothing but note what was called."""
    return SimpleNamespace(**{name: partial(done.append, word) for name, word in words.items()})


def test_all_connections_are_closed_also_those_to_sentinels_and_nodes() -> None:
    done: list[str] = []
    one = made_by("redis+sentinel://a,b/shop")
    one._node, one._client = noting(done, disconnect="node"), noting(done, close="client")
    one._sentinel = SimpleNamespace(sentinels=[noting(done, close="sentinel")] * 2)
    one.look_again()
    assert done == ["node"]
    one.close()
    assert done[1:] == ["node", "client", "sentinel", "sentinel"]
    done.clear()
    cluster = made_by("redis+cluster://a")
    cluster.close()
    assert cluster._cluster is None  # it was not found to be closed
    cluster._cluster = noting(done, close="cluster")
    cluster._cluster.nodes_manager = noting(done, initialize="look")
    cluster._nodes["x"] = noting(done, disconnect="node")
    cluster.look_again()
    assert done == ["look"]
    cluster.close()
    assert done[1:] == ["node", "cluster"]
