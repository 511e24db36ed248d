"""Where a push may go: to public addresses, looked at before each connection."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterable

import httpcore2
from typing_extensions import override

from qframe.clock import Clock
from qframe.errors import QFrameError
from qframe.push.special_addresses import is_public

Resolve = Callable[[str, int], list[str]]


class AddressRefused(QFrameError):
    """Raised where a receiver's host has an address to which nothing may be sent."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(
            f"{host} has the address {address}, which is not a public one; nothing was sent. Allow "
            "private addresses (private=True, --private) if the receiver is in your own network"
        )


def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class CheckedAddresses(httpcore2.NetworkBackend):
    """Connects to addresses that were looked at, and to none of a host that has a private one.

    The addresses of a host share the time there is for connecting: each one has its part of what
    those before it have left.

    Args:
        network: opens the connections.
        clock: measures what is left.
        private: whether any address is allowed.
        resolve: tells the addresses of a host; by default the system does, in its own time.
    """

    def __init__(
        self, network: httpcore2.NetworkBackend, clock: Clock, *, private: bool,
        resolve: Resolve | None = None,
    ) -> None:  # fmt: skip
        self._network = network
        self._clock = clock
        self._private = private
        self._resolve = resolve or resolved

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        until_s = self._clock.monotonic_s() + (math.inf if timeout is None else timeout)
        addresses = self._addresses(host, port)
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise httpcore2.ConnectTimeout("it has not let connect in time") from problem
            share_s = None if timeout is None else left_s / (len(addresses) - number)
            try:
                return self._network.connect_tcp(
                    address, port, share_s, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem

    def _addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host, each of which may be connected to.

        Raises:
            ConnectError: if it has none.
            AddressRefused: if one is not public, and has to be.
        """
        try:
            addresses = self._resolve(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} has no address: {error}") from error
        for address in addresses:
            if not (self._private or is_public(address)):
                raise AddressRefused(host, address)
        return addresses

    @override
    def sleep(self, seconds: float) -> None:
        self._network.sleep(seconds)
