"""Connections to Redis: which is used again, which is closed, and what is read of a reply."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis as client
from redis.exceptions import BusyLoadingError, ResponseError

from qframe.clock import VirtualClock
from qframe.drivers import redis_connections as driver
from qframe.drivers.redis_connections import PIECE, TRUSTED_S, Node, NoReply, Wire


class Made:
    """A connection of redis-py over a pair of sockets, of which a test holds the other end."""

    def __init__(self) -> None:
        self._sock, self.server = socket.socketpair()
        self._sock.settimeout(10)
        self.is_open = True

    def can_read(self) -> bool:
        self._sock.setblocking(False)
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK)) or True
        except BlockingIOError:
            return False
        finally:
            self._sock.settimeout(10)

    def disconnect(self) -> None:
        self.is_open = False
        self._sock.close()


class Pool:
    """A pool of redis-py's: counts what it has lent."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.lent: set[Made] = set()
        self.fault: BaseException | None = None
        self.emptied = 0

    def get_connection(self) -> Made:
        if self.fault is not None:
            raise self.fault
        self.made.append(Made())
        self.lent.add(self.made[-1])
        return self.made[-1]

    def release(self, connection: Made) -> None:
        self.lent.remove(connection)

    def disconnect(self, *, inuse_connections: bool) -> None:
        assert not inuse_connections
        self.emptied += 1


class Bench:
    """A server's connections, on a clock that stands still."""

    pool: Any

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.pool = Pool()
        self.node = Node(self.pool)

    def ask(self, *replies: bytes, requests: int = 1) -> list[Any]:
        """The replies to some requests, on one connection; after one that is cut off it ends."""
        with self.node.begin() as sending:
            for number in range(requests):
                sending.add(number, b"PING\r\n")
            sending.flush()
            self.server.sendall(b"".join(replies))
            if not replies[-1].endswith(b"\n"):
                self.server.shutdown(socket.SHUT_WR)
            return sending.replies()

    @property
    def server(self) -> socket.socket:
        """The other end of the newest connection."""
        made: Made = self.pool.made[-1]
        return made.server

    @property
    def are_open(self) -> list[bool]:
        return [one.is_open for one in self.pool.made]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    monkeypatch.setattr(driver, "SYSTEM_CLOCK", made.clock)
    yield made
    for one in made.pool.made:
        one.disconnect()
        one.server.close()


def test_a_connection_is_used_again_and_looked_at_once_it_was_idle(bench: Bench) -> None:
    assert [bench.ask(b"+PONG\r\n") for _ in range(2)] == [[b"PONG"]] * 2
    bench.clock.advance(round(TRUSTED_S * 1000))
    assert bench.ask(b"+PONG\r\n") == [b"PONG"]
    assert (len(bench.pool.made), bench.node.breaks) == (1, 0)
    bench.server.close()  # as a server does that ends, or lets an idle one go
    bench.clock.advance(round(TRUSTED_S * 1000))
    assert bench.ask(b"+PONG\r\n") == [b"PONG"]
    assert bench.are_open == [False, True]
    assert bench.node.breaks == 1
    assert len(bench.pool.lent) == 1


def test_the_connection_that_was_used_last_is_the_first_to_be_used_again(bench: Bench) -> None:
    one, other = bench.node.begin(), bench.node.begin()
    one.replies()
    bench.clock.advance(1)
    other.replies()
    assert bench.node.begin()._connection is other._connection


def test_a_connection_that_breaks_is_closed_with_all_that_nobody_uses(bench: Bench) -> None:
    one, other, third = (bench.node.begin() for _ in range(3))
    one.replies()
    other.add(0, b"PING\r\n")
    bench.pool.made[1].server.close()
    [reply] = other.replies()
    assert type(reply) is NoReply
    assert bench.are_open == [False, False, True]
    assert bench.node.breaks == 1
    assert len(bench.pool.lent) == 1
    third.abandon()
    third.abandon()
    assert (bench.are_open, bench.node.breaks) == ([False] * 3, 2)


def test_of_replies_that_broke_off_those_that_came_count(bench: Bench) -> None:
    first, second, third = bench.ask(b"+ONE\r\n$3\r\nTW", requests=3)
    assert first == b"ONE"
    assert type(second) is type(third) is NoReply
    assert "closed the connection" in str(second.why)
    assert bench.are_open == [False]


def test_a_reply_that_cannot_be_read_ends_the_connection(bench: Bench) -> None:
    first, second, third = bench.ask(b"+ONE\r\nHTTP/1.1 200 OK\r\n+THREE\r\n", requests=3)
    assert first == b"ONE"
    assert type(second) is type(third) is NoReply
    assert "Protocol error" in str(second.why)
    assert bench.are_open == [False]


class Written:
    """In place of a connection: notes what it is given to send, up to what it cannot."""

    def __init__(self, wire: Any, *faults: Exception) -> None:
        self.driver = wire.driver
        self.sent: list[bytes] = []
        self._faults = list(faults)

    def send(self, packed: bytes) -> None:
        self.sent.append(packed)
        if self._faults:
            raise self._faults.pop(0)


def written_by(sending: Any, *faults: Exception) -> Written:
    """Has what is sent noted."""
    sending._connection = Written(sending._connection, *faults)
    return sending._connection  # type: ignore[no-any-return]


def test_nothing_follows_what_was_sent_in_part_and_no_reply_is_waited_for(bench: Bench) -> None:
    """The server would take what follows for the rest of it."""
    with bench.node.begin() as sending:
        written = written_by(sending, TimeoutError("slow"))
        sending.add(0, b"x" * PIECE)
        sending.add(1, b"PING\r\n")
        first, second = sending.replies()
    assert type(first) is type(second) is NoReply
    assert isinstance(first.why, TimeoutError)
    assert len(written.sent) == 1
    assert bench.are_open == [False]


def test_requests_go_together_until_they_are_many(bench: Bench) -> None:
    with bench.node.begin() as sending:
        written = written_by(sending)
        sending.add(0, b"a")
        sending.add(1, b"b" * (PIECE - 2))
        assert written.sent == []
        sending.add(2, b"c")
        assert [len(one) for one in written.sent] == [PIECE]
        sending.add(3, b"d")
        assert len(written.sent) == 1
        for _ in range(2):
            sending.flush()
        assert written.sent[1:] == [b"d"]
        sending.abandon()


def test_a_request_that_cannot_be_made_ends_the_connection_of_those_before_it(
    bench: Bench,
) -> None:
    def begin() -> None:
        with bench.node.begin() as sending:
            sending.add(0, b"PING\r\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin()
    assert bench.are_open == [False]
    assert not bench.pool.lent


def test_an_error_after_the_last_reply_keeps_the_connection(bench: Bench) -> None:
    def begin() -> None:
        with bench.node.begin() as sending:
            assert sending.replies() == []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin()
    assert bench.are_open == [True]
    assert (bench.node.breaks, len(bench.pool.lent)) == (0, 1)


def test_an_error_of_a_server_is_a_reply_and_one_that_ends_the_connection_is_none(
    bench: Bench,
) -> None:
    loading, wrong = bench.ask(b"-LOADING x\r\n", b"-WRONGTYPE x\r\n", requests=2)
    assert isinstance(loading, BusyLoadingError)
    assert isinstance(wrong, ResponseError)
    assert bench.are_open == [True]
    [reply] = bench.ask(b"-ERR max number of clients reached\r\n")
    assert type(reply) is NoReply
    assert isinstance(reply.why, client.ConnectionError)
    assert bench.are_open == [False]


def test_a_reply_is_read_however_it_is_cut_and_however_large(bench: Bench) -> None:
    large = b"x" * (3 * driver.READ)
    with bench.node.begin() as sending:
        sending.add(0, b"GET x\r\n")
        server, wire = bench.server, sending._connection
        server.sendall(b"*2\r\n$1\r\na")
        wire.read()
        assert wire.replies_so_far() == []
        server.sendall(b"\r\n:7\r\n+NEXT\r\n+LA")
        wire.read()
        assert wire.replies_so_far() == [[b"a", 7], b"NEXT"]
        server.sendall(b"ST\r\n")
        assert sending.replies() == [b"LAST"]
    assert isinstance(wire, Wire)
    assert wire.fileno == bench.pool.made[0]._sock.fileno()
    sender = threading.Thread(
        target=lambda: bench.server.sendall(b"$%d\r\n%b\r\n" % (len(large), large))
    )
    sender.start()
    with bench.node.begin() as sending:
        sending.add(0, b"GET x\r\n")
        assert sending.replies() == [large]
    sender.join()


def test_a_connection_that_a_signals_handler_left_half_made_is_given_to_nobody(
    bench: Bench,
) -> None:
    bench.pool.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.node.begin()
    assert bench.pool.emptied == 1
    bench.pool.fault = client.ConnectionError("away")
    with pytest.raises(client.ConnectionError):
        bench.node.begin()
    assert bench.pool.emptied == 1
