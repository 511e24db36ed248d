"""A small HTTP server for what machines ask of a running process: probes, numbers, autoscalers.

It answers GET and HEAD, one request for each connection. It is no web framework: no bodies of
requests, no keep-alive, no TLS. One event loop reads all heads and sends all replies. It answers
quick routes, such as probes, itself. A route that waits for a store has a thread for each request.

Bounds, so that no client and no store keeps a probe waiting:

* a client that sends no whole head, or does not take its reply, holds a connection and no thread,
  for 5 s at most. There are at most 64 of these. One more closes the oldest of the client address
  that has most;
* a head is at most 16 KiB;
* at most 8 requests wait for a store at once, of which each client address has its share: 4 if it
  is alone. Another one gets status 503.

Failures: an address that cannot be bound is a `BadOption`; a route that raises is a reply with
status 500 and the error's class, and the event `http.failed`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from qframe.errors import BadOption
from qframe.events import Events
from qframe.service import Service, new_thread
from qframe.shares import Share

CONNECTIONS: Final = 64
WAITING: Final = 8
WITHIN_S: Final = 5.0
LONGEST_HEAD: Final = 16_384
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpRequest(NamedTuple):
    """A request, as a route sees it.

    Attributes:
        params: the parts of the path that the route's pattern names in braces.
        query: the parameters behind the question mark; of a repeated one the last.
        headers: the headers, their names in lower case.
    """

    params: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}


class HttpReply(NamedTuple):
    """A reply: status, media type, body."""

    status: int
    type: str
    body: bytes


class HttpRoute(NamedTuple):
    """A path's route.

    Attributes:
        reply: makes the reply, at once, or in a thread of the request if it `waits`.
        waits: whether it may wait, as for a store; few of these run at once.
        guarded: whether it asks for the port's bearer token, if the port has one.
    """

    reply: Callable[[HttpRequest], HttpReply]
    waits: bool = False
    guarded: bool = False


def text_reply(status: int, text: str) -> HttpReply:
    """A reply in one or more lines."""
    return HttpReply(status, TEXT, f"{text}\n".encode())


def json_reply(status: int, value: Any) -> HttpReply:
    """A reply with one JSON value."""
    return HttpReply(status, JSON, json.dumps(value).encode() + b"\n")


def address_of(option: str, text: str) -> tuple[str, int]:
    """The host and port that a text such as "8080" or "127.0.0.1:8080" names; "" is every host.

    Raises:
        BadOption: if it names none.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) <= 65_535):
        raise BadOption(option, text, "it is not a port", "write 8080, or 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


class HttpPort(Service):
    """Serves routes at one address, until it is stopped.

    Args:
        option: the option that names the address, for errors.
        address: host and port, as `address_of` returns them; port 0 takes any that is free.
        routes: by path; a part of a path in braces, as in `/scale/{topic}`, fits any text.
        token: the bearer token for guarded routes; empty if they need none.
        events: hears of routes that fail.
        on_failure: called when it ends by an error.

    Raises:
        BadOption: if the address cannot be bound.
    """

    def __init__(
        self,
        option: str,
        address: tuple[str, int],
        routes: Mapping[str, HttpRoute],
        *,
        token: str = "",
        events: Events,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._listener = _bound(option, address)
        self.port: int = self._listener.getsockname()[1]
        super().__init__(f"qframe.http.{self.port}", on_failure)
        self._routes = {tuple(path.split("/")[1:]): route for path, route in routes.items()}
        self._token = token.encode()
        self._events = events
        self._slow_clients = _SlowClients()
        self._waiting = Share(WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    def wake(self) -> None:
        """Ends the loop."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)

    def close(self) -> None:
        """Stops, and frees the address."""
        self.stop(1.0)
        self._listener.close()

    def run(self) -> None:
        """Serves until it is stopped."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(
            self._converse, sock=self._listener, limit=LONGEST_HEAD
        )  # fmt: skip
        if not self.stopping:  # it may have been asked before there was a loop to wake
            await self._ended.wait()
        server.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str((writer.get_extra_info("peername") or ("",))[0])
        writer.transport.set_write_buffer_limits(0)  # so that all is sent when it has drained
        try:
            async with self._slow_clients.watched(address):
                head = await reader.readuntil(b"\r\n\r\n")
            reply = await self._replied(head.decode("latin-1"), address)
            async with self._slow_clients.watched(address):
                writer.write(reply)
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # it has gone, was too slow, or its head is too long
        finally:
            writer.transport.abort()

    async def _replied(self, head: str, address: str) -> bytes:
        first, _, rest = head.partition("\r\n")
        method, _, target = first.partition(" ")
        with_body = method != "HEAD"
        if method not in ("GET", "HEAD"):
            return _written(text_reply(HTTPStatus.METHOD_NOT_ALLOWED, "use GET"), with_body=True)
        try:
            url = urlsplit(target.partition(" ")[0])
        except ValueError:
            return _written(text_reply(HTTPStatus.BAD_REQUEST, "this is no path"), with_body=True)
        route, params = self._found(url.path)
        headers = dict(_headers(rest))
        if route is None:
            paths = ", ".join(sorted("/" + "/".join(parts) for parts in self._routes))
            reply = text_reply(HTTPStatus.NOT_FOUND, f"nothing is here; there are: {paths}")
        elif route.guarded and not self._admits(headers):
            reply = text_reply(HTTPStatus.UNAUTHORIZED, "send Authorization: Bearer <token>")
        else:
            request = HttpRequest(
                params, dict(parse_qsl(url.query, keep_blank_values=True)), headers
            )

            def ask() -> HttpReply:
                return self._asked(route, request, url.path)

            reply = await self._in_thread(ask, address) if route.waits else ask()
        return _written(reply, with_body=with_body)

    def _found(self, path: str) -> tuple[HttpRoute | None, dict[str, str]]:
        parts = [unquote(part) for part in path.split("/")[1:]]
        for pattern, route in self._routes.items():
            if len(pattern) == len(parts) and all(
                _is_name(named) or named == part for named, part in zip(pattern, parts, strict=True)
            ):
                pairs = zip(pattern, parts, strict=True)
                return route, {named[1:-1]: part for named, part in pairs if _is_name(named)}
        return None, {}

    def _admits(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode(errors="replace")
        return not self._token or (
            scheme.lower() == "bearer" and compare_digest(given, self._token)
        )

    def _asked(self, route: HttpRoute, request: HttpRequest, path: str) -> HttpReply:
        try:
            return route.reply(request)
        except Exception as error:
            if self._events:
                self._events.emit("http.failed", path=path, error=error)
            return text_reply(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__)

    async def _in_thread(self, ask: Callable[[], HttpReply], address: str) -> HttpReply:
        """The reply of a route that waits, made in a thread of its own if there is a place."""
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[HttpReply] = loop.create_future()

        def tell(reply: HttpReply) -> None:
            if not replied.cancelled():
                replied.set_result(reply)

        def work() -> None:
            reply = ask()
            with suppress(RuntimeError):  # the port was closed meanwhile
                loop.call_soon_threadsafe(tell, reply)

        if not self._waiting.take(address):
            return _BUSY
        try:
            new_thread(f"{self.name}.request", work).start()
            return await replied
        except RuntimeError:  # the process may have no more threads
            return _BUSY
        finally:
            self._waiting.give_back(address)


class _SlowClients:
    """The connections that wait for their clients, to send a head or to take a reply."""

    def __init__(self) -> None:
        self._addresses: dict[asyncio.Task[None] | None, str] = {}

    @asynccontextmanager
    async def watched(self, address: str) -> AsyncIterator[None]:
        """Waits for the client of this task; closes its connection if that is too long.

        Raises:
            TimeoutError: if the client was too slow.
        """
        task = asyncio.current_task()
        self._addresses[task] = address
        if len(self._addresses) > CONNECTIONS:
            self._close_one()
        try:
            async with asyncio.timeout(WITHIN_S):
                yield
        finally:
            self._addresses.pop(task, None)

    def _close_one(self) -> None:
        """Closes the oldest connection of the address that has most."""
        [(address, _)] = Counter(self._addresses.values()).most_common(1)
        oldest = next(task for task, its in self._addresses.items() if its == address)
        del self._addresses[oldest]
        if oldest is not None:
            oldest.cancel()


_BUSY: Final = text_reply(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once")


def _bound(option: str, address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server(address, family=family)
    except OSError as error:
        shown = f"{host}:{port}" if host else port
        why = f"it cannot be bound: {error.strerror or error}"
        raise BadOption(option, shown, why, "choose a free port of this machine") from None


def _is_name(part: str) -> bool:
    return part.startswith("{")


def _headers(lines: str) -> Iterator[tuple[str, str]]:
    for line in lines.split("\r\n"):
        name, _, value = line.partition(":")
        yield name.strip().lower(), value.strip()


def _written(reply: HttpReply, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
        f"Content-Type: {reply.type}",
        f"Content-Length: {len(reply.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if reply.status == HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + reply.body if with_body else head
