"""Ports for servers, each given to one process of this machine at a time.

Between the choice of a port and the moment when its server listens, another process could choose
the same. So a port is claimed first, by the UDP port of the same number: no server of the tests
uses that, the system gives it to one process alone, whoever's it is, and takes it back at its end.
"""

from __future__ import annotations

import os
import secrets
import socket

HOST = "127.0.0.1"
# Below the ports that the system gives to connections; a Redis cluster's bus stands 10,000 above.
PORTS = range(11_000, 21_000)
BUS = 10_000

_given: set[int] = set()
_claims: dict[int, int] = {}


def free_port() -> int:
    """A port that nobody listens on, nor on the one 10,000 above; none is given twice."""
    for _ in range(1000):
        port = secrets.choice(PORTS)
        if port in _given or not _claim(port):
            continue
        if _is_free(port) and _is_free(port + BUS):
            _given.add(port)
            return port
        give_back(port)
    raise RuntimeError("no free port found")


def give_back(port: int) -> None:
    """Lets other processes have a port, when its server has ended for good."""
    claim = _claims.pop(port, None)
    if claim is not None:
        os.close(claim)


def _claim(port: int) -> bool:
    with socket.socket(type=socket.SOCK_DGRAM) as claim:
        try:
            claim.bind((HOST, port))
        except OSError:
            return False
        _claims[port] = claim.detach()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
