"""`python -m benchmarks.gateway_fuzz`: malformed requests to a gateway, and what they leave.

Each request is made by chance of a method, a path, headers and a body, right or wrong in one way or
several: sizes, encodings, depth of JSON, receipts of others, names, content types; a third of them
speak SQS, by JSON or by a form. No reply may be a 500, and the gateway's memory, threads and open
files may not grow.
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
from typing import Any
from urllib.parse import urlencode

from benchmarks.gateway import started

MORE = 40  # threads and files that a gateway may have at one moment and not at another
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
SQS_PATHS = ("/", "/000000000000/orders", "/000000000000/jobs.fifo", "/%00/%ff", "/a/" + "q" * 90)
SQS_VERBS = (
    "SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch",
    "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "CreateQueue", "GetQueueUrl",
    "GetQueueAttributes", "SetQueueAttributes", "ListQueues", "ListDeadLetterSourceQueues",
    "StartMessageMoveTask", "CancelMessageMoveTask", "ListMessageMoveTasks", "TagQueue",
    "UntagQueue", "ListQueueTags", "AddPermission", "RemovePermission", "Nothing", "",
)  # fmt: skip
SQS_NAMES = (
    "QueueUrl", "QueueName", "MessageBody", "DelaySeconds", "MessageAttributes", "Entries", "Tags",
    "MessageGroupId", "MessageDeduplicationId", "Attributes", "AttributeNames", "ReceiptHandle",
    "VisibilityTimeout", "WaitTimeSeconds", "MaxNumberOfMessages", "SourceArn", "TaskHandle",
    "NextToken", "MaxResults", "TagKeys", "Label", "AWSAccountIds", "Actions", "tags",
    "MessageSystemAttributes", "ReceiveRequestAttemptId",
)  # fmt: skip
SQS_VALUES: tuple[Any, ...] = (
    "http://127.0.0.1/000000000000/orders", "orders", "jobs.fifo", "", "\u0000", "x" * 2000, -1, 0,
    1,
    10**30, 1.5, None, True, [], {}, [{}], [None], {"a": 1}, ["All"], {"RedrivePolicy": "["},
    {"RedrivePolicy": '{"deadLetterTargetArn":1,"maxReceiveCount":"x"}'}, {"FifoQueue": "true"},
    [{"Id": "1"}], [{"Id": "1", "MessageBody": "x"}] * 11, "arn:aws:sqs:us-east-1:000000000000:x",
    [{"Id": "1", "MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Number"}}}],
    {"a": {"DataType": "Binary", "BinaryValue": "%"}}, {"a": {"DataType": "Number",
    "StringValue": "1e9999999"}}, "q1.0123456789abcdef.." + "0" * 32 + "." + "A" * 22, "%",
    [{"Id": "1", "ReceiptHandle": "x", "VisibilityTimeout": 10**9}], {"Policy": "{}"},
    {"VisibilityTimeout": "\u0661"}, {"Policy": '{"Statement": [1, "x", null]}'},
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


def sqs_request(chance: random.Random) -> bytes:
    """One request of SQS, wrong in most cases."""
    verb, path = chance.choice(SQS_VERBS), chance.choice(SQS_PATHS)
    fields = {
        name: chance.choice(SQS_VALUES) for name in chance.sample(SQS_NAMES, chance.randrange(6))
    }
    if chance.random() < 0.6:
        fields["QueueUrl" if verb != "CreateQueue" else "QueueName"] = "orders"
    if fields.get("WaitTimeSeconds"):
        del fields["WaitTimeSeconds"]
    lines = [f"{'POST' if chance.random() < 0.9 else 'GET'} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if chance.random() < 0.7:
        body = json.dumps(fields).encode()
        lines += [f"X-Amz-Target: AmazonSQS.{verb}", "Content-Type: application/x-amz-json-1.0"]
    else:
        dots = chance.choice((".1", ".1.Name", ".x", "." * 9, ".1.Value.StringValue", ""))
        form = {"Action": verb, **{f"{name}{dots}": str(each) for name, each in fields.items()}}
        body = urlencode(form).encode()
        lines.append("Content-Type: application/x-www-form-urlencoded")
    if chance.random() < 0.1:
        at = chance.randrange(len(body) + 1)
        body = body[:at] + bytes([chance.randrange(256)]) + body[at:]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


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
        sent = sqs_request(chance) if chance.random() < 1 / 3 else request(chance)
        status = status_of(port, sent)
        found[status] += 1
        if status in (1, 500):
            print(json.dumps({"status": status, "sent": repr(sent[:600])}), flush=True)
    return found


def has(pid: int) -> dict[str, int]:
    """The memory, threads and open files that a process has."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {
        "rss_kb": int(text.partition("VmRSS:")[2].split()[0]),
        "threads": int(text.partition("Threads:")[2].split()[0]),
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def main() -> None:
    """Sends what the command line asks for; fails at a 500, a growth, or if no reply came."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway_fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=18_390)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gateway = started(f"sqlite:///{folder}/q.db", asked.port, "--sqs")
        try:
            warm = fuzz(asked.port, asked.count // 10, asked.seed)
            before = has(gateway.pid)
            found = fuzz(asked.port, asked.count - asked.count // 10, asked.seed + 1) + warm
            after = has(gateway.pid)
        finally:
            gateway.kill()
            gateway.wait()
    print(json.dumps({"statuses": dict(sorted(found.items())), "before": before, "after": after}))
    grown = after["rss_kb"] > 1.1 * before["rss_kb"] or any(
        after[name] > before[name] + MORE for name in ("threads", "files")
    )
    raise SystemExit(bool(found[500] or found[1] or grown))


if __name__ == "__main__":
    main()
