"""Sockets to ZooKeeper: none is left open, and none is opened once all was closed."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from qframe.drivers.zookeeper_servers import Connections


def connections(tls: Any = None) -> Connections:
    servers: Any = SimpleNamespace(share_s=lambda _: 1.0, tls=tls)
    return Connections(servers, 10.0, lambda _: None)


def test_a_socket_whose_tls_fails_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MagicMock()
    monkeypatch.setattr(socket, "create_connection", lambda *_: made)
    tls = MagicMock()
    tls.wrap_socket.side_effect = OSError("no certificate")
    with pytest.raises(OSError, match="no certificate"):
        connections(tls).create_connection(("zookeeper", 2181))
    made.close.assert_called_once_with()


def test_a_connection_that_comes_after_the_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    opened = connections()

    def create(*_: object) -> socket.socket:
        opened.cut()  # while it was waited for
        return ours

    monkeypatch.setattr(socket, "create_connection", create)
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *_: None)
    with ours, theirs:
        opened.create_connection(("zookeeper", 2181))
        theirs.settimeout(10)
        assert theirs.recv(1) == b""
        with pytest.raises(ConnectionAbortedError):
            opened.create_connection(("zookeeper", 2181))
