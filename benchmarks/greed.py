"""`python -m benchmarks.greed`: what the next caller of a gateway pays for a greedy one.

One caller asks as fast as it can, in a process of its own. The next one, with another token,
publishes one message, publishes a hundred, and pulls and settles, first alone and then beside each
kind of greed. Gateway, Redis and both callers share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from benchmarks.gateway import TOPIC, started
from benchmarks.redis_server import RedisServer
from benchmarks.report import machine

MESSAGES: Final = f"{TOPIC}/messages"
GROUP: Final = f"{TOPIC}/groups/next"
KINDS: Final[dict[str, tuple[int, str, Callable[[], Any]]]] = {
    "nothing": (0, "", list),
    "single publishes": (256, MESSAGES, lambda: {"body": 1}),
    "batches of 100": (64, MESSAGES, lambda: {"messages": [{"body": n} for n in range(100)]}),
    "useless settlements": (
        64,
        f"{TOPIC}/groups/greedy/settle",
        lambda: {"ack": [f"q1.none-{n}" for n in range(500)]},
    ),
    "8 MB at a time": (16, MESSAGES, lambda: {"body": "x" * 8_000_000}),
}
"""For each kind of greed: connections, path, and the body of a request."""


def main() -> None:
    """Measures, and prints one JSON object for each kind of greed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.greed", description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="of the next caller, of each")
    parser.add_argument("--port", type=int, default=18_390)
    parser.add_argument("--only", default="", help="the kinds of greed that have this in the name")
    parser.add_argument("--greedy", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.greedy:
        asyncio.run(be_greedy(asked.port, asked.greedy))
        return
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}))
    with RedisServer() as redis, tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder, "tokens.toml")
        tokens.write_text("".join(map(rights, ("greedy", "next"))), encoding="utf-8")
        gateway = started(redis.url, asked.port, "--tokens", str(tokens))
        try:
            ask(asked.port, "PUT", TOPIC, {"kind": "stream", "slots": 16, "retain": "10s"})
            ask(asked.port, "PUT", GROUP)
            for kind in KINDS:
                if asked.only in kind:
                    with greed(asked.port, kind):
                        print(json.dumps(measure(asked.port, asked.requests, kind)), flush=True)
        finally:
            gateway.terminate()
            gateway.wait()


def rights(name: str) -> str:
    """What a file of tokens says of a caller, whose token is its name."""
    of = '["*"]'
    hashed = sha256(name.encode()).hexdigest()
    return (
        f'[tokens.{name}]\nhashes = ["{hashed}"]\n'
        f"publish = {of}\nconsume = {of}\nadmin = {of}\nmax_request = 16000000\n"
    )


@contextmanager
def greed(port: int, kind: str) -> Iterator[None]:
    """A process that asks as fast as it can, until the block ends."""
    command = [sys.executable, "-m", "benchmarks.greed", "--port", str(port), "--greedy", kind]
    caller = subprocess.Popen(command)
    try:
        time.sleep(2)
        yield
    finally:
        caller.kill()
        caller.wait()


async def be_greedy(port: int, kind: str) -> None:
    """Sends the same request again and again, on several connections."""
    connections, path, body = KINDS[kind]
    content = json.dumps(body()).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer greedy\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    request = head.encode() + content

    async def ask_on() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while True:
                    writer.write(request)
                    await writer.drain()
                    reply = await reader.readuntil(b"\r\n\r\n")
                    length = reply.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                    await reader.readexactly(int(length))
            except (OSError, ValueError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)

    await asyncio.gather(*(ask_on() for _ in range(connections)), asyncio.sleep(3600))


def measure(port: int, count: int, kind: str) -> dict[str, Any]:
    """The medians of the next caller's requests, in ms."""
    connection = HTTPConnection("127.0.0.1", port)

    def times_ms(work: Callable[[], Any]) -> list[float]:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1000)
        return times

    def pull_and_settle() -> None:
        found = ask(connection, "POST", f"{GROUP}/pull", {"max": 10, "wait": "1s"})
        ask(connection, "POST", f"{GROUP}/settle", {"ack": receipts_of(found)})

    many = {"messages": [{"body": n} for n in range(100)]}
    works: dict[str, Callable[[], Any]] = {
        "publish_1": lambda: ask(connection, "POST", MESSAGES, {"body": 1}),
        "publish_100": lambda: ask(connection, "POST", MESSAGES, many),
        "pull_and_settle": pull_and_settle,
    }
    medians = {name: round(statistics.median(times_ms(work)), 2) for name, work in works.items()}
    return {"beside": kind, **medians, "load": os.getloadavg()[0]}


def receipts_of(found: dict[str, Any]) -> list[str]:
    """The receipts of what was pulled."""
    return [delivery["receipt"] for delivery in found["deliveries"]]


def ask(where: int | HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    """Sends a request of the next caller; returns what it is answered."""
    connection = HTTPConnection("127.0.0.1", where) if isinstance(where, int) else where
    headers = {"content-type": "application/json", "authorization": "Bearer next"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise RuntimeError(text[:500])
    return json.loads(text)


if __name__ == "__main__":
    main()
