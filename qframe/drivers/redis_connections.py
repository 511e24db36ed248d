"""Connections to one Redis server: what is sent on them, and what is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeVar

import hiredis
import redis as client
from redis.connection import DefaultParser
from redis.exceptions import BusyLoadingError, InvalidResponse, RedisClusterException, RedisError

from qframe.clock import SYSTEM_CLOCK

TRUSTED_S: Final = 1.0
PIECE: Final = 16_384
READ: Final = 65_536

BROKEN: Final = (client.ConnectionError, client.TimeoutError, OSError)
# All that a driver raises; what it says of a whole cluster is no RedisError.
FAILURES: Final = (RedisError, RedisClusterException, OSError)
T = TypeVar("T")
_NOT_YET: Final = object()  # in place of a reply of which only a part has come


class NoReply(NamedTuple):
    """In place of a reply that never came."""

    why: BaseException


class Wire:
    """A connection that redis-py has made, written to and read from in the shortest way.

    A call to it after a pause finds nothing of its code in the processor's caches, so each layer
    that is left out is felt.

    Attributes:
        driver: redis-py's connection.
        fileno: its socket's number, to wait for.
    """

    __slots__ = ("_buffer", "_reader", "_socket", "driver", "fileno")

    def __init__(self, connection: Any) -> None:
        self.driver = connection
        self._socket = connection._sock  # noqa: SLF001 - it has no public name
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error,
            notEnoughData=_NOT_YET,
        )  # fmt: skip
        self._buffer = bytearray(READ)
        self.fileno: int = self._socket.fileno()

    def send(self, packed: bytes) -> None:
        """Writes requests; raises an OSError if it cannot."""
        self._socket.sendall(packed)

    def reply(self) -> Any:
        """The next reply, an error among them; raises one of `BROKEN` if none comes."""
        while (reply := self._reader.gets()) is _NOT_YET:
            self.read()
        if isinstance(reply, client.ConnectionError) and not isinstance(reply, BusyLoadingError):
            raise reply
        return reply

    def replies_so_far(self) -> list[Any]:
        """The replies that were read already."""
        replies = []
        while (reply := self._reader.gets()) is not _NOT_YET:
            replies.append(reply)
        return replies

    def read(self) -> None:
        """Reads what there is, and waits for something where there is nothing."""
        if not (size := self._socket.recv_into(self._buffer)):
            raise client.ConnectionError("the server has closed the connection")
        self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type] # it takes any buffer


class Node:
    """One server's connections; each is used by one thread at a time, and kept for the next.

    Attributes:
        breaks: how often connections were broken, or let go: the next may be to another server.
    """

    def __init__(self, pool: client.ConnectionPool) -> None:
        self._pool = pool
        self._free: deque[tuple[Wire, float]] = deque()
        self.breaks: int = 0

    def begin(self) -> Sending:
        """A sequence of requests on one connection.

        Raises:
            one of `BROKEN`: if there is no connection to be had.
        """
        return Sending(self, self._checked_out())

    def give_back(self, connection: Wire) -> None:
        """Keeps a connection for the next."""
        self._free.append((connection, SYSTEM_CLOCK.monotonic_s()))

    def give_up(self, connection: Wire) -> None:
        """Closes a connection that has broken, and all others that nobody uses now."""
        self._close(connection)
        self.disconnect()

    def disconnect(self) -> None:
        """Closes the connections that nobody uses now."""
        self.breaks += 1
        while self._free:
            self._close(self._free.popleft()[0])

    def _checked_out(self) -> Wire:
        while self._free:
            connection, used_s = self._free.pop()
            if SYSTEM_CLOCK.monotonic_s() - used_s < TRUSTED_S:
                return connection
            with suppress(*FAILURES):
                if not connection.driver.can_read():
                    return connection
            self.breaks += 1
            self._close(connection)
        try:
            return Wire(self._pool.get_connection())
        except FAILURES:
            raise
        except BaseException:
            # By a signal's handler: the pool has a connection that is half made, and would give it.
            self._pool.disconnect(inuse_connections=False)
            raise

    def _close(self, connection: Wire) -> None:
        with suppress(*BROKEN):
            connection.driver.disconnect()
        self._pool.release(connection.driver)


class Sending:
    """Requests on their way to one server, written in large pieces while more are made.

    Where an error ends its use, one of a request that could not be made or of a signal's handler,
    it is abandoned.
    """

    def __init__(self, node: Node, connection: Wire) -> None:
        self._node = node
        self._connection = connection
        self._pending: list[bytes] = []
        self._size = 0
        self._broken: BaseException | None = None
        self._ended = False
        self.numbers: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.abandon()

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
                self._connection.send(b"".join(self._pending))
            except BROKEN as error:
                self._broken = error
        self._pending.clear()
        self._size = 0

    def replies(self) -> list[Any]:
        """A reply for each request, once all are sent: a value, an error, or `NoReply`."""
        self.flush()
        replies: list[Any] = []
        try:
            if self._broken is None:
                for _ in self.numbers:
                    replies.append(self._connection.reply())  # noqa: PERF401 - kept if one is missing
        except (*BROKEN, InvalidResponse) as error:
            self._broken = error
        if self._broken is None:
            self._ended = True
            self._node.give_back(self._connection)
            return replies
        # What is still to come would answer somebody else.
        self.abandon()
        return replies + [NoReply(self._broken)] * (len(self.numbers) - len(replies))

    def abandon(self) -> None:
        """Gives up what was begun, and has not ended: its connection is closed."""
        if not self._ended:
            self._ended = True
            self._node.give_up(self._connection)


def numbered(requests: Iterable[T], made: list[T], replies: list[Any]) -> Iterator[tuple[int, T]]:
    """Requests as they are made, kept for another try, with room for their replies."""
    for number, request in enumerate(requests):
        made.append(request)
        replies.append(None)
        yield number, request
