"""`python -m benchmarks.gateway_fuzz`: malformed requests to a gateway, and what they leave.

Each request is made by chance of a method, a path, headers and a body, right or wrong in one way or
several: sizes, encodings, depth of JSON, receipts of others, names, content types. No reply may be
a 500, and the gateway's memory may not grow.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import string
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.gateway import started

WRONG = (
    b"", b"{", b"[]", b"null", b"1e999", b"\xff\xfe", b"\x00" * 50, b'"' + b"x" * 5000 + b'"',
    b'{"body":' + b"[" * 5000, b'{"body":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"body":1,"body":2}', b'{"body":"\\ud800"}', b'{"body":1,"key":"\\u0000"}',
    b'{"body":1,"key":5}', b'{"body":1,"at":"yesterday"}', b'{"body":1,"delay":-1}',
    b'{"body":1,"delay":1e308}', b'{"body":1,"at":1e300}', b'{"body":1,"priority":9999999999999}',
    b'{"body":1,"headers":{"qf-x":"y"}}', b'{"body":1,"tags":["a,b"]}', b'{"messages":[{}]}',
    b'{"messages":' + b'[{"body":1}' + b',{"body":1}' * 600 + b"]}", b'{"body_base64":"*"}',
    b'{"max":-1}', b'{"max":1,"wait":"1y"}', b'{"max":1,"lease":"0s"}', b'{"max":1e9}',
    b'{"ack":["q1.x"]}', b'{"ack":[""]}', b'{"ack":[1]}', b'{"ack":["' + b"q" * 3000 + b'"]}',
    b'{"ack":["q1.0123456789abcdef.aHR0cDovL2V2aWw.' + b"0" * 32 + b"." + b"A" * 22 + b'"]}',
    b'{"retry":[{"receipt":"x","delay":"soon"}]}', b'{"extend":[{"receipt":"x","lease":1e9}]}',
    b'{"specversion":"1.0"}', b'{"specversion":"1.0","id":1,"source":"","type":"t"}',
    b'[{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"%"}]',
)  # fmt: skip
RIGHT = (
    b'{"body":{"n":1},"key":"ann"}', b'{"max":1}', b'{"ack":["stale"]}', b'{"kind":"stream"}',
    b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":1}',
)  # fmt: skip
PATHS = (
    "/v1/topics/orders/messages", "/v1/topics/orders/groups/g/pull", "/v1/topics/orders/groups/g",
    "/v1/topics/orders/groups/g/settle", "/v1/topics/orders/groups/g/stats", "/v1/topics/orders",
    "/v1/timers/orders/k", "/v1/timers/later/k", "/v1/openapi.json", "/livez", "/readyz", "/",
    "/v1/topics/../messages", "/v1/topics/%00/messages", "/v1/topics/%ff/groups/%2f/pull",
    "/v1/topics/" + "a" * 300 + "/messages", "/v1/topics/nothing/groups/g@h/pull", "/v1/timers/x/",
    "/v1/topics/orders/groups/" + "g" * 70 + "/stats", "//", "/v1/topics/orders/messages?x=%ZZ",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "X")
TYPES = (
    "application/json", "application/x-ndjson", "application/cloudevents+json", "text/plain", "",
    "application/cloudevents-batch+json", "application/json; charset=utf-16", "\u00ff", "a" * 200,
)  # fmt: skip
HEADERS = (
    "Idempotency-Key: a b", "Idempotency-Key: \"\"", "Idempotency-Key: x", "ce-specversion: 1.0",
    "ce-id: %ff", "ce-type: t", "ce-source: s", "Authorization: Bearer \u00ff", "Expect: nothing",
    "Content-Encoding: gzip", "Transfer-Encoding: chunked", "X-Forwarded-For: 1.2.3.4",
    "Content-Length: 5", "Content-Length: -1", "Origin: http://evil.example", "Host: evil.example",
)  # fmt: skip


def request(chance: random.Random) -> bytes:
    """One request, wrong in most cases."""
    method = chance.choice(METHODS) if chance.random() < 0.3 else "POST"
    path = chance.choice(PATHS)
    body = chance.choice(WRONG if chance.random() < 0.8 else RIGHT)
    if chance.random() < 0.1:
        at = chance.randrange(len(body) + 1)
        body = body[:at] + bytes([chance.randrange(256)]) + body[at:]
    if chance.random() < 0.02:
        body = bytes(chance.choices(string.printable.encode(), k=chance.randrange(20_000)))
    lines = [f"{method} {path} HTTP/1.1"]
    if chance.random() < 0.98:
        lines.append("Host: 127.0.0.1")
    if chance.random() < 0.9:
        lines.append(f"Content-Type: {chance.choice(TYPES)}")
    lines += chance.sample(HEADERS, chance.choice((0, 0, 0, 1, 2)))
    if chance.random() < 0.97:
        lines.append(f"Content-Length: {len(body) + chance.choice((0, 0, 0, 0, 0, -1))}")
    lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def status_of(port: int, sent: bytes) -> int:
    """The status that a request is answered with; 0 for a closed connection, 1 for silence."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        try:
            connection.settimeout(0.3)
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(20)
            head = connection.recv(65536)
            return int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
        except TimeoutError:
            return 1
        except OSError:
            return 0


def fuzz(port: int, count: int, seed: int) -> Counter[int]:
    """Sends so many requests; returns how often each status came."""
    chance = random.Random(seed)
    found: Counter[int] = Counter()
    for _ in range(count):
        sent = request(chance)
        status = status_of(port, sent)
        found[status] += 1
        if status in (1, 500):
            print(json.dumps({"status": status, "sent": repr(sent[:600])}), flush=True)
    return found


def rss_kb(pid: int) -> int:
    """The memory that a process has."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(text.partition("VmRSS:")[2].split()[0])


def main() -> None:
    """Sends what the command line asks for; fails at a 500, or if no reply came."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway_fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=18_390)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gateway = started(f"sqlite:///{folder}/q.db", asked.port)
        try:
            warm = fuzz(asked.port, asked.count // 10, asked.seed)
            before = rss_kb(gateway.pid)
            found = fuzz(asked.port, asked.count - asked.count // 10, asked.seed + 1) + warm
            after = rss_kb(gateway.pid)
        finally:
            gateway.kill()
            gateway.wait()
    print(json.dumps({"statuses": dict(sorted(found.items())), "rss_kb": [before, after]}))
    raise SystemExit(bool(found[500] or found[1]))


if __name__ == "__main__":
    main()
