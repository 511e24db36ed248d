"""A small HTTP server for what machines ask of a running process: probes, numbers, autoscalers.

It answers GET and HEAD, one request for each connection, each in a thread of its own. It is no web
framework: no bodies of requests, no keep-alive, no TLS.

Bounds: at most 16 requests at once, 4 of them on routes that wait for a store, so that a store that
hangs never keeps a liveness probe waiting; a request has 5 s and 16 KiB for its head, and 5 s to
take its reply.

Failures: an address that cannot be bound is a `BadOption`; a route that raises is a reply with
status 500 and the error's class, and the event `http.failed`; too many requests get status 503.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption
from qframe.events import Events
from qframe.service import Service

REQUESTS: Final = 16
REQUESTS_THAT_WAIT: Final = 4
WITHIN_S: Final = 5.0
LONGEST_HEAD: Final = 16_384
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_SEND_PAUSE_S: Final = 0.1


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
        reply: makes the reply, in a thread of the request.
        waits: whether it may wait long, as for a store; few of these run at once.
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
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
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
        self._places = threading.BoundedSemaphore(REQUESTS)
        self._waiting_places = threading.BoundedSemaphore(REQUESTS_THAT_WAIT)

    def wake(self) -> None:
        """Ends the wait for a connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stops, and frees the address."""
        self.stop(1.0)
        self._listener.close()

    def run(self) -> None:
        """Accepts connections until it is stopped."""
        while not self.stopping:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it is to stop, the client has gone, or there is no descriptor left
                self._stopping.wait(_SEND_PAUSE_S)
                continue
            if not self._places.acquire(blocking=False):
                with connection, suppress(OSError):
                    connection.settimeout(0)
                    connection.send(_written(_BUSY, with_body=True))
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection,), name=f"{self.name}.request", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the process may have no more threads
                self._places.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                head = _head(connection)
                if head is not None:
                    connection.settimeout(WITHIN_S)
                    connection.sendall(self._replied(head))
        finally:
            self._places.release()

    def _replied(self, head: str) -> bytes:
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
            reply = self._asked(route, request, url.path)
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
        with _place(self._waiting_places if route.waits else None) as has_room:
            if not has_room:
                return _BUSY
            try:
                return route.reply(request)
            except Exception as error:
                if self._events:
                    self._events.emit("http.failed", path=path, error=error)
                return text_reply(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__)


_BUSY: Final = text_reply(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once")


@contextmanager
def _place(places: threading.BoundedSemaphore | None) -> Iterator[bool]:
    """A place while there is one; without `places` there always is."""
    has_room = places is None or places.acquire(blocking=False)
    try:
        yield has_room
    finally:
        if places is not None and has_room:
            places.release()


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


def _head(connection: socket.socket) -> str | None:
    """The head of a request; None if it is too long, or does not come in time."""
    until_s = SYSTEM_CLOCK.monotonic_s() + WITHIN_S
    head = b""
    while b"\r\n\r\n" not in head:
        left_s = until_s - SYSTEM_CLOCK.monotonic_s()
        if left_s <= 0 or len(head) > LONGEST_HEAD:
            return None
        connection.settimeout(left_s)
        part = connection.recv(4096)
        if not part:
            return None
        head += part
    return head.partition(b"\r\n\r\n")[0].decode("latin-1")


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
