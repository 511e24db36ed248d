"""Sockets to ZooKeeper: none is left open, and none is opened once all was closed."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from qframe.drivers.zookeeper_servers import Connections


def connections(tls: Any = None, share_s: float = 1.0) -> Connections:
    servers: Any = SimpleNamespace(share_s=lambda _: share_s, tls=tls)
    return Connections(servers, 10.0, lambda _: None)


@pytest.mark.parametrize("error", [OSError("no certificate"), ValueError("no certificate")])
def test_a_socket_whose_tls_fails_is_closed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made = MagicMock()
    monkeypatch.setattr(socket, "create_connection", lambda *_: made)
    tls = MagicMock()
    tls.wrap_socket.side_effect = error
    with pytest.raises(type(error), match="no certificate"):
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


@pytest.mark.parametrize(("share_s", "longest_s"), [(1.0, 1.0), (30.0, 3.0)])
def test_a_server_has_its_share_of_the_session_to_take_a_connection_and_at_most_3_s(
    monkeypatch: pytest.MonkeyPatch, share_s: float, longest_s: float
) -> None:
    made, tls, asked = MagicMock(), MagicMock(), []

    def create(*place: object) -> MagicMock:
        asked.append(place)
        return made

    monkeypatch.setattr(socket, "create_connection", create)
    opened = connections(tls, share_s).create_connection(("10.0.0.1", 2181), "zookeeper.shop")
    assert asked == [(("10.0.0.1", 2181), longest_s)]
    made.setsockopt.assert_called_once_with(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tls.wrap_socket.assert_called_once_with(made, server_hostname="zookeeper.shop")
    assert opened is tls.wrap_socket.return_value


def test_a_loop_that_ends_by_an_error_says_so_and_that_of_the_connection_is_begun_again() -> None:
    told: list[BaseException] = []
    servers: Any = SimpleNamespace(share_s=lambda _: 1.0)
    opened = Connections(servers, 10.0, told.append)
    runs: list[str] = []
    waits: list[float] = []

    def zk_loop(name: str) -> None:
        runs.append(name)
        raise ValueError(name)

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 2

    opened._ending.wait = wait  # type: ignore[assignment]
    thread = opened.spawn(zk_loop, "a")
    thread.join()
    assert (runs, len(told), waits) == (["a"] * 2, 2, [1.0] * 2)
    assert thread.daemon
    opened.spawn(runs.append, "b").join()
    assert (runs[2:], len(waits)) == (["b"], 2)


def test_who_is_cut_or_ends_lets_the_loop_of_its_connection_end() -> None:
    for end in (Connections.end, Connections.cut):
        opened = connections()
        end(opened)
        runs: list[str] = []

        def zk_loop(runs: list[str] = runs) -> None:
            runs.append("")

        opened.spawn(zk_loop).join()
        assert len(runs) == 1


def test_a_connection_that_is_cut_twice_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(socket, "create_connection", lambda *_: ours)
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *_: None)
    opened = connections()
    with ours, theirs:
        opened.create_connection(("zookeeper", 2181))
        opened.cut()
        assert theirs.recv(1) == b""
    opened.cut()
