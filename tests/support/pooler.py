"""What a pooler of PostgreSQL that shares sessions does, as far as its clients see it.

It tells them a number of its own for their session, and passes no notification on.
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


class Pooler:
    """A proxy before a server on this machine, for as long as its `with` lasts."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target = target_port
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
            for act, source, target in ((_pass_on, near, far), (_answer, far, near)):
                words = (act, source, target)
                threading.Thread(target=_until_closed, args=words, daemon=True).start()


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
