"""No test, and no Python that one starts, reaches another machine."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys

import pytest
from loopback import BeyondLoopback, is_local, refused

FAR = "192.0.2.1"  # of no machine: RFC 5737 keeps it for documents


@pytest.mark.parametrize("address", [(FAR, 9), ("2001:db8::1", 9), ("::ffff:192.0.2.1", 9)])
def test_a_connection_to_another_machine_is_refused(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as one, pytest.raises(BeyondLoopback) as raised:
        one.connect(address)
    assert raised.value.errno == errno.ENETUNREACH
    assert refused == [f"{address[0]}:9"]
    refused.clear()


def test_so_are_a_datagram_and_what_an_event_loop_opens() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as one, pytest.raises(BeyondLoopback):
        one.sendto(b"x", (FAR, 9))
    with pytest.raises(BeyondLoopback):
        asyncio.run(asyncio.open_connection(FAR, 9))
    assert len(refused) == 2
    refused.clear()


def test_no_name_is_looked_up() -> None:
    with pytest.raises(socket.gaierror):
        socket.create_connection(("qframe.example.org", 80))


def test_a_python_that_a_test_starts_is_guarded_too() -> None:
    program = f"import socket; socket.create_connection(('{FAR}', 9), timeout=1)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "BeyondLoopback" in ran.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", None])
def test_loopback_is_reached(host: str | None) -> None:
    assert is_local(host)
