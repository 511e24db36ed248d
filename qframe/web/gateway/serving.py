"""Serves the gateway's routes until a signal, then lets clients settle what they have."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

import h11
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from qframe.drivers.tls import fault_of
from qframe.errors import BadOption
from qframe.web.gateway.asking import IS_LOST
from qframe.web.gateway.connections import Connections
from qframe.web.gateway.gateway import Gateway

LAST_REPLIES_S: Final = 5
BACKLOG: Final = 2048
HEAD_S: Final = 10.0
REST_S: Final = 5.0
TAKEN_S: Final = 30.0
RENEWED_S: Final = 5.0
_REFUSED: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n"
    b"connection: close\r\n\r\n"
)
_CONNECTIONS: Final[WeakKeyDictionary[uvicorn.Config, Connections]] = WeakKeyDictionary()
LIMITS_S: Final = {h11.IDLE: HEAD_S, h11.SEND_BODY: REST_S}
KEPT_S: Final = 75  # longer than load balancers keep a connection, so that it is they who close it


class TimedConnection(H11Protocol):
    """A connection that is closed when its client sends something too slowly.

    A head has 10 s to arrive whole. A body that is not whole when the reply has been sent, such as
    that of a refused request, has 5 s: a client that is still sending can read the reply meanwhile.
    uvicorn itself waits for ever for both, so whoever says nothing would keep its connection. A
    body before the reply is bounded where it is read. A request with two lengths is the last one.

    The addresses of clients share the connections of a server.
    """

    _awaited: Any = None
    _limit: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(1)  # so that the flow hears of all that is not taken
        self.flow = TimedFlow(transport, self.loop)
        self._shared = _CONNECTIONS.setdefault(self.config, Connections())
        self._shared.add(self, self.client[0] if self.client else "")
        self._note_state()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.remove(self)
        super().connection_lost(exc)

    def refuse(self) -> None:
        """Closes it, since its address has its share of connections."""
        self.transport.write(_REFUSED)
        self.transport.close()

    def drop(self) -> None:
        """Closes it for another one of its address: nobody has asked anything at it lately."""
        self.transport.close()

    @override
    def handle_events(self) -> None:
        scope = self.scope
        super().handle_events()
        if self.scope is not scope:  # a request, which is served after this
            self.scope[IS_LOST] = self.transport.is_closing  # type: ignore[typeddict-unknown-key]
        if self.headers and CLOSE_HEADER not in self.headers and _has_two_lengths(self.headers):
            self.headers.append(CLOSE_HEADER)  # as if the client had asked for it
        self._note_state()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()

    def _note_state(self) -> None:
        is_replied = self.cycle is None or self.cycle.response_complete
        is_idle = is_replied and self.conn.their_state is h11.IDLE
        self._shared.mark(self, is_idle=is_idle)
        self._set_limit()

    def _set_limit(self) -> None:
        awaited = self._awaits()
        if awaited is self._awaited:
            return
        if self._limit is not None:
            self._limit.cancel()
        self._awaited = awaited
        if awaited is None:
            self._limit = None
        else:
            self._limit = self.loop.call_later(LIMITS_S[awaited], self.transport.close)

    def _awaits(self) -> Any:
        """The state of the client that has a limit, if it is in one."""
        theirs = self.conn.their_state
        if theirs is h11.IDLE:
            is_kept = self.timeout_keep_alive_task is not None and not self.conn.trailing_data[0]
            return None if is_kept else theirs
        is_replied = self.cycle is not None and self.cycle.response_complete
        return theirs if theirs is h11.SEND_BODY and is_replied else None


def _has_two_lengths(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a proxy may have seen the request end elsewhere (RFC 9112, 6.1)."""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}


class TimedFlow(FlowControl):
    """Ends a connection whose client takes nothing of a reply for half a minute."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._limit: asyncio.TimerHandle | None = None

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _watch(self) -> None:
        left = self._transport.get_write_buffer_size()
        self._limit = self._loop.call_later(TAKEN_S, self._look, left)

    def _look(self, left: int) -> None:
        if self._transport.get_write_buffer_size() < left:
            self._watch()
        else:
            self._transport.abort()


class GatewayServer(uvicorn.Server):
    """A server that stops in two steps: nothing more is handed out, then nothing is served.

    The first signal begins the first step, and the second one ends both.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway, grace_s: float) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's
        """Hears a signal."""
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._draining is not None:
            self.should_exit = self.force_exit = True
        else:
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._gateway.drain(self._grace_s)
        self.should_exit = True


def serve(
    served: ASGIApp,
    gateway: Gateway,
    *,
    host: str,
    port: int,
    grace_s: float,
    cert: str | None = None,
    key: str | None = None,
    on_ready: Callable[[], None],
) -> None:
    """Serves until a SIGTERM or SIGINT.

    Args:
        served: the gateway's routes.
        gateway: the gateway.
        host: the address of this machine to listen at.
        port: the port.
        grace_s: how long to wait for settlements at the end.
        cert: the file of the certificate chain, for TLS. It is read again when it has changed.
        key: the file of its key.
        on_ready: called when programs can connect.

    Raises:
        BadOption: if the address cannot be bound, or there is no certificate in the files.
    """
    if cert is not None:
        _check_certificate(cert, key)
    config = uvicorn.Config(
        served, host=host, port=port, log_level="error", access_log=False, proxy_headers=False,
        server_header=False, lifespan="on", ssl_certfile=cert, ssl_keyfile=key,
        timeout_graceful_shutdown=LAST_REPLIES_S, timeout_keep_alive=KEPT_S,
        http=TimedConnection, ws="none",
    )  # fmt: skip

    async def run() -> None:
        config.load()
        renewing = config.ssl and cert and asyncio.create_task(_renew(config.ssl, cert, key))
        try:
            await GatewayServer(config, gateway, grace_s).serve(sockets=[bound])
        finally:
            if renewing:
                renewing.cancel()

    with bound_socket(host, port) as bound:
        on_ready()
        asyncio.run(run())


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        BadOption: if it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Its protocol is named, since asyncio sends small replies at once (TCP_NODELAY) by that alone.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise BadOption(
            "--port", f"{host}:{port}", f"it cannot be bound ({error.strerror})", "name a free one"
        ) from error
    return made


def _check_certificate(cert: str, key: str | None) -> None:
    if fault := fault_of(None, cert, key):
        remedy = "name both files, in PEM, without a password"
        raise BadOption("--tls-cert", cert, fault.why, remedy)


async def _renew(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Uses a certificate that was renewed for all connections that begin from then on."""
    used = _stamps(cert, key)
    while True:
        await asyncio.sleep(RENEWED_S)
        found = _stamps(cert, key)
        # One of the files may be new already, and the other not yet.
        if found != used and fault_of(None, cert, key) is None:
            with suppress(OSError):
                context.load_cert_chain(cert, key)
                used = found


def _stamps(*files: str | None) -> list[tuple[int, int]]:
    """When files were changed, and how long they are; nothing of one that is not there."""
    stamps = []
    for file in filter(None, files):
        with suppress(OSError):
            stat = Path(file).stat()
            stamps.append((stat.st_mtime_ns, stat.st_size))
    return stamps
