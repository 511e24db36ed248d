"""One of a supervisor's processes: its start, its word that it serves, its end, its next start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from qframe.clock import Clock
from qframe.retry import Backoff


class Child:
    """A process that is started as often as its supervisor wants.

    It is executed anew, never forked from a running interpreter, so it shares no connection. It is
    the head of a process group of its own, so that Ctrl-C in a terminal does not reach it. A pair
    of sockets joins the two: it writes a line there when it serves, and reads the end of the
    stream when the supervisor is gone.

    Args:
        number: its number, from 1.
        command: the command line, given the file descriptor of the child's end of the line.
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
        self._line: socket.socket | None = None
        self._hears = False
        self._ready_at_s: float | None = None
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def line(self) -> socket.socket | None:
        """Where its word that it serves is awaited; None if it is not, or not any more."""
        return self._line if self._hears else None

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
        self._line, self._hears, self._ready_at_s = ours, True, None
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
        if self._line is None or not self._hears:
            return
        try:
            said = self._line.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._hears = False
        if said:
            self._ready_at_s = self._clock.monotonic_s()

    def plan_restart(self, backoff: Backoff, healthy_s: float) -> float:
        """Plans its next start, later with each failure in a row; returns the wait in seconds.

        Args:
            backoff: the waits.
            healthy_s: after so many seconds of service, failures are counted anew.
        """
        now_s = self._clock.monotonic_s()
        if self._ready_at_s is not None and now_s - self._ready_at_s >= healthy_s:
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
        """Closes the line: one that still runs stops by itself."""
        if self._line is not None:
            self._line.close()
            self._line, self._hears = None, False
