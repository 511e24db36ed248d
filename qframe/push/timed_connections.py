"""Connections with one limit per request: a receiver that goes byte by byte holds no thread."""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpcore2
from typing_extensions import override

from qframe.clock import Clock

_PIECE: Final = 16_384


class RequestEnd(threading.local):
    """The end of the request that a thread sends: each thread has its own."""

    until_s: float = math.inf

    @contextmanager
    def ending(self, until_s: float) -> Iterator[None]:
        """Has all steps of the block end by then, on the monotonic clock."""
        self.until_s = until_s
        try:
            yield
        finally:
            self.until_s = math.inf


class TimedConnections(httpcore2.NetworkBackend):
    """Opens connections by another backend, within the limit of the thread that uses them.

    Args:
        network: opens them.
        limit: when the request of the thread has to end.
        clock: measures what is left.
    """

    def __init__(
        self, network: httpcore2.NetworkBackend, limit: RequestEnd, clock: Clock
    ) -> None:  # fmt: skip
        self._network = network
        self._limit = limit
        self._clock = clock

    def left_s(self, timeout_s: float | None) -> float | None:
        """How long a step may take that would have so long without the limit.

        Raises:
            ReadTimeout: if nothing is left.
        """
        left_s = self._limit.until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise httpcore2.ReadTimeout("it has not answered in time")
        return timeout_s if left_s == math.inf else min(left_s, timeout_s or math.inf)

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        stream = self._network.connect_tcp(
            host, port, self.left_s(timeout), local_address, socket_options
        )
        return TimedStream(stream, self)

    @override
    def sleep(self, seconds: float) -> None:
        self._network.sleep(seconds)


class TimedStream(httpcore2.NetworkStream):
    """A connection of a `TimedConnections`."""

    def __init__(self, stream: httpcore2.NetworkStream, network: TimedConnections) -> None:
        self._stream = stream
        self._network = network

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._network.left_s(timeout))

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # A receiver that takes a little now and then would get a new limit for each little.
        for start in range(0, len(buffer), _PIECE):
            left_s = self._network.left_s(timeout)
            self._stream.write(buffer[start : start + _PIECE], left_s)

    @override
    def close(self) -> None:
        self._stream.close()

    @override
    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        left_s = self._network.left_s(timeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, left_s)
        return TimedStream(stream, self._network)

    @override
    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
