"""One Redis process for a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from child import Child
from ports import HOST
from programs import program
from redis.backoff import NoBackoff
from redis.retry import Retry

MISSING = "the tests need redis-server 7 or newer: install it, e.g. apt-get install redis-server"

# A sentinel reconnects to a server at most once a second, and a promotion cuts its connection: with
# less than a second here it takes the new primary for dead, and the roles go to and fro.
DOWN_AFTER_MS = 1500


def connect(port: int, timeout_s: float = 5.0) -> redis.Redis:
    """A new client, to be closed, which tries nothing twice: a test sees what happened."""
    once = Retry(NoBackoff(), 0)
    return redis.Redis(host=HOST, port=port, retry=once, socket_timeout=timeout_s)


class _Redis(Child):
    """`redis-server`, as a server or as a sentinel, with a file of settings."""

    _mode: tuple[str, ...] = ()

    def __init__(self, name: str, folder: Path, port: int | None, lines: list[str]) -> None:
        super().__init__(name, folder, port)
        # The server may rewrite this file, as a promoted replica does; a restart goes on with it.
        self._config = self.folder / f"{name}.conf"
        common = [f"port {self.port}", f"bind {HOST}", "protected-mode no", "daemonize no"]
        text = "\n".join([*common, f'dir "{self.folder}"', *lines, ""])
        self._config.write_text(text, encoding="utf-8")
        self._start()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def client(self) -> redis.Redis:
        """A new client of it, as `connect` makes it."""
        return connect(self.port)

    def call(self, *words: str | int | bytes) -> Any:
        """What one command answers, on a connection of its own."""
        with self.client() as client:
            return client.execute_command(*words)

    def _command(self) -> list[str]:
        return [program("redis-server", MISSING), str(self._config), *self._mode]

    def _is_ready(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping()) and client.info("server")["process_id"] == self.pid
        except redis.RedisError:  # not listening yet, or loading what it has kept
            return False


class RedisServer(_Redis):
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


class Sentinel(_Redis):
    """A sentinel that watches one primary."""

    _mode = ("--sentinel",)

    def __init__(
        self, folder: Path, name: str, primary: int, config: Mapping[str, str] | None = None
    ) -> None:
        lines = [
            *(f"{option} {value}" for option, value in (config or {}).items()),
            f"sentinel monitor {name} {HOST} {primary} 2",
            f"sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {name} 2000",
            f"sentinel parallel-syncs {name} 1",
        ]
        super().__init__("redis-sentinel", folder, None, lines)
