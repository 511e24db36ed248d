"""A Redis server of the benchmark's own: on a free port, without persistence, killed at the end."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import redis

STARTS_WITHIN_S = 10


@dataclass
class Reading:
    """The cost of some work: its seconds, and the server's CPU seconds and bytes of memory."""

    count: int
    seconds: float = 0.0
    cpu_s: float = 0.0
    memory: int = 0

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.count / self.seconds

    @property
    def redis_us(self) -> float:
        """Microseconds of the server's CPU a message."""
        return self.cpu_s / self.count * 1e6

    @property
    def bytes_each(self) -> float:
        """Bytes of the server's memory a message."""
        return self.memory / self.count


class RedisServer:
    """A context in which the server runs.

    Args:
        options: of its command line.
    """

    def __init__(self, *options: str) -> None:
        self._options = options

    def __enter__(self) -> Self:
        program = shutil.which("redis-server")
        if program is None:
            raise SystemExit("redis-server is not installed; the Redis benchmarks start their own")
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self._command = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", "--dir", self.folder.name, *self._options,
        ]  # fmt: skip
        self.client = redis.Redis(port=self.port)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def version(self) -> str:
        """Its version."""
        return str(self._info("server")["redis_version"])

    def lose_all(self) -> None:
        """Kills it, and starts it again: it has kept nothing."""
        self.process.kill()
        self.process.wait()
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        self._wait()

    def empty(self) -> None:
        """Forgets everything."""
        self.client.flushall()

    def cpu_s(self) -> float:
        """Seconds of CPU it has used."""
        info = self._info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def memory(self) -> int:
        """Bytes it has in use."""
        return int(self._info("memory")["used_memory"])

    def commands(self) -> int:
        """How many commands it has processed; asking is one of them."""
        return int(self._info("stats")["total_commands_processed"])

    @contextmanager
    def reading(self, count: int) -> Iterator[Reading]:
        """Reads time, CPU and memory before and after some work on `count` messages."""
        reading = Reading(count)
        memory, cpu_s, began = self.memory(), self.cpu_s(), time.perf_counter()
        yield reading
        reading.seconds = time.perf_counter() - began
        reading.cpu_s = self.cpu_s() - cpu_s
        reading.memory = self.memory() - memory

    def _info(self, section: str) -> dict[str, Any]:
        return self.client.info(section)

    def _wait(self) -> None:
        ends = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                if self.process.poll() is not None or time.monotonic() > ends:
                    self.__exit__()
                    raise SystemExit("redis-server did not start") from None
                time.sleep(0.02)
            else:
                return


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
