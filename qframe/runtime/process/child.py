"""One of a supervisor's processes: its start, its word that it serves, its end, its next start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from qframe.clock import Clock
from qframe.retry import Backoff
from qframe.runtime.process.health import LIVE_WITHIN_S, Health

HEALTHY_S: Final = 60.0
"""After so many seconds of service a child's failures are counted anew."""


class Child:
    """A process that is started as often as its supervisor wants.

    It is executed anew, never forked from a running interpreter, so it shares no connection. It is
    the head of a process group of its own, so that Ctrl-C in a terminal does not reach it. A pair
    of sockets joins the two: it writes a line there when it serves, then its health again and again
    if that is wanted, and reads the end of the stream when the supervisor is gone.

    Args:
        number: its number, from 1.
        command: the command line, given the file descriptor of the child's end of the pipe.
        environment: its environment.
        clock: tells how long it was healthy.
    """

    def __init__(
        self,
        number: int,
        *,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self.number = number
        self.starts_at_s: float | None = None  # when it is to be started again
        self._command = command
        self._environment = environment
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: socket.socket | None = None
        self._hears = False
        self._unread = b""
        self._ready_at_s: float | None = None
        self._reported: Health | None = None
        self._reported_at_s = 0.0
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def pipe(self) -> socket.socket | None:
        """Where its words are awaited; None if there will be no more."""
        return self._pipe if self._hears else None

    def start(self) -> int:
        """Starts it; returns its process id.

        Raises:
            OSError: if the operating system cannot.
        """
        self.starts_at_s = None
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the supervisor's own command line
                    self._command(theirs.fileno()),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._pipe, self._hears, self._unread = ours, True, b""
        self._ready_at_s = self._reported = None
        return self._process.pid

    def poll(self) -> int | None:
        """How it has ended since it was last asked, as in `Popen.returncode`; None if it has not.

        Its word is heard first, so that one which serves and ends at once has served.
        """
        code = None if self._process is None else self._process.poll()
        self._hear()
        if code is not None:
            self._process = None
        return code

    @property
    def serves(self) -> bool:
        """Whether it has said that it serves, since its last start."""
        return self._ready_at_s is not None

    def _hear(self) -> None:
        while self._pipe is not None and self._hears:
            try:
                said = self._pipe.recv(65_536)
            except BlockingIOError:
                return
            except OSError:
                said = b""
            if not said:
                self._hears = False
                return
            if self._ready_at_s is None:
                self._ready_at_s = self._clock.monotonic_s()
            *lines, self._unread = (self._unread + said).split(b"\n")
            self._note(lines)

    def _note(self, lines: Sequence[bytes]) -> None:
        """Keeps the last report of these lines, if there is one."""
        for line in reversed(lines):
            with suppress(msgspec.DecodeError):
                self._reported = msgspec.json.decode(line, type=Health)
                self._reported_at_s = self._clock.monotonic_s()
                return

    def health(self) -> Health | None:
        """How it is, as far as its supervisor knows; None if it has ended for good."""
        if self._process is None:
            if self.starts_at_s is None:
                return None
            return Health.of("starting", lacking=[f"worker {self.number} is to be restarted"])
        if self._ready_at_s is None:
            return Health.of("starting", lacking=[f"worker {self.number} is starting"])
        told_at_s = self._ready_at_s if self._reported is None else self._reported_at_s
        silent_s = self._clock.monotonic_s() - told_at_s
        if silent_s >= LIVE_WITHIN_S:
            silence = f"worker {self.number} has said nothing for {silent_s:.0f} s"
            return Health.of("serving", standing=[silence])
        if self._reported is None:
            return Health.of("serving", lacking=[f"worker {self.number} has not reported yet"])
        named = [f"worker {self.number}: {fault}" for fault in self._reported.faults]
        return msgspec.structs.replace(self._reported, faults=named)

    def plan_restart(self, backoff: Backoff) -> float:
        """Plans its next start, later with each failure in a row; returns the wait in seconds."""
        now_s = self._clock.monotonic_s()
        if self._ready_at_s is not None and now_s - self._ready_at_s >= HEALTHY_S:
            self._failures = 0
        self._failures += 1
        wait_s = backoff.delay_ms(self._failures) / 1000
        self.starts_at_s = now_s + wait_s
        return wait_s

    def terminate(self) -> None:
        """Asks it to stop, and forgets a planned start."""
        self.starts_at_s = None
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Ends it now, with all that it has started in its group."""
        self.starts_at_s = None
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, timeout_s: float) -> None:
        """Waits for its end, so long at most."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)

    def close(self) -> None:
        """Closes the pipe: a child that still runs stops by itself."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe, self._hears = None, False
