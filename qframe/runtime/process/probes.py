"""Telling others of a process's health: by HTTP, in a file, to systemd, to a supervisor.

`health` says what the probes mean.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from qframe.clock import Clock
from qframe.digits import whole_number
from qframe.errors import BadOption
from qframe.http_port import HttpReply, HttpRequest, HttpRoute, json_reply
from qframe.runtime.process.health import Health
from qframe.service import Service

EVERY_S: Final = 1.0


class Probes:
    """The routes of the three probes.

    Args:
        look: returns the present health, at once.
    """

    def __init__(self, look: Callable[[], Health]) -> None:
        self._look = look
        self._has_started = False

    def routes(self) -> dict[str, HttpRoute]:
        """The routes, by path."""
        return {
            "/livez": HttpRoute(self._live),
            "/readyz": HttpRoute(self._ready),
            "/startupz": HttpRoute(self._started),
        }

    def _live(self, _: HttpRequest) -> HttpReply:
        health = self._look()
        return _reply(health, ok=health.live)

    def _ready(self, _: HttpRequest) -> HttpReply:
        health = self._look()
        return _reply(health, ok=health.ready)

    def _started(self, _: HttpRequest) -> HttpReply:
        health = self._look()
        self._has_started = self._has_started or health.state in ("serving", "stopping")
        return _reply(health, ok=self._has_started)


class HealthReporter(Service):
    """Looks every second, and tells whoever wants to know.

    Args:
        look: returns the present health, at once.
        listeners: told of each look.
        every_s: the time between looks, in seconds.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        look: Callable[[], Health],
        listeners: Sequence[Callable[[Health], None]],
        *,
        every_s: float = EVERY_S,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.health", on_failure)
        self._look = look
        self._listeners = listeners
        self._every_s = every_s

    def run(self) -> None:
        """Looks and tells until it is stopped."""
        while not self.stopping:
            health = self._look()
            for tell in self._listeners:
                tell(health)
            self._stopping.wait(self._every_s)


class HealthFile:
    """A file with the present health, for `qframe ping --file` and for anyone with a shell.

    It is replaced as a whole each second, and removed at the end, so it is never half written. Its
    `at_s` is the machine's monotonic clock: a file that a killed process has left grows old.

    Args:
        path: where it is.
        clock: tells when a look was taken.

    Raises:
        BadOption: if it cannot be written.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = Path(path)
        self._clock = clock
        try:
            self._write(Health(state="starting"))
        except OSError as error:
            raise BadOption(
                "--health-file", path, f"it cannot be written: {error.strerror or error}",
                "name a file in a folder that the worker may write",
            ) from None  # fmt: skip

    def tell(self, health: Health) -> None:
        """Writes it; a disk that is full leaves the last one, which grows old."""
        with suppress(OSError):
            self._write(health)

    def remove(self) -> None:
        """Removes it: the process ends."""
        with suppress(OSError):
            self._path.unlink()

    def _write(self, health: Health) -> None:
        value = {**_value(health), "at_s": round(self._clock.monotonic_s(), 3), "pid": os.getpid()}
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        beside.write_bytes(msgspec.json.encode(value) + b"\n")
        beside.replace(self._path)


class Systemd:
    """The service manager that has started this process with `Type=notify`, told by datagrams.

    READY=1 is sent once the process serves, WATCHDOG=1 with each look that finds it live, and
    STOPPING=1 once it stops. One of the first and the last that cannot be sent is sent with the
    next look. See sd_notify(3).

    Args:
        environment: where the manager says how to reach it; without that nothing is sent.
    """

    VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._usec = environment.get("WATCHDOG_USEC", "")
        self._is_ready = self._is_stopping = False

    @property
    def every_s(self) -> float:
        """How often it wants to be told: twice in its limit, or every second."""
        limit_s = 0.0
        with suppress(ValueError):  # there is none
            limit_s = whole_number(self._usec) / 1_000_000
        return min(EVERY_S, limit_s / 2) if limit_s > 0 else EVERY_S

    def tell(self, health: Health) -> None:
        """Sends what is new."""
        if not self._address:
            return
        if not self._is_ready and health.state == "serving":
            self._is_ready = self._send("READY=1")
        if health.state == "stopping":
            self.stopping()
        if health.live:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Says that the process stops."""
        if self._address and not self._is_stopping:
            self._is_stopping = self._send("STOPPING=1")

    def _send(self, text: str) -> bool:
        """Sends it unless the manager has not read some ten before; that must hold up no worker."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)
            manager.sendto(text.encode(), self._address)
            return True
        return False


def _reply(health: Health, *, ok: bool) -> HttpReply:
    return json_reply(200 if ok else 503, _value(health))


def _value(health: Health) -> dict[str, object]:
    return {
        "state": health.state, "live": health.live, "ready": health.ready, "faults": health.faults
    }  # fmt: skip
