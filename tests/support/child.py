"""A server process for a test: started, killed, frozen and started again, on its own port."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import Self

from ports import free_port, give_back
from programs import NotStarted

# What hangs is found; how quick the machine is, is not the question.
START_S = 300.0
STOP_S = 60.0
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)
_ended_s: dict[Path, float] = {}  # of each log of this process's servers; infinite while one runs


def logs_since(moment_s: float) -> list[Path]:
    """Where the servers write that run now, or ran at a moment of the monotonic clock or later."""
    return [log for log, ended_s in _ended_s.items() if ended_s >= moment_s]


class Child(ABC):
    """A server in the foreground, which dies with the thread that has started it.

    So a server is to be started, and restarted, by a thread that lives as long as it: the main one.
    """

    STOP_SIGNAL = signal.SIGTERM

    def __init__(self, name: str, folder: Path, port: int | None) -> None:
        self.folder = folder.resolve()
        self.port = port or free_port()
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def _command(self) -> list[str]:
        """The program and its arguments; NotStarted says what to install if it is missing."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it answers: this process, not another that has taken the port before it."""

    @property
    def log(self) -> Path:
        """Where it writes what it says."""
        return self.folder / f"{self._name}.log"

    @property
    def pid(self) -> int:
        """The process; after its end, the one there was."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            _ended_s[self.log] = time.monotonic()

    def stop(self) -> None:
        """Asks it to end, frozen or not; kills it if it does not."""
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(self.STOP_SIGNAL)
        self.thaw()
        try:
            self._process.wait(STOP_S)
            _ended_s[self.log] = time.monotonic()
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Starts it again, on its port and in its folder, after stopping it if need be."""
        self.stop()
        self._start()

    def freeze(self) -> None:
        """It keeps its connections and the system still accepts new ones, but it does nothing."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)
            if sys.platform == "linux":  # only then have all its threads stopped
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """It goes on where it was."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        give_back(self.port)

    def _start(self) -> None:
        command = self._command()
        _ended_s[self.log] = math.inf
        with self.log.open("ab") as log, warnings.catch_warnings():
            # From 3.12 on, Python warns of any fork beside threads; between fork and exec there is
            # but one system call here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self) -> None:
        until, pause = time.monotonic() + START_S, threading.Event()
        while not self._is_ready():
            if not self.is_running or time.monotonic() > until:
                raise NotStarted(f"{self._name} did not start; its log ends:\n{self._tail()}")
            pause.wait(0.01)

    def _tail(self) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, 20))


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
