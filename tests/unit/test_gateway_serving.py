"""How the gateway listens, and how long it waits for what clients send."""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec
from unittest.mock import MagicMock

import h11
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from qframe.web.gateway import serving
from qframe.web.gateway.serving import TimedConnection, TimedFlow, bound_socket

HOST = b"Host: h\r\n"
WHOLE = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
UNFINISHED = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000\r\n\r\n"
LONG_S = 600.0
LARGE = 50_000_000  # more than the buffers of any system

P = ParamSpec("P")


async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
    """Replies without a look at the body, as to a caller who is not known."""
    body = bytes(LARGE) if scope["path"] == "/large" else b"no"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in an event loop."""

    @wraps(test)
    def limited(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), 60))

    return limited


@asynccontextmanager
async def connected(**limits_s: float) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    """A server whose connections are timed, by these limits alone, and a client of it."""
    config = uvicorn.Config(
        refusing, http=TimedConnection, ws="none", lifespan="off", log_level="error",
        timeout_keep_alive=int(LONG_S),
    )  # fmt: skip
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    bound = bound_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    await server.startup(sockets=[bound])
    try:
        with pytest.MonkeyPatch.context() as patched:
            for state, name in ((h11.IDLE, "head"), (h11.SEND_BODY, "rest")):
                patched.setitem(serving.LIMITS_S, state, limits_s.get(name, LONG_S))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            yield reader, writer
            writer.close()
    finally:
        await server.shutdown(sockets=[bound])


async def reply(reader: StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(2) == b"no"
    return head


async def ends(reader: StreamReader) -> bool:
    """Whether the server closes the connection, and has nothing more to say."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def drip(writer: StreamWriter, what: bytes) -> None:
    with suppress(ConnectionError):
        while True:
            writer.write(what)
            await writer.drain()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("what", [b"", b" "], ids=["nothing", "byte by byte"])
@in_loop
async def test_a_body_that_still_comes_after_the_reply_ends_the_connection(what: bytes) -> None:
    async with connected(rest=0.2) as (reader, writer):
        writer.write(UNFINISHED)
        assert b"401" in await reply(reader)
        dripping = asyncio.create_task(drip(writer, what))
        assert await ends(reader)
        dripping.cancel()


@in_loop
async def test_a_body_that_is_whole_soon_after_the_reply_keeps_the_connection() -> None:
    async with connected() as (reader, writer):
        writer.write(UNFINISHED)
        assert b"401" in await reply(reader)
        writer.write(b" " * 1_000_000 + WHOLE)
        assert b"401" in await reply(reader)


@in_loop
async def test_a_reply_that_is_not_taken_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "TAKEN_S", 0.2)
    async with connected() as (_, writer):
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        writer.write(WHOLE.replace(b"/", b"/large", 1))
        await drip(writer, b"G")


@in_loop
async def test_a_request_with_two_lengths_is_the_last_of_its_connection() -> None:
    """What follows could be the body to a proxy that has believed the other length."""
    async with connected() as (reader, writer):
        head = WHOLE.removesuffix(b"\r\n") + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"
        writer.write(head + b"\r\n0\r\n\r\n" + WHOLE)
        assert b"connection: close" in (await reply(reader)).lower()
        assert await ends(reader)


@pytest.mark.parametrize(
    ("before", "part"),
    [(b"", b"GET / HT"), (WHOLE, b"GET / HT"), (b"", b"")],
    ids=["the first", "one after a request", "nothing"],
)
@in_loop
async def test_a_head_that_is_never_whole_ends_the_connection(before: bytes, part: bytes) -> None:
    async with connected(head=0.2) as (reader, writer):
        writer.write(before + part)
        if before:
            assert b"401" in await reply(reader)
        assert await ends(reader)


def test_a_small_reply_is_sent_at_once() -> None:
    """Else each waits 40 ms for an acknowledgement that its client holds back."""

    async def is_sent_at_once() -> bool:
        found = asyncio.get_running_loop().create_future()

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made = transport.get_extra_info("socket")
                found.set_result(bool(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
                transport.close()

        bound = bound_socket("127.0.0.1", 0)
        port = bound.getsockname()[1]
        async with await asyncio.get_running_loop().create_server(Connection, sock=bound):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return bool(await found)

    assert asyncio.run(is_sent_at_once())


class Later:
    """A loop that notes what it is to call later, and a transport whose bytes nobody takes."""

    def __init__(self) -> None:
        self.planned: list[MagicMock] = []
        self.left = 10
        self.aborted = False

    def call_later(self, _seconds: float, *_: object) -> MagicMock:
        self.planned.append(MagicMock())
        return self.planned[-1]

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True


def test_a_limit_ends_with_what_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: Any = Later()
    connection = TimedConnection.__new__(TimedConnection)
    connection.loop = loop
    connection.transport = MagicMock()
    states = iter([h11.IDLE, h11.IDLE, h11.SEND_BODY, None])
    monkeypatch.setattr(connection, "_awaits", lambda: next(states))
    for _ in range(4):
        connection._set_limit()
    assert [each.cancel.call_count for each in loop.planned] == [1, 1]


def test_who_takes_a_reply_in_the_end_is_watched_no_more() -> None:
    loop: Any = Later()
    flow = TimedFlow(loop, loop)
    flow.pause_writing()
    loop.left = 5
    flow._look(10)  # something was taken
    flow.resume_writing()
    assert [each.cancel.call_count for each in loop.planned] == [0, 1]
    assert not loop.aborted
    flow._look(5)
    assert loop.aborted
