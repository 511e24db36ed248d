"""What poolers that share sessions do, as far as their clients see it.

That of PostgreSQL tells them a number of its own for their session, and passes no notification on.
It may ignore the options with which they begin, as PgBouncer with `ignore_startup_parameters =
options` does. That of MariaDB acknowledges what a session sets, and forgets it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from ports import HOST, free_port, give_back

NO = b"N"  # the answer to who asks for encryption, before any message
Act = Callable[[socket.socket, socket.socket], None]

KEY, NOTIFICATION = b"K", b"A"
VERSION_3 = 3 << 16


class Pooler:
    """A proxy before a PostgreSQL on this machine, for as long as its `with` lasts."""

    def __init__(self, target_port: int, *, keeps_options: bool = True) -> None:
        self.port = free_port()
        self._target = target_port
        self._asks: Act = _pass_on if keeps_options else _pass_on_without_options
        self._answers: Act = _answer
        self._listener = socket.create_server((HOST, self.port))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            each.close()
        give_back(self.port)

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((HOST, self._target))
            self._sockets += [near, far]
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for act, source, target in ((self._asks, near, far), (self._answers, far, near)):
                words = (act, source, target)
                threading.Thread(target=_until_closed, args=words, daemon=True).start()


class MariaDbPooler(Pooler):
    """A proxy before a MariaDB on this machine."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self._asks, self._answers = _pass_on_without_settings, _pass_on


def _until_closed(act: Act, source: socket.socket, target: socket.socket) -> None:
    """Runs one direction; both sides are closed at its end."""
    with suppress(OSError):
        act(source, target)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    while chunk := source.recv(65536):
        target.sendall(chunk)


def _pass_on_without_options(source: socket.socket, target: socket.socket) -> None:
    """The first message that is not a request for encryption names the session's parameters."""
    with source.makefile("rb") as stream:
        while True:
            length, version = (int.from_bytes(stream.read(4)) for _ in range(2))
            rest = stream.read(length - 8)
            if version == VERSION_3:
                break
            target.sendall(length.to_bytes(4) + version.to_bytes(4) + rest)
        words = rest.rstrip(b"\0").split(b"\0")
        pairs = [
            pair for pair in zip(words[::2], words[1::2], strict=True) if pair[0] != b"options"
        ]
        kept = b"".join(b"%b\0%b\0" % pair for pair in pairs) + b"\0"
        target.sendall((len(kept) + 8).to_bytes(4) + version.to_bytes(4) + kept)
        while chunk := stream.read1(65536):
            target.sendall(chunk)


def _pass_on_without_settings(source: socket.socket, target: socket.socket) -> None:
    """A statement that sets something becomes one of the same length that does nothing."""
    while chunk := source.recv(65536):
        head, found, text = chunk.partition(b"SET SESSION")
        target.sendall(head + b"DO 0".ljust(len(found + text)) if found else chunk)


def _answer(source: socket.socket, target: socket.socket) -> None:
    """Passes the server's messages on, each of them whole: a type, a length, the rest."""
    has_begun = False
    with source.makefile("rb") as stream:
        while sort := stream.read(1):
            if sort == NO and not has_begun:
                target.sendall(sort)
                continue
            has_begun = True
            length = stream.read(4)
            rest = stream.read(int.from_bytes(length) - 4)
            if sort == KEY:
                rest = bytes(4) + rest[4:]
            if sort != NOTIFICATION:
                target.sendall(sort + length + rest)
