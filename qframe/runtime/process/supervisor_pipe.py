"""A worker's end of the pipe to its supervisor."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec

from qframe.errors import BadOption
from qframe.runtime.process.health import Health
from qframe.service import Service


class SupervisorPipe(Service):
    """Reports that this process serves, and notices when its supervisor has died.

    The operating system closes a dead process's end of the pipe, so a kill -9 is noticed as well.

    Args:
        fd: the file descriptor of this end of the pipe, inherited from the supervisor.
        on_lost: called once, from the pipe's thread, when the supervisor is gone.
        on_failure: called when it ends by an error.

    Raises:
        BadOption: if `fd` is not such a pipe.
    """

    def __init__(
        self,
        fd: int,
        *,
        on_lost: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.supervisor-pipe", on_failure)
        self._on_lost = on_lost
        self._is_ready = False
        try:
            self._socket = socket.socket(fileno=fd)
        except OSError:
            raise BadOption(
                "supervisor pipe",
                fd,
                "it is not the pipe of a supervisor",
                "leave --supervisor-pipe out",
            ) from None
        self._socket.set_inheritable(False)  # a process that a handler starts must not inherit it

    def ready(self) -> None:
        """Tells the supervisor that this process serves."""
        with suppress(OSError):  # it is gone, which the thread notices
            self._socket.sendall(b"ready\n")
        self._is_ready = True

    def report(self, health: Health) -> None:
        """Tells the supervisor how this process is, once it serves; never waits for a reader."""
        with suppress(OSError):
            if self._is_ready:  # the first word of all says that it serves
                self._socket.send(msgspec.json.encode(health) + b"\n", socket.MSG_DONTWAIT)

    def run(self) -> None:
        """Waits for the end of the pipe; the supervisor never writes to it."""
        try:
            while self._socket.recv(64):
                pass
        except OSError:  # it died before it had read what was sent to it
            pass
        if not self.stopping:
            self._on_lost()

    def wake(self) -> None:
        """Ends the wait."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stops, and closes this end."""
        self.stop(1.0)
        self._socket.close()
