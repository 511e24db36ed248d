"""Runs the peers, one after the other, and reads what they printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version

from benchmarks.redis_server import Reading, RedisServer

COUNTS = {"huey": 5000, "dramatiq": 5000, "celery": 3000, "taskiq": 5000, "faststream": 5000}
WITHIN_S = 120


class PeerFailed(Exception):
    """A peer could not be measured; the text says why in one line."""


def measure(server: RedisServer, name: str, count: int | None = None) -> tuple[Reading, Reading]:
    """The cost of publishing to a peer and of consuming.

    Raises:
        PeerFailed: if it is not installed, ends with an error or does not end.
    """
    count = count or COUNTS[name]
    server.empty()
    return _run(server, name, "publish", count), _run(server, name, "work", count)


def version_of(name: str) -> str:
    """The installed version of a peer."""
    return version(name)


def _run(server: RedisServer, name: str, action: str, count: int) -> Reading:
    command = [sys.executable, "-m", f"benchmarks.peers.{name}", action]
    environment = os.environ | {"BENCH_REDIS": server.url, "BENCH_COUNT": str(count)}
    with server.reading(count) as reading:
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=WITHIN_S
            )
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{action}: not done within {WITHIN_S} s") from None
    if done.returncode:
        raise PeerFailed(f"{action}: {_last_line(done.stderr)}")
    try:
        reading.seconds = json.loads(_last_line(done.stdout))["seconds"]
    except ValueError:
        raise PeerFailed(f"{action}: it ended with {_last_line(done.stdout)!r}") from None
    return reading


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1]
