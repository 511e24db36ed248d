"""Requests to Redis whose replies are given: what is asked again, how, and what is told of it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis as client
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from qframe.clock import VirtualClock
from qframe.drivers import redis as driver
from qframe.drivers.redis import Call, Command, Missing, Redis
from qframe.drivers.redis_connections import NoReply
from qframe.drivers.scripts import Refused, Script, script
from qframe.errors import (
    AnswerLost,
    BadUrl,
    StoreDamaged,
    StoreForbidden,
    StoreFull,
    StoreUnavailable,
)
from qframe.forks import Forks

READ: Script = script("qframe.stores.redis", "look")
AWAY = client.ConnectionError("away")
LOST = NoReply(AWAY)
READ_ONLY = ReadOnlyError("You can't write against a read only replica.")  # as a client cuts it
ASK = AskError("1 there:7000")
REFUSAL = ResponseError("CLOSED the slot is being split, or was")


class Server:
    """A server that gives these replies, one after the other; it is its sequence of requests too.

    A reply that is `AWAY` stands for a connection that there is not.
    """

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.before_replies: Callable[[], object] = lambda: None
        self.got: list[bytes] = []
        self.numbers: list[int] = []
        self.is_flushed = False

    def begin(self) -> Server:
        self.numbers = []
        if self._replies[:1] == [AWAY]:
            raise self._replies.pop(0)
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None: ...

    def add(self, number: int, packed: bytes) -> None:
        self.numbers.append(number)
        self.got.append(packed)

    def flush(self) -> None:
        self.is_flushed = True

    def info(self, _section: str) -> Any:
        if isinstance(self._replies[0], Exception):
            raise self._replies[0]
        return self._replies[0]

    def replies(self) -> list[Any]:
        self.before_replies()
        return [self._replies.pop(0) for _ in self.numbers]


class Cluster:
    """Servers by key, and one to which redirections lead."""

    is_one = False

    def __init__(self, servers: dict[bytes, Server], there: Server) -> None:
        self._servers = servers
        self._there = there
        self.looks = self.vain_looks = 0

    def node_of(self, key: bytes) -> Server:
        return self._servers[key]

    def asked(self, _: AskError) -> Server:
        return self._there

    def look_again(self) -> None:
        self.looks += 1
        if self.looks <= self.vain_looks:
            raise AWAY

    def all(self) -> list[Server]:
        return [*self._servers.values()]


class Pause:
    """Passes time, and notes how much."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.lengths: list[float] = []

    def wait(self, seconds: float) -> None:
        self.lengths.append(seconds)
        self._clock.advance(max(1, round(seconds * 1000)))


class Bench:
    """A driver beneath whose hands servers have given replies, on a clock that its pauses move."""

    def __init__(self, there: Server, servers: dict[str, Server]) -> None:
        self.redis = Redis("redis://nowhere")
        self.redis.shown = "redis+cluster://nowhere"
        self.clock = VirtualClock()
        self.pause: Any = Pause(self.clock)
        self.cluster: Any = Cluster({key.encode(): one for key, one in servers.items()}, there)
        self.redis._servers, self.redis._pause = self.cluster, self.pause

    def run(self, *keys: str, partly: bool = False, plain: bool = False) -> list[Any]:
        return self.redis.run([self.request(key, plain=plain) for key in keys], partly=partly)

    @staticmethod
    def request(key: str, *, plain: bool = False) -> Call | Command:
        name = key.encode()
        return Command(name, ("GET", name)) if plain else Call(READ, name, ())


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(there: Server | None = None, **servers: Server) -> Bench:
        bench = Bench(there or Server(), servers)
        monkeypatch.setattr(driver, "SYSTEM_CLOCK", bench.clock)
        return bench

    return made


def test_a_script_that_a_server_does_not_know_goes_again_with_its_text_at_once(
    bench_of: Any,
) -> None:
    a = Server(NoScriptError("NOSCRIPT"), 1)
    bench = bench_of(a=a)
    assert bench.run("a") == [1]
    assert [b"EVALSHA" in one for one in a.got] == [True, False]
    assert READ.text.encode() in a.got[1]
    assert (bench.pause.lengths, bench.cluster.looks) == ([], 0)


def test_a_script_goes_with_its_text_however_late_its_server_says_that_it_is_unknown(
    bench_of: Any,
) -> None:
    bench = bench_of(a=Server(NoScriptError("NOSCRIPT"), 1))
    bench.cluster._servers[b"a"].before_replies = lambda: bench.clock.advance(60_000)
    assert bench.run("a") == [1]


@pytest.mark.parametrize(
    "reply",
    [READ_ONLY, BusyLoadingError("Redis is loading"), ResponseError("MISCONF x"), AWAY],
)
def test_what_cannot_be_done_now_is_tried_again_for_a_while_with_growing_pauses(
    bench_of: Any, reply: Exception
) -> None:
    bench = bench_of(a=Server(reply, reply, reply, 1))
    assert bench.run("a") == [1]
    assert len(bench.pause.lengths) == bench.cluster.looks == 3
    bench = bench_of(a=Server(*[reply] * 999))
    with pytest.raises(StoreUnavailable) as raised:
        bench.run("a")
    assert not isinstance(raised.value, AnswerLost)
    assert driver.PATIENCE_S <= bench.clock.monotonic_s() < driver.PATIENCE_S + 1
    assert bench.cluster.looks == len(bench.pause.lengths)  # the last try is followed by none
    assert bench.pause.lengths[0] < 0.03
    assert 0.2 < max(bench.pause.lengths) <= driver.LONGEST_PAUSE_S


def test_who_takes_a_part_waits_for_nobody_and_is_told_what_is_missing(bench_of: Any) -> None:
    damaged = ResponseError("WRONGTYPE x")
    bench = bench_of(a=Server(1), b=Server(AWAY), c=Server(LOST), d=Server(damaged))
    a, b, c, d = bench.run(*"abcd", partly=True)
    assert (a, b, c, d.lost) == (1, Missing(lost=False), Missing(lost=True), True)
    assert "WRONGTYPE" in d.fault
    assert bench.pause.lengths == []
    assert bench_of(a=Server(NoScriptError(""), 1), b=Server(2)).run("a", "b", partly=True) == [
        1,
        2,
    ]
    moved = bench_of(a=Server(MovedError("1 there:7000"), 1), b=Server(AWAY))
    assert moved.run("a", "b", partly=True) == [1, Missing(lost=False)]
    assert moved.cluster.looks == 1
    moved = bench_of(a=Server(MovedError("1 there:7000"), 1))
    assert (moved.run("a"), moved.cluster.looks, moved.pause.lengths) == ([1], 1, [])


def test_a_part_that_is_nothing_is_told_as_an_error(bench_of: Any) -> None:
    with pytest.raises(StoreDamaged):
        bench_of(a=Server(ResponseError("WRONGTYPE x"))).run("a", partly=True)
    with pytest.raises(StoreUnavailable) as raised:
        bench_of(a=Server(AWAY)).run("a", partly=True)
    assert not isinstance(raised.value, AnswerLost)
    with pytest.raises(StoreDamaged):
        bench_of(a=Server(ResponseError("WRONGTYPE x")), b=Server(1)).run("a", "b")


def test_who_takes_a_part_is_told_of_what_waits_for_an_operator(bench_of: Any) -> None:
    full, forbidden = OutOfMemoryError("OOM"), NoPermissionError("NOPERM x")
    for error, words in ((full, "OOM"), (forbidden, "refused its user a part: NOPERM x; grant")):
        for more in ({}, {"c": Server(AWAY)}):
            servers = {"a": Server(1), "b": Server(error), **more}
            with pytest.raises(AnswerLost, match=words):
                bench_of(**servers).run(*servers, partly=True)


def test_a_reply_that_never_came_is_told_by_its_class_where_it_has_no_words(bench_of: Any) -> None:
    with pytest.raises(AnswerLost, match="TimeoutError"):
        bench_of(a=Server(NoReply(TimeoutError()))).run("a")


def test_all_servers_are_asked_before_the_first_reply_is_read(bench_of: Any) -> None:
    a, b = Server(1), Server(2)
    a.before_replies = lambda: seen.append(a.is_flushed and b.is_flushed)
    seen: list[bool] = []
    assert bench_of(a=a, b=b).run("a", "b") == [1, 2]
    assert seen == [True]


def test_few_are_tried_again_one_by_one_where_nothing_was_done(bench_of: Any) -> None:
    bench = bench_of(a=Server(1, NoScriptError("NOSCRIPT"), 2))
    assert bench.redis.few([Bench.request("a"), Bench.request("a")]) == [1, 2]
    bench = bench_of(a=Server(1, *[READ_ONLY] * 2))
    assert bench.redis.few([Bench.request("a")] * 2, partly=True) == [1, Missing(lost=False)]
    assert bench.pause.lengths == []
    bench = bench_of(a=Server(1, *[READ_ONLY] * 999))
    with pytest.raises(AnswerLost):  # the first one is done
        bench.redis.few([Bench.request("a")] * 2)


def test_what_a_server_has_is_asked_again_though_nobody_tells_which_one_it_is(
    bench_of: Any,
) -> None:
    bench = bench_of(a=Server(AWAY, AWAY, 1))
    bench.cluster.vain_looks = 1
    assert bench.redis.few([Bench.request("a")]) == [1]


def test_a_redirection_of_a_command_is_followed_and_a_script_waits(bench_of: Any) -> None:
    there = Server("OK", 2)
    bench = bench_of(there, a=Server(ASK), b=Server(5))
    assert bench.run("a", "b", plain=True) == [2, 5]
    assert b"ASKING" in there.got[0]
    assert bench.pause.lengths == []
    assert bench_of(Server(AWAY), a=Server(ASK, 3)).run("a", plain=True) == [3]
    a = Server(ASK, ASK, 3)
    bench = bench_of(a=a)
    assert bench.run("a") == [3]
    assert len(bench.pause.lengths) == 2
    assert bench_of(a=Server(ASK), b=Server(1)).run("a", "b", partly=True) == [
        Missing(lost=False), 1,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (LOST, 1, AnswerLost), (LOST, LOST, AnswerLost), (OutOfMemoryError("OOM"), 1, AnswerLost),
        (OutOfMemoryError("OOM"), OutOfMemoryError("OOM"), StoreFull),
        (NoPermissionError("x"), 1, AnswerLost),
        (NoPermissionError("x"), NoPermissionError("x"), StoreForbidden),
    ],
)  # fmt: skip
def test_nothing_is_called_undone_of_which_a_part_may_be_done(
    bench_of: Any, a: Any, b: Any, error: type[Exception]
) -> None:
    bench = bench_of(a=Server(a), b=Server(b))
    with pytest.raises(error) as raised:
        bench.run("a", "b")
    assert type(raised.value) is error


def test_what_scripts_refuse_is_told_with_what_others_have_answered(bench_of: Any) -> None:
    with pytest.raises(Refused) as raised:
        bench_of(a=Server(REFUSAL), b=Server(1)).run("a", "b")
    assert raised.value.replies == [None, 1]
    with pytest.raises(AnswerLost):
        bench_of(a=Server(REFUSAL), b=Server(LOST)).run("a", "b")


def test_a_check_asks_all_servers_that_can_be_reached_and_there_must_be_one(bench_of: Any) -> None:
    facts: list[Any] = []
    bench_of(a=Server(AWAY), b=Server(7), c=Server(AWAY), d=Server(8)).redis.check(facts.append)
    assert facts == [7, 8]
    with pytest.raises(StoreUnavailable):
        bench_of(a=Server(AWAY), b=Server(AWAY)).redis.check(facts.append)
    with pytest.raises(BadUrl, match="refuses access"):  # as of a database that there is not
        bench_of(a=Server(ResponseError("DB index is out of range"))).redis.check(facts.append)
    bench = bench_of(a=Server(7))
    bench.cluster.all = raising
    with pytest.raises(StoreUnavailable):
        bench.redis.check(facts.append)
    refuses = client.AuthenticationError("WRONGPASS")
    with pytest.raises(StoreForbidden):
        bench_of(a=Server(7), b=Server(refuses)).redis.check(facts.append)


def test_hiredis_is_given_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it writes one, a signal's handler may run, and if that raises the process ends."""
    given: list[Any] = []
    monkeypatch.setattr(driver, "pack_command", given.extend)
    Command(b"key", ("ZADD", b"key", 7)).packed(known=True)
    Call(READ, b"key", (7, b"a")).packed(known=True)
    assert given == ["ZADD", b"key", "7", "EVALSHA", READ.digest, "1", b"key", "7", b"a"]


def raising() -> list[Server]:
    raise AWAY


class Subscribing:
    """A connection of redis-py's that somebody subscribes with."""

    def __init__(self, *, is_away: bool) -> None:
        self._is_away = is_away

    def connect(self) -> None:
        if self._is_away:
            raise AWAY
        self._sock, self.other = socket.socketpair()


def test_who_subscribes_has_a_connection_of_its_own(bench_of: Any) -> None:
    server: Any = Server()
    server.connection_pool = SimpleNamespace(
        connection_class=Subscribing, connection_kwargs={"is_away": False}
    )
    bench = bench_of(a=server)
    wire = bench.redis.listener()
    assert isinstance(wire.driver, Subscribing)
    wire.driver._sock.close()
    wire.driver.other.close()
    server.connection_pool.connection_kwargs = {"is_away": True}
    with pytest.raises(StoreUnavailable):
        bench.redis.listener()


def test_a_child_has_connections_of_its_own_and_closes_none_of_its_parents(bench_of: Any) -> None:
    bench = bench_of(a=Server())
    closed: list[str] = []
    bench.cluster.close = lambda: closed.append("")
    parents = (bench.redis._servers, bench.redis._pause)
    bench.redis._begin_anew()
    assert not {*parents} & {bench.redis._servers, bench.redis._pause}
    assert any(kept is bench.cluster for kept in Forks._kept)
    assert closed == []
    bench.redis._servers = bench.cluster
    bench.redis.close()
    assert closed == [""]
