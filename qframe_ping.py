"""The `qframe` program's start: `qframe ping` at once, everything else by the whole of qframe.

A probe runs every few seconds, and the import of qframe takes a quarter of a second of CPU. So this
module stands beside the package and imports little: a ping neither loads qframe nor an app.

    qframe ping [--port PORT | --file FILE] [--ready] [--timeout SECONDS]

Exits with 0 if the worker is live (with --ready: if it is ready), with 1 and a line on stderr if it
is not, or cannot be asked, and with 2 if the command is spelt wrong.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from typing import Any

PORT_VARIABLE = "QFRAME_HEALTH_PORT"
FILE_VARIABLE = "QFRAME_HEALTH_FILE"
OLD_AFTER_S = 30.0  # the file is written every second, but a machine may be busy
_LONGEST = 65_536
_LARGEST_PORT = 65_535


class Misspelt(ValueError):
    """Raised when the command is spelt wrong."""


class Unwell(Exception):
    """Raised when a worker is not as it should be, or cannot be asked."""


def main() -> None:
    """Runs the `qframe` command."""
    words = sys.argv[1:]
    if words[:1] == ["ping"] and not {"--help", "-h"} & set(words):
        try:
            options = _options(words[1:])
        except Misspelt as error:
            sys.exit(_refused(str(error), 2))
        sys.exit(run(**options))
    if os.getpid() == 1:  # the kernel ends no container's first process that has not asked for it
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    gc.disable()
    try:
        from qframe.cli.main import main as all_commands

        # All of this stays to the end: whoever looked for garbage in it would find none each time.
        gc.freeze()
        gc.enable()
        all_commands()
    except KeyboardInterrupt:  # while it loads; a command has its own words for it
        sys.exit(130)


def run(
    port: str | None = None, file: str | None = None, *, ready: bool = False, timeout: float = 2.0
) -> int:
    """Asks a worker how it is; returns the exit code.

    Args:
        port: its `--health-port`; by default `QFRAME_HEALTH_PORT`.
        file: its `--health-file`; by default `QFRAME_HEALTH_FILE`. Not both.
        ready: whether it must be ready, not only live.
        timeout: how long to wait for its reply, in seconds.
    """
    try:
        health = _asked(port, file, ready=ready, timeout_s=timeout)
    except Unwell as error:
        return _refused(str(error))
    except Misspelt as error:
        return _refused(str(error), 2)
    if health.get("ready" if ready else "live"):
        return 0
    why = "; ".join(health.get("faults", ())) or f"it is {health.get('state')}"
    return _refused(f"the worker is not {'ready' if ready else 'live'}: {why}")


def _refused(why: str, code: int = 1) -> int:
    sys.stderr.write(f"error: {' '.join(why.split())}\n")
    return code


def _asked(port: str | None, file: str | None, *, ready: bool, timeout_s: float) -> dict[str, Any]:
    if port is None and file is None:
        file = os.environ.get(FILE_VARIABLE)
        port = None if file else os.environ.get(PORT_VARIABLE)
    if file:
        return _of_file(file)
    if port:
        return _of_port(port, "/readyz" if ready else "/livez", timeout_s)
    raise Misspelt(f"neither port nor file is named: give --port or --file, or set {PORT_VARIABLE}")


def _options(words: list[str]) -> dict[str, Any]:
    """The options of a command line.

    Raises:
        Misspelt: if it is spelt wrong.
    """
    found: dict[str, Any] = {}
    rest = [part for word in words for part in word.split("=", 1)]
    while rest:
        name = rest.pop(0)
        if name == "--ready":
            found["ready"] = True
        elif name in ("--port", "--file", "--timeout") and rest:
            found[name[2:]] = rest.pop(0)
        else:
            raise Misspelt(f"ping has no option {name!r}, or it lacks a value; see ping --help")
    if "timeout" in found:
        text = found["timeout"]
        if not (text.isascii() and text.replace(".", "", 1).isdigit()):
            raise Misspelt(f"--timeout {text!r} is no number of seconds; write 2")
        found["timeout"] = float(text)
    return found


def _of_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than to read
            health = _decoded(file.read(_LONGEST))
    except OSError as error:
        raise Unwell(f"{path}: {error.strerror}; no worker writes it, or it has ended") from None
    age_s = _now_s() - float(health.get("at_s", 0.0))
    if not -1 < age_s < OLD_AFTER_S:  # a machine that has started anew counts from zero
        raise Unwell(f"{path} was written {age_s:.0f} s ago: its worker is gone or stands still")
    return health


def _of_port(port: str, path: str, timeout_s: float) -> dict[str, Any]:
    host, _, number = port.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    is_number = number.isascii() and number.isdigit() and len(number) < 6
    if not (is_number and int(number) <= _LARGEST_PORT):
        raise Misspelt(f"--port {port!r} is not a port; write 8080, or 127.0.0.1:8080")
    reply = b""
    try:
        with socket.create_connection((host, int(number)), timeout_s) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            while len(reply) < _LONGEST and (part := connection.recv(4096)):
                reply += part
    except (OSError, ValueError) as error:
        raise Unwell(f"port {port} does not reply within {timeout_s:g} s: {error}") from None
    return _decoded(reply.partition(b"\r\n\r\n")[2])


def _decoded(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unwell("this is not the health of a worker")
    return value


def _now_s() -> float:
    """The machine's monotonic clock, as `qframe.clock` reads it."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:  # noqa: RET505 - mypy takes a return after this for one that is never reached
        return time.monotonic()


if __name__ == "__main__":
    main()
