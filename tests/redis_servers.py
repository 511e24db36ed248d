"""One Redis process for a test: started, killed, frozen and started again."""

from __future__ import annotations

import ctypes
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST = "127.0.0.1"
MISSING = "the tests need redis-server 7 or newer: install it, e.g. apt-get install redis-server"

# Below the ports that the system gives to connections; a cluster's bus stands 10,000 above.
PORTS = range(11_000, 21_000)
BUS = 10_000
START_S = 30.0
STOP_S = 10.0
PR_SET_PDEATHSIG = 1

# A sentinel reconnects to a server at most once a second, and a promotion cuts its connection: with
# less than a second here it takes the new primary for dead, and the roles go to and fro.
DOWN_AFTER_MS = 1500

_libc = ctypes.CDLL(None)
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, nor on the one 10,000 above; none is given twice."""
    for _ in range(1000):
        port = secrets.choice(PORTS)
        if port not in _given and _is_free(port) and _is_free(port + BUS):
            _given.add(port)
            return port
    raise RuntimeError("no free port found")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def connect(port: int, timeout_s: float = 5.0) -> redis.Redis:
    """A new client, to be closed, which tries nothing twice: a test sees what happened."""
    once = Retry(NoBackoff(), 0)
    return redis.Redis(host=HOST, port=port, retry=once, socket_timeout=timeout_s)


class _Child:
    """A server in the foreground, which dies with the thread that has started it.

    So a server is to be started, and restarted, by a thread that lives as long as it: the main one.
    """

    def __init__(self, command: str, folder: Path, port: int | None, lines: list[str]) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        # The server may rewrite this file, as a promoted replica does; a restart goes on with it.
        self._config = folder / f"{command}.conf"
        common = [f"port {self.port}", f"bind {HOST}", "protected-mode no", "daemonize no"]
        text = "\n".join([*common, f'dir "{folder}"', *lines, ""])
        self._config.write_text(text, encoding="utf-8")
        self._start()

    @property
    def log(self) -> Path:
        """Where it writes what it says."""
        return self.folder / f"{self._command}.log"

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process; after its end, the one there was."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def client(self) -> redis.Redis:
        """A new client of it, as `connect` makes it."""
        return connect(self.port)

    def call(self, *words: str | int | bytes) -> Any:
        """What one command answers, on a connection of its own."""
        with self.client() as client:
            return client.execute_command(*words)

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Asks it to end, frozen or not; kills it if it does not."""
        if self._process is None or not self.is_running:
            return
        self._process.terminate()
        self.thaw()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Starts it again, on its port and in its folder, after stopping it if need be."""
        self.stop()
        self._start()

    def freeze(self) -> None:
        """It keeps its connections and the system still accepts new ones, but it does nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        program = shutil.which(self._command)
        if program is None:
            raise RuntimeError(MISSING)
        with self.log.open("ab") as log, warnings.catch_warnings():
            # From 3.12 on, Python warns of any fork beside threads; between fork and exec there is
            # but one system call here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = subprocess.Popen(
                [program, str(self._config)],
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
                raise RuntimeError(f"{self._command} did not start; its log ends:\n{self._tail()}")
            pause.wait(0.01)

    def _is_ready(self) -> bool:
        """Whether it answers: this process, not another that has taken the port before it."""
        try:
            with self.client() as client:
                return bool(client.ping()) and client.info("server")["process_id"] == self.pid
        except redis.RedisError:  # not listening yet, or loading what it has kept
            return False

    def _tail(self) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, 20))


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class RedisServer(_Child):
    """A `redis-server` that keeps nothing, or with `aof` each write before it answers."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        aof: bool = False,
    ) -> None:
        options = {"save": '""', "shutdown-timeout": "0", "repl-diskless-sync-delay": "0"}
        if aof:
            options |= {"appendonly": "yes", "appendfsync": "always"}
        options |= config or {}
        lines = [f"{name} {value}" for name, value in options.items()]
        super().__init__("redis-server", folder, port, lines)


class Sentinel(_Child):
    """A `redis-sentinel` that watches one primary."""

    def __init__(self, folder: Path, name: str, primary: int) -> None:
        lines = [
            f"sentinel monitor {name} {HOST} {primary} 2",
            f"sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {name} 2000",
            f"sentinel parallel-syncs {name} 1",
        ]
        super().__init__("redis-sentinel", folder, None, lines)
